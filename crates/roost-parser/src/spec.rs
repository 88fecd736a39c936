//! Which parsers a model has.

use std::sync::Arc;

use crate::dialect::{Dialect, ReasoningTags, Syntax};
use crate::names;
use crate::parser::Parser;
use crate::tools::{ToolChoice, Tools};

/// The pair of parsers of a model; cheap to copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct ParserSpec {
    tool: Option<(&'static str, &'static Dialect)>,
    reasoning: Option<(&'static str, &'static ReasoningTags)>,
}

/// Why a pair of names is no [`ParserSpec`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// Nobody knows the tool parser.
    #[error("unknown tool parser `{0}`")]
    Tool(String),
    /// Nobody knows the reasoning parser.
    #[error("unknown reasoning parser `{0}`")]
    Reasoning(String),
    /// Dynamo has it, this crate has not.
    #[error("tool parser `{0}` is not available here")]
    ToolNotBuilt(String),
    /// Dynamo has it, this crate has not.
    #[error("reasoning parser `{0}` is not available here")]
    ReasoningNotBuilt(String),
    /// Channels carry reasoning and calls at once: `gpt_oss` goes with `harmony` or with none.
    #[error("tool parser `{tool}` and reasoning parser `{reasoning}` do not go together")]
    Pair {
        /// Name of the tool parser.
        tool: String,
        /// Name of the reasoning parser.
        reasoning: String,
    },
}

/// What a request and its prompt say about the answer.
#[derive(Debug, Clone, Default)]
pub struct ToolContext {
    /// Tools the request offers; without any, call markup is text.
    pub tools: Arc<Tools>,
    /// Whether and how the model may call them.
    pub tool_choice: ToolChoice,
    /// `parallel_tool_calls: false`: calls after the first are left out.
    pub single_call: bool,
    /// Where the prompt leaves the answer, see [`ParserSpec::prompt_end`].
    pub prompt_end: PromptEnd,
}

/// Where a prompt ends, seen from the reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PromptEnd {
    /// It does not say: the family's habit holds.
    #[default]
    Plain,
    /// Inside the reasoning.
    Reasoning,
    /// Behind closed reasoning: there is none in the answer unless it opens one.
    Answer,
    /// Inside a message header or body of channel syntax; its text.
    Channel(String),
}

impl ParserSpec {
    /// The parsers of these names, Dynamo's or SGLang's; `None` is off.
    ///
    /// # Errors
    /// When a name is unknown, not available here, or the two do not go together.
    pub fn by_name(tool: Option<&str>, reasoning: Option<&str>) -> Result<Self, UnknownName> {
        let spec = ParserSpec {
            tool: tool.map(names::tool).transpose()?,
            reasoning: reasoning.map(names::reasoning).transpose()?,
        };
        if let (Some((tool, dialect)), Some((reasoning, tags))) = (spec.tool, spec.reasoning)
            && matches!(dialect.syntax, Syntax::Channels) != tags.opens.is_empty()
        {
            return Err(UnknownName::Pair { tool: tool.to_owned(), reasoning: reasoning.to_owned() });
        }
        Ok(spec)
    }

    /// Name of the tool parser, in the spelling this crate uses.
    pub fn tool_name(&self) -> Option<&'static str> {
        self.tool.map(|(name, _)| name)
    }

    /// Name of the reasoning parser, in the spelling this crate uses.
    pub fn reasoning_name(&self) -> Option<&'static str> {
        self.reasoning.map(|(name, _)| name)
    }

    /// Whether there is neither.
    pub fn is_off(&self) -> bool {
        self.tool.is_none() && self.reasoning.is_none()
    }

    /// Whether the marks are special tokens, so that the text must be decoded with `skip_special_tokens: false`.
    pub fn needs_special_tokens(&self) -> bool {
        self.tool.is_some_and(|(_, dialect)| dialect.special)
            || self.reasoning.is_some_and(|(_, tags)| tags.special)
    }

    /// Whether an answer of constrained decoding may begin with reasoning (`require_reasoning` for the engine).
    pub fn reasons(&self) -> bool {
        self.reasoning.is_some()
    }

    /// Reads where a rendered prompt ends. The last few hundred bytes of it are enough.
    pub fn prompt_end(&self, prompt: &str) -> PromptEnd {
        if self.is_channels() {
            let header = prompt.rfind("<|start|>").map(|at| &prompt[at..]).unwrap_or_default();
            return if header.contains("<|channel|>") {
                PromptEnd::Channel(header.to_owned())
            } else {
                PromptEnd::Plain
            };
        }
        let Some((_, tags)) = self.reasoning else { return PromptEnd::Plain };
        let prompt = prompt.trim_end();
        if tags.opens.iter().any(|open| prompt.ends_with(open)) {
            PromptEnd::Reasoning
        } else if tags.closes.iter().any(|close| prompt.ends_with(close)) {
            PromptEnd::Answer
        } else {
            PromptEnd::Plain
        }
    }

    /// Starts parsing one choice of an answer.
    pub fn start(&self, context: &ToolContext) -> Parser {
        Parser::new(self, context)
    }

    pub(crate) fn dialect(&self) -> Option<&'static Dialect> {
        self.tool.map(|(_, dialect)| dialect)
    }

    pub(crate) fn reasoning(&self) -> Option<&'static ReasoningTags> {
        self.reasoning.map(|(_, tags)| tags)
    }

    pub(crate) fn is_channels(&self) -> bool {
        self.dialect().is_some_and(|dialect| matches!(dialect.syntax, Syntax::Channels))
            || self.reasoning().is_some_and(|tags| tags.opens.is_empty())
    }
}
