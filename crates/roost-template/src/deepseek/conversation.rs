//! The request as all formats see it.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::RenderError;
use crate::messages::invalid;
use crate::template::RenderInput;

#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) scene: Scene,
    pub(super) turns: Vec<Turn>,
    /// The turns go on behind others, which end before an answer: there is text before them, with everything that
    /// stands at the beginning of a prompt.
    pub(super) goes_on: bool,
}

/// What a conversation has beside its turns.
#[derive(Debug)]
pub(super) struct Scene {
    /// Definitions with the members `name`, `description` and `parameters`; none where the conversation goes on.
    pub(super) tools: Vec<Value>,
    /// Whether tools are offered.
    pub(super) has_tools: bool,
    pub(super) effort: Effort,
    pub(super) format: ResponseFormat,
    /// The response format as it was sent.
    pub(super) format_json: Option<Value>,
    /// Whether the template arguments let earlier reasoning be left out.
    pub(super) drop_thinking: bool,
}

/// How messages are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Between the texts of one message.
    pub(super) separator: &'static str,
    /// A developer's message is not the same as system text.
    pub(super) has_developer: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Turn {
    System(String),
    Developer(String),
    User(String),
    Tool { call: Option<String>, text: String },
    Assistant(Assistant),
    Reminder(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assistant {
    pub(super) text: String,
    /// `None` only when thinking is off.
    pub(super) reasoning: Option<String>,
    pub(super) calls: Vec<Call>,
    /// The answer goes on from this text.
    pub(super) continued: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
}

/// How much thinking is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    Off,
    Low,
    High,
    Max,
    /// 1 to 100, V4.1 only.
    Score(u8),
}

#[derive(Debug, PartialEq)]
pub(super) enum ResponseFormat {
    Text,
    Object,
    Schema(Value),
}

impl Conversation {
    pub(super) fn read(input: &RenderInput<'_>, reading: Reading) -> Result<Self, RenderError> {
        let scene = Scene::read(input)?;
        let turns = read_turns(input.messages, 0, scene.thinks(), reading)?;
        let mut turns: Vec<Turn> = turns.into_iter().map(|(_, turn)| turn).collect();
        if input.continue_final_message {
            match turns.last_mut() {
                Some(Turn::Assistant(assistant)) => assistant.continued = true,
                _ => {
                    return Err(invalid("continue_final_message", "the last message is not the assistant's"));
                }
            }
        }
        Ok(Self { scene, turns, goes_on: false })
    }
}

impl Scene {
    pub(super) fn read(input: &RenderInput<'_>) -> Result<Self, RenderError> {
        let tools: Vec<Tool> = parse(input.tools.unwrap_or("[]"), "tools")?;
        let format_json: Option<Value> =
            input.response_format.map(|raw| parse(raw, "response_format")).transpose()?;
        let format = format_json.as_ref().map_or(ResponseFormat::Text, ResponseFormat::from_json);
        let tools: Vec<Value> = tools.into_iter().map(Tool::into_definition).collect();
        Ok(Self { has_tools: !tools.is_empty(), tools, format, format_json, ..Self::familiar(input, false)? })
    }

    /// Of a scene that was read before, only what turns depend on.
    pub(super) fn familiar(input: &RenderInput<'_>, has_tools: bool) -> Result<Self, RenderError> {
        let kwargs: Map<String, Value> = parse(input.kwargs.unwrap_or("{}"), "chat_template_kwargs")?;
        Ok(Self {
            tools: Vec::new(),
            has_tools,
            effort: Effort::from_kwargs(&kwargs),
            format: ResponseFormat::Text,
            format_json: None,
            drop_thinking: kwargs.get("drop_thinking").and_then(Value::as_bool).unwrap_or(true),
        })
    }

    pub(super) fn thinks(&self) -> bool {
        self.effort != Effort::Off
    }

    /// Reasoning of earlier turns is kept only in conversations with tools.
    pub(super) fn keeps_reasoning(&self) -> bool {
        self.has_tools
    }
}

/// The turns of a JSON list of messages, each with the number of its message; `first` is that of the first.
pub(super) fn read_turns(
    list: &str,
    first: usize,
    thinking: bool,
    reading: Reading,
) -> Result<Vec<(usize, Turn)>, RenderError> {
    let messages: Vec<Message> = parse(list, "messages")?;
    if messages.is_empty() && first == 0 {
        return Err(invalid("messages", "must not be empty"));
    }
    let mut turns = Vec::with_capacity(messages.len());
    for (index, message) in (first..).zip(messages) {
        turns.extend(message.into_turn(index, thinking, reading)?.map(|turn| (index, turn)));
    }
    Ok(turns)
}

impl Effort {
    fn from_kwargs(kwargs: &Map<String, Value>) -> Self {
        let off = kwargs.get("thinking").or_else(|| kwargs.get("enable_thinking"))
            == Some(&Value::Bool(false))
            || kwargs.get("thinking_mode").and_then(Value::as_str) == Some("disabled");
        if off {
            return Self::Off;
        }
        match kwargs.get("reasoning_effort") {
            Some(Value::String(effort)) => match effort.as_str() {
                "minimal" | "low" => Self::Low,
                "max" | "ultra" => Self::Max,
                _ => Self::High,
            },
            Some(Value::Number(score)) => match score.as_u64() {
                Some(score @ 1..=100) => Self::Score(score as u8),
                _ => Self::High,
            },
            _ => Self::High,
        }
    }
}

impl ResponseFormat {
    fn from_json(format: &Value) -> Self {
        match format["type"].as_str() {
            Some("json_object") => Self::Object,
            Some("json_schema") => Self::Schema(format["json_schema"]["schema"].clone()),
            _ => Self::Text,
        }
    }
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<RawCall>>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type", default)]
    kind: String,
    text: Option<String>,
}

#[derive(Deserialize)]
struct RawCall {
    #[serde(default)]
    id: String,
    function: RawFunction,
}

#[derive(Deserialize)]
struct RawFunction {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct Tool {
    function: Definition,
}

#[derive(Deserialize)]
struct Definition {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
}

impl Message {
    /// `None` for a system message without text.
    fn into_turn(self, index: usize, thinking: bool, reading: Reading) -> Result<Option<Turn>, RenderError> {
        let text = match self.content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => joined(parts, index, reading.separator)?,
        };
        Ok(Some(match self.role.as_str() {
            "developer" if reading.has_developer => Turn::Developer(text),
            "system" | "developer" => match without_billing_header(&text) {
                "" => return Ok(None),
                text => Turn::System(text.to_owned()),
            },
            "user" => Turn::User(text),
            "tool" => Turn::Tool { call: self.tool_call_id, text },
            "latest_reminder" => Turn::Reminder(text),
            "assistant" => Turn::Assistant(Assistant {
                text,
                reasoning: thinking.then(|| self.reasoning_content.or(self.reasoning).unwrap_or_default()),
                calls: self.tool_calls.unwrap_or_default().into_iter().map(RawCall::into_call).collect(),
                continued: false,
            }),
            role => {
                let reason = format!("role {role:?} is not known to this model");
                return Err(invalid(&format!("messages[{index}].role"), &reason));
            }
        }))
    }
}

fn joined(parts: Vec<Part>, index: usize, separator: &str) -> Result<String, RenderError> {
    let mut texts = Vec::with_capacity(parts.len());
    for (number, part) in parts.into_iter().enumerate() {
        let path = || format!("messages[{index}].content[{number}]");
        let reason = || format!("parts of type {:?} cannot be rendered for this model", part.kind);
        texts.push(part.text.ok_or_else(|| invalid(&path(), &reason()))?);
    }
    Ok(texts.join(separator))
}

/// An agent client puts a line for its own billing before the system text. It changes with every request, so the
/// publisher's encoder leaves it out.
fn without_billing_header(text: &str) -> &str {
    if !text.starts_with("x-anthropic-billing-header") {
        return text;
    }
    let start = ["\n", "You are"].iter().filter_map(|pattern| text.find(pattern)).min();
    start.map_or("", |start| text[start..].trim_start())
}

impl RawCall {
    fn into_call(self) -> Call {
        let arguments = match self.function.arguments {
            Value::Object(arguments) => arguments,
            // What is no object is one parameter with the text as it came.
            Value::String(text) => serde_json::from_str(&text).unwrap_or_else(|_| single(text)),
            Value::Null => Map::new(),
            other => single(other.to_string()),
        };
        Call { id: self.id, name: self.function.name, arguments }
    }
}

fn single(text: String) -> Map<String, Value> {
    Map::from_iter([("arguments".to_owned(), Value::from(text))])
}

impl Tool {
    fn into_definition(self) -> Value {
        json!({
            "name": self.function.name,
            "description": self.function.description.unwrap_or_default(),
            "parameters": self.function.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}})),
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a str, path: &str) -> Result<T, RenderError> {
    serde_json::from_str(raw).map_err(|e| invalid(path, &e.to_string()))
}
