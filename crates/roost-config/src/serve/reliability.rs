//! Retries, moves of running requests, deadlines.

use std::time::Duration;

use crate::values::Values;

/// Retries, moves of running requests, and the deadlines of a request.
#[derive(Debug, Clone)]
pub struct ReliabilityOptions {
    /// Workers a request is tried on before its first token.
    pub attempts: usize,
    /// How often a request that has begun to answer may move to another worker.
    pub migration_limit: u32,
    /// Prompt and answer so far, in tokens, beyond which it does not move. `None`: no limit.
    pub migration_max_tokens: Option<u32>,
    /// From the call of a worker to the first token. `None`: no limit.
    pub first_token_timeout: Option<Duration>,
    /// From the end of the prefill leg to the first token of the decode leg. `None`: no limit.
    pub kv_transfer_timeout: Option<Duration>,
    /// Give whole requests to decode workers while there is no prefill worker.
    pub decode_without_prefill: bool,
}

impl ReliabilityOptions {
    pub(super) fn of(values: &Values) -> Self {
        ReliabilityOptions {
            attempts: values.size("dispatch-attempts"),
            migration_limit: values.u32("migration-limit"),
            migration_max_tokens: values.optional_u32("migration-max-seq-len"),
            first_token_timeout: values.duration_or_off("first-token-timeout-secs"),
            kv_transfer_timeout: values.duration_or_off("kv-transfer-timeout-secs"),
            decode_without_prefill: values.switch("decode-without-prefill"),
        }
    }
}
