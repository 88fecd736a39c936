//! What a request says about tools: constrained decoding for the engine, a parser for the answer.

use roost_openai::{ApiError, ChatRequest, ToolChoice};
use roost_parser::{ToolContext, Tools, guided_schema};

use crate::models::Model;

/// Ids at the end of a prompt that show whether it leaves the answer inside the reasoning.
const TAIL_IDS: usize = 64;

/// The tool side of one chat request.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    context: ToolContext,
    /// JSON schema that the answer must follow.
    pub(crate) schema: Option<serde_json::Value>,
    /// The answer may reason before the schema holds.
    pub(crate) require_reasoning: bool,
}

impl Calls {
    /// Reads tools and choice; the choice must name one of the tools.
    pub(crate) fn of(request: &ChatRequest, model: &Model) -> Result<Self, ApiError> {
        let spec = &model.assets.parsers;
        let choice = match &request.tool_choice {
            ToolChoice::Auto => roost_parser::ToolChoice::Auto,
            ToolChoice::None => roost_parser::ToolChoice::None,
            ToolChoice::Required => roost_parser::ToolChoice::Required,
            ToolChoice::Named(name) => roost_parser::ToolChoice::Named(name.clone()),
        };
        let tools = match &request.tools {
            Some(raw) => Tools::parse(raw.as_str())
                .map_err(|e| ApiError::invalid("tools", format!("Failed to deserialize `tools`: {e}")))?,
            None => Tools::default(),
        };
        if let Some(tool) = tools.iter().find(|tool| !is_name(&tool.name)) {
            let shown: String = tool.name.chars().take(128).collect();
            return Err(ApiError::invalid(
                "tools",
                format!(
                    "Validation: `{shown}` is no name of a function: 1 to 128 letters, digits, `_`, `-`, `.`, `:` and `/`"
                ),
            ));
        }
        if let ToolChoice::Named(name) = &request.tool_choice
            && tools.get(name).is_none()
        {
            let shown: String = name.chars().take(128).collect();
            return Err(ApiError::invalid("tool_choice", format!("Validation: no tool is named `{shown}`")));
        }
        let schema = guided_schema(&tools, &choice)
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|e| ApiError::invalid("tools", format!("A tool's schema cannot be read: {e}")))?;
        let guided = &request.generation.sampling.guided;
        let constrained = schema.is_some() || guided.json.is_some() || guided.structural_tag.is_some();
        Ok(Calls {
            context: ToolContext {
                tools: tools.into(),
                tool_choice: choice,
                single_call: request.parallel_tool_calls == Some(false),
                ..ToolContext::default()
            },
            schema,
            require_reasoning: constrained && spec.reasons(),
        })
    }

    /// What parsers for the answer to a prompt start from, when there is anything to read in it.
    pub(crate) fn parse(mut self, model: &Model, prompt: &[u32]) -> Option<ToolContext> {
        let spec = &model.assets.parsers;
        if spec.is_off() && self.schema.is_none() {
            return None;
        }
        let tail = &prompt[prompt.len().saturating_sub(TAIL_IDS)..];
        self.context.prompt_end = spec.prompt_end(&model.assets.tokenizer.decode(tail, false));
        Some(self.context)
    }
}

/// OpenAI's names, and those that agents make of the names of servers and their tools.
fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'/');
    (1..=128).contains(&name.len()) && name.bytes().all(known)
}
