//! DeepSeek V3.2, V4 and V4.1, whose prompts are built by code: the publisher ships no template.
//!
//! The rendering follows the publisher's encoders, or Dynamo's where that is asked for. Their fixed wording is part of
//! the models' training format, not ours to change. Control tokens and ordinary text are told apart in [`Prompt::segments`], so that text which
//! spells a control token stays text.

mod builder;
mod continued;
mod conversation;
mod dump;
mod dynamo;
mod tools;
mod v32;
mod v4;
mod v41;

use crate::error::RenderError;
use crate::incremental::Digester;
use crate::prompt::Prompt;
use crate::template::RenderInput;
use builder::Rendered;
use conversation::{Conversation, Reading};

/// Whose rendering of conversations is followed, where there is a choice. They differ in rare shapes of conversations
/// only: one that ends with an answer, system text in the middle, several text parts, and a few spellings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeepSeekStyle {
    /// The publisher's encoder, which SGLang's own server uses. Text that spells a control token stays text.
    #[default]
    Publisher,
    /// Dynamo's frontend, for prompts equal to its. Text that spells a control token becomes one.
    Dynamo,
}

/// Which of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeepSeek {
    V32,
    V4,
    V41,
}

impl DeepSeek {
    /// By `model_type` of `config.json`; by the model's name only where there is no type.
    pub(crate) fn detect(model_type: &str, name: &str) -> Option<Self> {
        match model_type.to_ascii_lowercase().as_str() {
            "deepseek_v4" => Some(Self::V4),
            "deepseek_v41" => Some(Self::V41),
            "deepseek_v32" | "deepseek_v3_2" => Some(Self::V32),
            "" => Self::detect_name(&name.to_ascii_lowercase()),
            _ => None,
        }
    }

    fn detect_name(name: &str) -> Option<Self> {
        let version = name.strip_prefix("deepseek")?.trim_start_matches(['-', '_', '.']);
        if version.starts_with("v3.2") {
            return Some(Self::V32);
        }
        let version = version.strip_prefix("v4")?;
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['-', '_', '.']);
        match version.strip_prefix(".1") {
            Some(rest) => ends(rest).then_some(Self::V41),
            None => ends(version).then_some(Self::V4),
        }
    }

    /// Whether a template among the model's files goes before the code: the experimental V3.2 has one.
    pub(crate) fn yields_to_template(self) -> bool {
        self == Self::V32
    }
}

/// One of the formats in one style.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    format: DeepSeek,
    style: DeepSeekStyle,
    digester: Digester,
}

impl BuiltIn {
    pub(crate) fn new(format: DeepSeek, style: DeepSeekStyle) -> Self {
        Self { format, style, digester: Digester::default() }
    }

    pub(crate) fn render(&self, input: &RenderInput<'_>) -> Result<Prompt, RenderError> {
        Ok(self.write(Conversation::read(input, self.reading())?).prompt)
    }

    pub(crate) fn keeps_text_apart(&self) -> bool {
        self.style == DeepSeekStyle::Publisher
    }

    fn reading(&self) -> Reading {
        match (self.format, self.style) {
            (DeepSeek::V4, DeepSeekStyle::Dynamo) => Reading { separator: "", has_developer: true },
            (DeepSeek::V32, _) => Reading { separator: "", has_developer: true },
            _ => Reading { separator: "\n\n", has_developer: false },
        }
    }

    fn write(&self, conversation: Conversation) -> Rendered {
        let mut rendered = match (self.format, self.style) {
            (DeepSeek::V32, style) => v32::render(&conversation, style),
            (DeepSeek::V4, DeepSeekStyle::Publisher) => v4::render(conversation),
            (DeepSeek::V41, DeepSeekStyle::Publisher) => v41::render(conversation),
            (DeepSeek::V4 | DeepSeek::V41, DeepSeekStyle::Dynamo) => {
                dynamo::render(conversation, self.format)
            }
        };
        if self.style == DeepSeekStyle::Dynamo {
            rendered.prompt.segments = None;
        }
        rendered
    }
}

#[cfg(test)]
mod tests;
