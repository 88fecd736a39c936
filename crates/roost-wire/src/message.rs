//! What travels between a frontend and a worker, as data.

mod agent;
mod annotated;
mod control;
mod engine_output;
mod engine_request;
pub(crate) mod envelope;
mod error;
mod finish;
mod float;
mod options;
mod packed_ids;
mod prompt_tokens;
mod routing;
mod token_ids;
mod usage;

pub use agent::{AgentContext, InputTrigger};
pub use annotated::Annotated;
pub use control::{
    ConnectionInfo, ControlMessage, ControlSignal, HandshakeMessage, Prologue, ResponseAddress,
};
pub use engine_output::{EngineOutput, StopReason, TopLogprob};
pub use engine_request::{EngineRequest, PrefillResult, RouterTargets, TokenIdFormat, TraceLink};
pub use envelope::Envelope;
pub use error::{DynamoError, ErrorClass, PublicDetails, Reason};
pub use finish::FinishReason;
pub use options::{GuidedDecoding, OutputOptions, SamplingOptions, StopConditions};
pub use packed_ids::{PackedIds, Packer};
pub use prompt_tokens::PromptTokens;
pub use routing::{BootstrapInfo, RouterConfigOverride, Routing};
pub use token_ids::OutputTokens;
pub use usage::{CompletionUsage, PromptTokensDetails};

#[cfg(test)]
mod tests;
