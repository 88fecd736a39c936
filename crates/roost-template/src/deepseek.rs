//! DeepSeek V4 and V4.1, whose prompts are built by code: the publisher ships no template.
//!
//! The rendering follows the publisher's encoder. Its fixed wording is part of the model's training format, not
//! ours to change. Control tokens and ordinary text are told apart in [`Prompt::segments`], so that text which
//! spells a control token stays text.

mod builder;
mod conversation;
mod dump;
mod tools;
mod v4;
mod v41;

use crate::error::RenderError;
use crate::prompt::Prompt;
use crate::template::RenderInput;
use conversation::Conversation;

/// Which of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeepSeek {
    V4,
    V41,
}

impl DeepSeek {
    /// By `model_type` of `config.json`; by the model's name only where there is no type.
    pub(crate) fn detect(model_type: &str, name: &str) -> Option<Self> {
        match model_type.to_ascii_lowercase().as_str() {
            "deepseek_v4" => Some(Self::V4),
            "deepseek_v41" => Some(Self::V41),
            "" => Self::detect_name(&name.to_ascii_lowercase()),
            _ => None,
        }
    }

    fn detect_name(name: &str) -> Option<Self> {
        let version =
            name.strip_prefix("deepseek")?.trim_start_matches(['-', '_', '.']).strip_prefix("v4")?;
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['-', '_', '.']);
        match version.strip_prefix(".1") {
            Some(rest) => ends(rest).then_some(Self::V41),
            None => ends(version).then_some(Self::V4),
        }
    }

    pub(crate) fn render(self, input: &RenderInput<'_>) -> Result<Prompt, RenderError> {
        let conversation = Conversation::read(input)?;
        Ok(match self {
            Self::V4 => v4::render(conversation),
            Self::V41 => v41::render(conversation),
        })
    }
}

#[cfg(test)]
mod tests;
