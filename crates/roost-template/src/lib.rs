//! Messages, tools and a chat template to prompt text, with Hugging Face semantics. Knows nothing of tokens or HTTP.
//!
//! - [`ChatTemplate`]: the template of one model, compiled once; [`render`](ChatTemplate::render) per request.
//! - [`Trace`], [`Turn`], [`Continued`]: rendering only what a conversation has gained since its last turn.
//! - [`TemplateFiles`]: where the template comes from; [`DeepSeekStyle`] for models whose prompts are built by code.
//! - [`ThinkingControls`]: the request's reasoning controls as template arguments.

mod capabilities;
mod deepseek;
mod engine;
mod error;
mod files;
mod incremental;
mod messages;
mod prompt;
mod syntax;
mod template;
mod thinking;

pub use capabilities::{Capabilities, ReasoningKey};
pub use deepseek::DeepSeekStyle;
pub use error::{LoadError, RenderError};
pub use files::TemplateFiles;
pub use incremental::{Continued, Trace, Turn};
pub use messages::BrokenArguments;
pub use prompt::{Prompt, Segment};
pub use template::{ChatTemplate, RenderInput};
pub use thinking::ThinkingControls;

#[cfg(test)]
mod test_files;
