use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;

use super::{SIGNATURE, stop_reason, tool_use_id, usage};
use crate::blocks::{Block, Blocks, Step};
use crate::json::write_string;
use crate::{Finish, Piece, Usage};

/// A whole message, collected piece by piece.
#[derive(Debug, Default)]
pub struct MessageAnswer {
    blocks: Blocks,
    content: Vec<Part>,
    finish: Option<Finish>,
    stop: Option<Box<str>>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Thinking(String),
    ToolUse { id: String, name: String, input: String },
}

impl MessageAnswer {
    /// Takes the next piece.
    pub fn piece(&mut self, piece: Piece<'_>) {
        let content = &mut self.content;
        self.blocks.push(piece, |step| add(content, step));
    }

    /// Takes the end; `stop` is the stop string that was met.
    pub fn finish(&mut self, finish: Finish, stop: Option<&str>) {
        let content = &mut self.content;
        self.blocks.end(|step| add(content, step));
        self.finish = Some(finish);
        self.stop = stop.filter(|_| finish == Finish::Stop).map(Into::into);
    }

    /// Writes the body of the message `id` (with its `msg_` prefix).
    pub fn write(&self, out: &mut BytesMut, id: &str, model: &str, counts: &Usage) {
        out.put_slice(b"{\"id\":");
        write_string(out, id);
        out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if self.content.is_empty() {
            out.put_slice(b"{\"type\":\"text\",\"text\":\"\"}");
        }
        for (at, part) in self.content.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            part.write(out);
        }
        out.put_slice(b"],\"model\":");
        write_string(out, model);
        out.put_slice(b",\"stop_reason\":");
        write_string(out, stop_reason(self.finish.unwrap_or(Finish::Stop), self.stop.as_deref()));
        out.put_slice(b",\"stop_sequence\":");
        match &self.stop {
            Some(stop) => write_string(out, stop),
            None => out.put_slice(b"null"),
        }
        out.put_slice(b",\"usage\":");
        usage::write(out, counts, counts.completion_tokens);
        out.put_u8(b'}');
    }
}

fn add(content: &mut Vec<Part>, step: Step<'_>) {
    match step {
        Step::Open(Block::Text) => content.push(Part::Text(String::new())),
        Step::Open(Block::Reasoning) => content.push(Part::Thinking(String::new())),
        Step::Open(Block::Call { id, name }) => {
            content.push(Part::ToolUse { id: tool_use_id(id), name: name.to_owned(), input: String::new() });
        }
        Step::Add(more) => match content.last_mut() {
            Some(Part::Text(text) | Part::Thinking(text) | Part::ToolUse { input: text, .. }) => {
                text.push_str(more);
            }
            None => {}
        },
        Step::Close => {}
    }
}

impl Part {
    fn write(&self, out: &mut BytesMut) {
        match self {
            Part::Text(text) => {
                out.put_slice(b"{\"type\":\"text\",\"text\":");
                write_string(out, text);
            }
            Part::Thinking(text) => {
                out.put_slice(b"{\"type\":\"thinking\",\"thinking\":");
                write_string(out, text);
                out.put_slice(b",\"signature\":");
                write_string(out, SIGNATURE);
            }
            Part::ToolUse { id, name, input } => {
                out.put_slice(b"{\"type\":\"tool_use\",\"id\":");
                write_string(out, id);
                out.put_slice(b",\"name\":");
                write_string(out, name);
                out.put_slice(b",\"input\":");
                out.put_slice(object(input).as_bytes());
            }
        }
        out.put_u8(b'}');
    }
}

/// Arguments as the object they must be. Of arguments that were cut off, the members that are whole are kept.
fn object(arguments: &str) -> String {
    let is_object = |text: &str| text.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok();
    let text = arguments.trim();
    if is_object(text) {
        return text.to_owned();
    }
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    let mut ends = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => ends.push(at),
            _ => {}
        }
    }
    // A last member that ends with a quote or a bracket is whole; a number may have gone on.
    if text.ends_with(['"', '}', ']']) && depth == 1 && !in_string {
        ends.push(text.len());
    }
    let whole = |end: &usize| Some(format!("{}}}", &text[..*end])).filter(|text| is_object(text));
    ends.iter().rev().find_map(whole).unwrap_or_else(|| "{}".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_were_cut_keep_their_whole_members() {
        for (arguments, expected) in [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("", "{}"),
            ("{", "{}"),
            (r#"{"a": 1, "b": 2"#, r#"{"a": 1}"#),
            (r#"{"a": 1, "b": "x,"#, r#"{"a": 1}"#),
            (r#"{"a": 1, "b": "x""#, r#"{"a": 1, "b": "x"}"#),
            (r#"{"a": "\"", "b": [1,"#, r#"{"a": "\""}"#),
            (r#"{"a": {"b": 1}"#, r#"{"a": {"b": 1}}"#),
            (r#"{"a": 1, "b""#, r#"{"a": 1}"#),
            ("[1]", "{}"),
            ("no JSON", "{}"),
        ] {
            assert_eq!(object(arguments), expected, "{arguments}");
        }
    }
}
