//! A list of chat messages under construction: how the requests of other APIs become one that templates read.
//!
//! What a client sent as a JSON string stays escaped as it was sent: it is copied, never decoded. The list of a
//! conversation that has grown therefore starts with the bytes of the one before, which is what the memory of prompts
//! looks at.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;

use crate::Raw;
use crate::json::write_escaped;

/// The inside of a JSON string as it was sent, escapes and all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Escaped<'a>(&'a str);

impl<'a> Escaped<'a> {
    /// `None` when the value is no string.
    pub(crate) fn of(raw: &'a RawValue) -> Option<Self> {
        raw.get().strip_prefix('"')?.strip_suffix('"').map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text; what no text has (half a surrogate pair) becomes U+FFFD.
    pub(crate) fn decode(&self) -> String {
        serde_json::from_str(&format!("\"{}\"", self.0))
            .unwrap_or_else(|_| char::REPLACEMENT_CHARACTER.into())
    }
}

/// A call in an assistant's message.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) id: Escaped<'a>,
    /// Name of the function, not escaped.
    pub(crate) name: String,
    pub(crate) arguments: Arguments<'a>,
}

/// Arguments of a call in history.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arguments<'a> {
    /// A string that holds JSON.
    Text(Escaped<'a>),
    /// A JSON value.
    Json(&'a RawValue),
}

/// An assistant's message, part by part.
#[derive(Debug, Default)]
pub(crate) struct Assistant<'a> {
    pub(crate) text: Vec<Escaped<'a>>,
    pub(crate) reasoning: Vec<Escaped<'a>>,
    pub(crate) calls: Vec<Call<'a>>,
}

/// The list.
#[derive(Debug)]
pub(crate) struct Conversation {
    out: BytesMut,
    count: usize,
}

impl Conversation {
    /// An empty list; `bytes` is a guess at its length.
    pub(crate) fn new(bytes: usize) -> Self {
        let mut out = BytesMut::with_capacity(bytes);
        out.put_u8(b'[');
        Conversation { out, count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A message of text whose parts are joined by nothing.
    pub(crate) fn text(&mut self, role: &str, parts: &[Escaped<'_>]) {
        self.open(role);
        self.out.put_slice(b",\"content\":");
        self.strings(parts, "");
        self.out.put_u8(b'}');
    }

    /// A message of text that is not escaped.
    pub(crate) fn plain(&mut self, role: &str, text: &str) {
        self.open(role);
        self.out.put_slice(b",\"content\":\"");
        write_escaped(&mut self.out, text);
        self.out.put_slice(b"\"}");
    }

    /// The result of the call `id`.
    pub(crate) fn tool(&mut self, id: Escaped<'_>, parts: &[Escaped<'_>]) {
        self.open("tool");
        self.out.put_slice(b",\"tool_call_id\":");
        self.strings(&[id], "");
        self.out.put_slice(b",\"content\":");
        self.strings(parts, "");
        self.out.put_u8(b'}');
    }

    /// What the model said; pieces of reasoning are joined by `reasoning_joiner`, escaped.
    pub(crate) fn assistant(&mut self, said: &Assistant<'_>, reasoning_joiner: &str) {
        self.open("assistant");
        self.out.put_slice(b",\"content\":");
        if said.text.is_empty() && !said.calls.is_empty() {
            self.out.put_slice(b"null");
        } else {
            self.strings(&said.text, "");
        }
        if said.reasoning.iter().any(|text| !text.is_empty()) {
            self.out.put_slice(b",\"reasoning_content\":");
            self.strings(&said.reasoning, reasoning_joiner);
        }
        if !said.calls.is_empty() {
            self.out.put_slice(b",\"tool_calls\":[");
            for (at, call) in said.calls.iter().enumerate() {
                if at > 0 {
                    self.out.put_u8(b',');
                }
                self.call(call);
            }
            self.out.put_u8(b']');
        }
        self.out.put_u8(b'}');
    }

    /// The finished list.
    pub(crate) fn finish(mut self) -> Raw {
        self.out.put_u8(b']');
        Raw::whole(self.out.freeze())
    }

    fn open(&mut self, role: &str) {
        if self.count > 0 {
            self.out.put_u8(b',');
        }
        self.count += 1;
        self.out.put_slice(b"{\"role\":\"");
        self.out.put_slice(role.as_bytes());
        self.out.put_u8(b'"');
    }

    fn strings(&mut self, parts: &[Escaped<'_>], joiner: &str) {
        self.out.put_u8(b'"');
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                self.out.put_slice(joiner.as_bytes());
            }
            self.out.put_slice(part.0.as_bytes());
        }
        self.out.put_u8(b'"');
    }

    fn call(&mut self, call: &Call<'_>) {
        self.out.put_slice(b"{\"id\":");
        self.strings(&[call.id], "");
        self.out.put_slice(b",\"type\":\"function\",\"function\":{\"name\":\"");
        write_escaped(&mut self.out, &call.name);
        self.out.put_slice(b"\",\"arguments\":");
        match call.arguments {
            Arguments::Text(text) => self.strings(&[text], ""),
            Arguments::Json(value) => {
                self.out.put_u8(b'"');
                write_escaped(&mut self.out, &compact(value.get()));
                self.out.put_u8(b'"');
            }
        }
        self.out.put_slice(b"}}");
    }
}

/// JSON without the white space between its tokens: clients space what they send back as they like.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for char in json.chars() {
        if in_string {
            (in_string, escaped) = (escaped || char != '"', !escaped && char == '\\');
        } else if char.is_ascii_whitespace() {
            continue;
        } else {
            in_string = char == '"';
        }
        out.push(char);
    }
    out
}

/// Writes a function as the chat API defines tools; members that are not given are left out.
pub(crate) fn write_function(
    out: &mut BytesMut,
    name: &str,
    [description, parameters, strict]: [Option<&RawValue>; 3],
) {
    out.put_slice(b"{\"type\":\"function\",\"function\":{\"name\":\"");
    write_escaped(out, name);
    out.put_u8(b'"');
    let members = [("description", description), ("parameters", parameters), ("strict", strict)];
    for (member, value) in members {
        if let Some(value) = value {
            out.put_slice(b",\"");
            out.put_slice(member.as_bytes());
            out.put_slice(b"\":");
            out.put_slice(value.get().as_bytes());
        }
    }
    out.put_slice(b"}}");
}

/// A list of values that were written one by one.
pub(crate) fn raw_list(items: &[Bytes]) -> Raw {
    let mut out = BytesMut::with_capacity(items.iter().map(|item| item.len() + 1).sum::<usize>() + 2);
    out.put_u8(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.put_slice(item);
    }
    out.put_u8(b']');
    Raw::whole(out.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_goes_only_between_tokens() {
        for (json, expected) in [
            (
                r#"{ "a" : [ 1, 2 ] , "b c" : "d \" e\\" , "f" : "\\\" " }"#,
                r#"{"a":[1,2],"b c":"d \" e\\","f":"\\\" "}"#,
            ),
            ("\t[\n]\r", "[]"),
        ] {
            assert_eq!(compact(json), expected);
            let (a, b): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(json).unwrap(), serde_json::from_str(expected).unwrap());
            assert_eq!(a, b);
        }
    }
}
