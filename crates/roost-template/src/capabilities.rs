//! What a template can read, found out by rendering small conversations when it is loaded.

use minijinja::Value;

use crate::messages::parse_json;

/// How messages must be prepared for a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Content may be a list of parts; otherwise its texts are joined.
    pub content_parts: bool,
    /// The arguments of earlier tool calls are rendered verbatim when they are JSON text.
    pub arguments_text: bool,
    /// The arguments of earlier tool calls may be an object.
    pub arguments_object: bool,
    /// A system message after the first turn is refused.
    pub refuses_late_system: bool,
    /// Several user messages in a row are refused.
    pub refuses_user_runs: bool,
    /// Where the template looks for the reasoning of earlier turns, if it does.
    pub reasoning: Option<ReasoningKey>,
}

/// Name of the message member with the reasoning text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningKey {
    /// `reasoning_content`.
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
}

const BASE: &str = r#"[{"role":"system","content":"s"},{"role":"user","content":"u"}]"#;
const PARTS: &str = r#"[{"role":"user","content":[{"type":"text","text":"first-part"},{"type":"text","text":"second-part"}]}]"#;
const LATE_SYSTEM: [&str; 2] = [
    r#"[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"system","content":"t"}]"#,
    r#"[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},
        {"role":"system","content":"t"},{"role":"user","content":"u"}]"#,
];
const USER_RUN: &str =
    r#"[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"user","content":"v"}]"#;
/// Arguments in a spelling no serializer produces, so that verbatim text can be told from parsed and dumped.
const ARGUMENTS: &str = r#"{"probe" :1}"#;

impl Capabilities {
    /// Probes a template. `render` renders messages with it; `source` is its text.
    pub(crate) fn probe(source: &str, render: impl Fn(Value) -> Option<String>) -> Self {
        let render_json = |messages: &str| render(parse_json(messages).ok()?);
        // A template that cannot render a plain conversation refuses nothing in particular.
        let base = render_json(BASE).is_some();
        let refuses = |messages: &str| base && render_json(messages).is_none();
        Self {
            content_parts: render_json(PARTS).is_some_and(|text| reads_parts(&text)),
            arguments_text: tool_calls(&Value::from(ARGUMENTS))
                .into_iter()
                .any(|messages| render(messages).is_some_and(|text| text.contains(ARGUMENTS))),
            arguments_object: tool_calls(&Value::from_pairs([("probe", 1)]))
                .into_iter()
                .any(|messages| render(messages).is_some_and(|text| text.contains("probe"))),
            refuses_late_system: LATE_SYSTEM.into_iter().any(refuses),
            refuses_user_runs: refuses(USER_RUN),
            reasoning: if source.contains("reasoning_content") {
                Some(ReasoningKey::ReasoningContent)
            } else if [".reasoning", "'reasoning'", "\"reasoning\""].iter().any(|name| source.contains(name))
            {
                Some(ReasoningKey::Reasoning)
            } else {
                None
            },
        }
    }
}

/// Both texts are there, and no list was printed.
fn reads_parts(text: &str) -> bool {
    let found = text.find("first-part").zip(text.find("second-part"));
    found.is_some_and(|(first, second)| first < second)
        && !text.contains("'text'")
        && !text.contains("\"text\"")
}

/// Conversations with a tool call: templates look at its arguments only beside the content they expect.
fn tool_calls(arguments: &Value) -> Vec<Value> {
    let object = |members: Vec<(&'static str, Value)>| Value::from_pairs(members);
    [Value::from(""), Value::from("text"), Value::from(())]
        .map(|content| {
            let function = object(vec![("name", "f".into()), ("arguments", arguments.clone())]);
            let call =
                object(vec![("id", "call00001".into()), ("type", "function".into()), ("function", function)]);
            Value::from(vec![
                object(vec![("role", "user".into()), ("content", "u".into())]),
                object(vec![
                    ("role", "assistant".into()),
                    ("content", content),
                    ("tool_calls", Value::from(vec![call])),
                ]),
                object(vec![
                    ("role", "tool".into()),
                    ("tool_call_id", "call00001".into()),
                    ("name", "f".into()),
                    ("content", "r".into()),
                ]),
                object(vec![("role", "user".into()), ("content", "v".into())]),
            ])
        })
        .into()
}

#[cfg(test)]
mod tests;
