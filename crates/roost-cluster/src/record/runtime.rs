//! The engine's facts inside a model card.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::card::or_default;

/// `runtime_config` of a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuntimeConfig {
    /// The engine's context limit in tokens; 0 means unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u32>,
    /// KV blocks per rank.
    #[serde(default)]
    pub total_kv_blocks: Option<u64>,
    /// Concurrent sequences per rank.
    #[serde(default)]
    pub max_num_seqs: Option<u64>,
    /// Prefill tokens that one engine step takes.
    #[serde(default)]
    pub max_num_batched_tokens: Option<u64>,
    /// Tool-call parser that the frontend should use.
    #[serde(default)]
    pub tool_call_parser: Option<String>,
    /// Reasoning parser that the frontend should use.
    #[serde(default)]
    pub reasoning_parser: Option<String>,
    /// First data-parallel rank that this instance serves.
    #[serde(default, deserialize_with = "or_default")]
    pub data_parallel_start_rank: u32,
    /// Number of data-parallel ranks that this instance serves; at least 1.
    #[serde(default = "one")]
    pub data_parallel_size: u32,
    /// The worker answers recovery queries.
    #[serde(default = "yes")]
    pub enable_local_indexer: bool,
    /// The worker publishes KV events.
    #[serde(default, deserialize_with = "or_default")]
    pub kv_event_publishing_enabled: bool,
    /// Where decode workers fetch this prefill worker's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disaggregated_endpoint: Option<BootstrapEndpoint>,
    /// Blocks are hashed over a window one token longer than the block.
    #[serde(default, deserialize_with = "or_default")]
    pub enable_eagle: bool,
    /// Free facts of the engine.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Map::is_empty")]
    pub runtime_data: Map<String, Value>,
    /// Every key that is not a field above, in order.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            context_length: None,
            total_kv_blocks: None,
            max_num_seqs: None,
            max_num_batched_tokens: None,
            tool_call_parser: None,
            reasoning_parser: None,
            data_parallel_start_rank: 0,
            data_parallel_size: 1,
            enable_local_indexer: true,
            kv_event_publishing_enabled: false,
            disaggregated_endpoint: None,
            enable_eagle: false,
            runtime_data: Map::new(),
            other: Map::new(),
        }
    }
}

/// What a prefill worker asks of the decode worker that fetches its cache.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferConstraint {
    /// The taint that workers of its topology domain have.
    pub taint: String,
    /// How much such a worker is preferred; `None`: only such a worker will do.
    pub weight: Option<f64>,
}

impl RuntimeConfig {
    /// Properties of the worker by which requests choose, those of its topology included.
    pub fn taints(&self) -> impl Iterator<Item = &str> {
        self.other.get("taints").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// The worker's rule for where its cache may go, if it has a complete one.
    pub fn transfer_constraint(&self) -> Option<TransferConstraint> {
        let text = |name| self.other.get(name).and_then(Value::as_str);
        let domain = text("kv_transfer_domain")?;
        let value = self.other.get("topology_domains")?.get(domain)?.as_str()?;
        let weight = match text("kv_transfer_enforcement")? {
            "required" => None,
            "preferred" => Some(self.other.get("kv_transfer_preferred_weight")?.as_f64()?),
            _ => return None,
        };
        Some(TransferConstraint { taint: format!("dynamo.topology/{domain}={value}"), weight })
    }
}

/// Host and port at which a decode worker meets a prefill worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapEndpoint {
    /// Host.
    #[serde(default)]
    pub bootstrap_host: Option<String>,
    /// Port.
    #[serde(default)]
    pub bootstrap_port: Option<u16>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}
