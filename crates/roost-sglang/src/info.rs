//! What a server says about itself.

mod parse;

use std::time::Duration;

use roost_worker::Role;
use serde_json::Value;

use crate::{HttpError, Server};

/// Longest wait for each answer: the Python half of a busy server is slow.
const LIMIT: Duration = Duration::from_secs(20);

/// The facts of one server, in our terms.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerInfo {
    /// What a client writes in `model`.
    pub model_name: String,
    /// Folder or hub name of the weights.
    pub model_path: String,
    /// Folder or hub name of the tokenizer.
    pub tokenizer_path: String,
    /// The part of a request that it computes.
    pub role: Role,
    /// Longest sequence in tokens; 0 when it does not say.
    pub context_length: u32,
    /// Tokens per KV block, as in its events.
    pub block_size: u32,
    /// Data-parallel ranks, at least 1.
    pub dp_size: u32,
    /// KV capacity of each rank, tokens.
    pub max_total_tokens: u64,
    /// Requests that each rank runs at once.
    pub max_running_requests: u64,
    /// Tokens that each rank prefills in one step.
    pub max_prefill_tokens: u64,
    /// Chat template that the server was started with, a file or a name.
    pub chat_template: Option<String>,
    /// Tool-call parser by SGLang's name.
    pub tool_call_parser: Option<String>,
    /// Reasoning parser by SGLang's name.
    pub reasoning_parser: Option<String>,
    /// Port of the bootstrap server, on prefill servers.
    pub bootstrap_port: Option<u16>,
    /// Where its KV events are; `None` when it publishes none.
    pub kv_events: Option<KvEventSockets>,
    /// Whether KV pages are keyed by pairs of tokens (EAGLE-like speculation).
    pub bigram_keys: bool,
    /// Version of the server.
    pub version: String,
    /// What is not as one would want it, in words for the operator.
    pub remarks: Vec<String>,
}

/// Sockets of a server's KV events: a port for each rank, counted from the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventSockets {
    /// Host of the sockets when it is not the server's own.
    pub host: Option<String>,
    /// Port of rank 0.
    pub port_base: u16,
    /// Subject of the events; may be empty.
    pub topic: String,
    /// Port of rank 0 at which past events can be had.
    pub replay_port_base: Option<u16>,
    /// Port of rank 0 for load reports.
    pub load_port_base: Option<u16>,
    /// Subject of load reports.
    pub load_topic: String,
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InfoError {
    /// It does not answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// It answers, and cannot be used as it is.
    #[error("{url}: {reason}")]
    Unusable {
        /// The server.
        url: crate::ServerUrl,
        /// Why, and what to change.
        reason: String,
    },
}

impl ServerInfo {
    /// Asks a server about itself.
    ///
    /// # Errors
    /// It does not answer in time, or is no server that generates text.
    pub async fn read(server: &Server) -> Result<Self, InfoError> {
        let info: Value = match server.json("/server_info", LIMIT).await {
            // The name before 0.5.4.
            Err(HttpError::Status { status: 404, .. }) => server.json("/get_server_info", LIMIT).await?,
            answer => answer?,
        };
        let model: Value = match server.json("/model_info", LIMIT).await {
            Err(HttpError::Status { status: 404, .. }) => server.json("/get_model_info", LIMIT).await?,
            answer => answer?,
        };
        // The one place that tells the context length when the server was started without one.
        let models: Value = server.json("/v1/models", LIMIT).await.unwrap_or_default();
        parse::server_info(&info, &model, &models)
            .map_err(|reason| InfoError::Unusable { url: server.url().clone(), reason })
    }
}
