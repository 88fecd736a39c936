//! Control tokens that users and tools spell, kept as text where the operator wants that.

use std::borrow::Cow;

use roost_template::RenderInput;
use roost_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::memory::{self, HashedPrompt, PromptError, PromptRequest};
use crate::shared::Shared;

/// Messages with guards, and the guard.
#[derive(Debug)]
struct Guarded {
    messages: String,
    guard: char,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// The prompt of a request with control tokens that are to stay text, where the operator wants that and there are any;
/// else `make`s it.
pub(super) fn or_else(
    shared: &Shared,
    request: &PromptRequest<'_>,
    make: impl FnOnce(&PromptRequest<'_>) -> Result<HashedPrompt, PromptError>,
) -> Result<HashedPrompt, PromptError> {
    let is_on = shared.config.prepare.literal_control_tokens && !request.template.keeps_text_apart();
    match is_on.then(|| guarded(&request.input, request.tokenizer)).flatten() {
        Some(Guarded { messages, guard }) => memory::guarded(request, &messages, guard),
        None => make(request),
    }
}

/// The messages with a guard in every control token that the text of a user or a tool spells; `None` where none does,
/// and where the messages cannot be read, which is told elsewhere.
fn guarded(input: &RenderInput<'_>, tokenizer: &Tokenizer) -> Option<Guarded> {
    let messages: Vec<&RawValue> = serde_json::from_str(input.messages).ok()?;
    let guard = unused(input)?;
    let mut out = String::new();
    let mut done = 0;
    for message in messages {
        let read: Message<'_> = serde_json::from_str(message.get()).ok()?;
        let Some(content) = read.content.filter(|_| matches!(&*read.role, "user" | "tool")) else { continue };
        let mut value: Value = serde_json::from_str(content.get()).ok()?;
        if !guard_texts(&mut value, tokenizer, guard) {
            continue;
        }
        let start = content.get().as_ptr() as usize - input.messages.as_ptr() as usize;
        out.push_str(&input.messages[done..start]);
        out.push_str(&value.to_string());
        done = start + content.get().len();
    }
    (done > 0).then(|| Guarded { messages: out + &input.messages[done..], guard })
}

/// Whether there was anything to guard in a content, which is text or a list of parts.
fn guard_texts(content: &mut Value, tokenizer: &Tokenizer, guard: char) -> bool {
    match content {
        Value::String(text) => match tokenizer.guarded(text, guard) {
            Some(guarded) => {
                *text = guarded;
                true
            }
            None => false,
        },
        Value::Array(parts) => parts.iter_mut().fold(false, |any, part| {
            let text = if part.is_object() { part.get_mut("text") } else { Some(part) };
            text.is_some_and(|text| text.is_string() && guard_texts(text, tokenizer, guard)) || any
        }),
        _ => false,
    }
}

/// A character for private use that the request does not have, neither as it is nor escaped.
fn unused(input: &RenderInput<'_>) -> Option<char> {
    let given: Vec<String> = [Some(input.messages), input.tools, input.kwargs, input.response_format]
        .into_iter()
        .flatten()
        .map(str::to_ascii_lowercase)
        .collect();
    ('\u{e000}'..='\u{f8ff}').find(|guard| {
        let escaped = format!("\\u{:04x}", *guard as u32);
        given.iter().all(|text| !text.contains(*guard) && !text.contains(&escaped))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_found_nowhere_in_the_request() {
        let input = |messages| RenderInput::new(messages, std::time::SystemTime::UNIX_EPOCH);
        assert_eq!(unused(&input("[]")), Some('\u{e000}'));
        assert_eq!(unused(&input("[\"\u{e000}\"]")), Some('\u{e001}'));
        assert_eq!(unused(&input(r#"["\uE000 \ue001"]"#)), Some('\u{e002}'));
    }
}
