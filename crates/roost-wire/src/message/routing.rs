use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// Where a request is sent and with what rank and priority; unset keys are omitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Routing {
    /// The worker that the client asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_instance_id: Option<u64>,
    /// The chosen prefill worker, on both legs of a disaggregated request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_worker_id: Option<u64>,
    /// The decode worker that the client asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode_worker_id: Option<u64>,
    /// Data-parallel rank on the receiving worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_rank: Option<u32>,
    /// Data-parallel rank on the prefill worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_dp_rank: Option<u32>,
    /// Hint at the number of tokens that will be generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output_tokens: Option<u32>,
    /// LoRA adapter to apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora_name: Option<String>,
    /// Name that isolates cached blocks from those of other tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
    /// Seconds by which the request counts as having arrived earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_jump: Option<f64>,
    /// Tier in the router's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_priority: Option<u32>,
    /// Priority inside the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Workers that may be chosen; all when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_worker_ids: Option<Vec<u64>>,
    /// Taints that a worker must or should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing_constraints: Option<Value>,
}

/// Router settings for one request; every key is sent, null when unset.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterConfigOverride {
    /// Weight of cached blocks.
    pub overlap_score_credit: Option<f64>,
    /// Weight of prefill load.
    pub prefill_load_scale: Option<f64>,
    /// Randomness of the choice, 0 for none.
    pub router_temperature: Option<f64>,
    /// Assume that a chosen worker keeps the blocks.
    pub assume_kv_reuse: Option<bool>,
    /// Count prompt tokens as load.
    pub track_prefill_tokens: Option<bool>,
    /// Weight of blocks in a shared cache.
    pub shared_cache_multiplier: Option<f64>,
}

/// Where the decode engine fetches the blocks that the prefill engine computes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapInfo {
    /// Host of the prefill engine's bootstrap server.
    pub bootstrap_host: String,
    /// Port of the prefill engine's bootstrap server.
    pub bootstrap_port: u16,
    /// Room of this request, below 2⁶³.
    pub bootstrap_room: u64,
    /// Identity of the hand-over: 16 bytes in MessagePack, text in JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_id: Option<Uuid>,
}
