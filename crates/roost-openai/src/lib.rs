//! The OpenAI API as data: requests are split and checked, answers are written as bytes.
//!
//! Knows nothing of the HTTP server, of workers or of async. Prompt-sized members (`messages`, `tools`)
//! stay slices of the request body; answers are written into a byte buffer without a JSON tree.

#[cfg(test)]
mod allocations;
mod answer;
mod blocks;
mod chat;
mod chunk;
mod completion;
mod controls;
mod conversation;
mod error;
mod fields;
mod generation;
mod json;
mod logprobs;
mod messages;
mod models;
mod nvext;
mod raw;
mod responses;
mod sampling;
mod usage;

pub use answer::{Answer, AnswerChoice, AnswerWriter, ToolCall};
pub use chat::{ChatRequest, Familiar, ToolChoice};
pub use chunk::{ChunkWriter, Finish, Flavor, Piece};
pub use completion::{CompletionRequest, MAX_PROMPTS, Prompt};
pub use controls::escape_controls;
pub use error::{ApiError, ErrorShape};
pub use fields::{FieldPolicy, Ignored};
pub use generation::Generation;
pub use logprobs::{Likely, TokenLogprob};
pub use messages::{MessageAnswer, MessageEvents, MessagesOptions, Purpose};
pub use models::{ModelEntry, write_model, write_model_list};
pub use nvext::{LatencyTargets, NvExt, RoutingConstraints, SessionAction, SessionControl};
pub use raw::Raw;
pub use responses::{ResponseAnswer, ResponseEcho, ResponseEvents};
pub use sampling::{Guided, Limits, Output, Sampling, Stop, StreamOptions};
pub use usage::Usage;
