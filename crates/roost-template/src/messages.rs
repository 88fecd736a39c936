//! The request's messages as template values, in the shape the model's template can read.

mod json;
mod shape;

use minijinja::Value;
use minijinja::value::ValueKind;

use crate::capabilities::Capabilities;
use crate::error::RenderError;
pub(crate) use json::{parse_json, parse_object};

/// What to do with tool-call arguments that are text but no JSON object, where the template wants one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrokenArguments {
    /// The template gets an object with the text in its member `arguments`; an agent's slip must not end its
    /// session.
    #[default]
    Wrap,
    /// The request is refused.
    Refuse,
}

/// One message; members in the order of the request.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) members: Vec<(String, Value)>,
}

impl Message {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        match self.members.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.members.push((name.to_owned(), value)),
        }
    }

    pub(crate) fn role(&self) -> &str {
        self.get("role").and_then(Value::as_str).unwrap_or_default()
    }
}

/// Parses the messages of a request and shapes them for a template with `capabilities`.
pub(crate) fn read(
    raw: &str,
    capabilities: &Capabilities,
    broken: BrokenArguments,
) -> Result<Vec<Message>, RenderError> {
    let mut messages = parse(raw)?;
    for (index, message) in messages.iter_mut().enumerate() {
        shape(message, index, capabilities, broken)?;
    }
    Ok(shape::roles(messages, capabilities))
}

/// Reads one message of a request, as [`read`] does for a template that takes every order of roles.
pub(crate) fn read_one(
    raw: &str,
    index: usize,
    capabilities: &Capabilities,
    broken: BrokenArguments,
) -> Result<Message, RenderError> {
    // As a list, so that it may be nested as deep as in one.
    let mut messages = parse(&["[", raw, "]"].concat())?;
    let mut message = messages.pop().ok_or_else(|| invalid("messages", "must not be empty"))?;
    shape(&mut message, index, capabilities, broken)?;
    Ok(message)
}

fn shape(
    message: &mut Message,
    index: usize,
    capabilities: &Capabilities,
    broken: BrokenArguments,
) -> Result<(), RenderError> {
    if !ROLES.contains(&message.role()) {
        let reason = format!("must be one of {}", ROLES.join(", "));
        return Err(invalid(&format!("messages[{index}].role"), &reason));
    }
    shape::content(message, index, capabilities)?;
    shape::tool_calls(message, index, capabilities, broken)?;
    shape::reasoning(message, capabilities);
    Ok(())
}

/// Roles that a message may have. Templates pass over messages of others, which nobody would notice.
const ROLES: [&str; 7] = ["system", "developer", "user", "assistant", "tool", "function", "latest_reminder"];

/// One of [`ROLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role(u8);

impl Role {
    pub(crate) fn of(role: &str) -> Option<Self> {
        ROLES.iter().position(|known| *known == role).map(|at| Role(at as u8))
    }

    pub(crate) fn as_str(self) -> &'static str {
        ROLES[usize::from(self.0)]
    }
}

/// Parses the messages of a request as they are.
pub(crate) fn parse(raw: &str) -> Result<Vec<Message>, RenderError> {
    let messages = json::parse_messages(raw).map_err(|e| invalid("messages", &e.to_string()))?;
    if messages.is_empty() {
        return Err(invalid("messages", "must not be empty"));
    }
    for (index, message) in messages.iter().enumerate() {
        if message.get("role").is_none_or(|role| role.kind() != ValueKind::String) {
            return Err(invalid(&format!("messages[{index}].role"), "must be a string"));
        }
    }
    Ok(messages)
}

pub(crate) fn into_value(messages: Vec<Message>) -> Value {
    messages.into_iter().map(|message| Value::from_pairs(message.members)).collect()
}

pub(crate) fn invalid(path: &str, reason: &str) -> RenderError {
    RenderError::Invalid { path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests;
