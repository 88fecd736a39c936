//! Prompts that end inside the last message.

use minijinja::Value;
use minijinja::value::ValueKind;

use crate::error::RenderError;
use crate::messages::{Message, invalid};

/// Text of the last message, or of its last text part.
pub(super) fn final_text(messages: &[Message]) -> Result<String, RenderError> {
    let content = messages.last().and_then(|message| message.get("content"));
    let text = match content {
        Some(content) if content.kind() == ValueKind::Seq => {
            let parts: Vec<Value> = content.try_iter().into_iter().flatten().collect();
            parts.iter().rev().find_map(|part| part.get_attr("text").ok()?.as_str().map(str::to_owned))
        }
        Some(content) => content.as_str().map(str::to_owned),
        None => None,
    };
    text.ok_or_else(|| invalid("continue_final_message", "the last message has no text to continue"))
}

/// Cuts the prompt behind the last occurrence of `final_text`. Templates may have trimmed it.
pub(super) fn cut(prompt: &mut String, final_text: &str) -> Result<(), RenderError> {
    let trimmed = final_text.trim();
    let at = prompt
        .rfind(trimmed)
        .ok_or_else(|| invalid("continue_final_message", "the template does not render the last message"))?;
    let untrimmed = final_text.trim_start();
    let kept = if prompt[at..].starts_with(untrimmed) { untrimmed } else { trimmed };
    prompt.truncate(at + kept.len());
    Ok(())
}
