//! Anthropic's Messages API: requests become chat requests, answers are written as its messages and events.

mod answer;
mod content;
mod events;
mod request;
mod usage;

pub use answer::MessageAnswer;
pub use events::MessageEvents;
pub use request::{MessagesOptions, Purpose};

use crate::Finish;

/// Signature of thinking blocks: there is none to give, and none is asked for when blocks come back.
const SIGNATURE: &str = "erased";

/// Why an answer ended, in Anthropic's words; `stop` is the stop string that was met.
fn stop_reason(finish: Finish, stop: Option<&str>) -> &'static str {
    match finish {
        Finish::Stop if stop.is_some() => "stop_sequence",
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::ToolCalls => "tool_use",
        Finish::ContentFilter => "refusal",
    }
}

/// Id of a tool use for a call's id. Ids made here look as Anthropic's; one that the model wrote is kept, since its
/// template shows it again.
fn tool_use_id(call: &str) -> String {
    let digits: String =
        call.strip_prefix("call-").unwrap_or_default().chars().filter(|c| *c != '-').collect();
    if digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        format!("toolu_{digits}")
    } else {
        call.to_owned()
    }
}

#[cfg(test)]
mod tests;
