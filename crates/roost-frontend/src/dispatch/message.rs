//! The request as each leg is to get it.

use roost_cluster::WorkerInfo;
use roost_kv::WorkerRank;
use roost_router::bootstrap_room;
use roost_wire::message::{BootstrapInfo, EngineRequest, PrefillResult, PromptTokens, RouterConfigOverride};
use uuid::Uuid;

/// What the workers before have done for a request.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    /// Prompt and answer so far.
    pub(super) tokens: PromptTokens,
    /// How many of them are answer.
    pub(super) generated: u32,
}

/// Where prefill and decode meet, and what the one knows for the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Handoff {
    /// Meeting place, when the prefill worker announces one.
    pub(super) bootstrap: Option<BootstrapInfo>,
    /// What the prefill worker said instead.
    pub(super) result: Option<PrefillResult>,
}

impl Progress {
    /// Nothing yet.
    pub(super) fn none(base: &EngineRequest) -> Self {
        Progress { tokens: base.token_ids.clone(), generated: 0 }
    }

    /// A prompt that goes on where the answer broke off.
    pub(super) fn of(base: &EngineRequest, answer: &[u32]) -> Self {
        let tokens = base.token_ids.iter().chain(answer).copied().collect();
        Progress { tokens, generated: u32::try_from(answer.len()).unwrap_or(u32::MAX) }
    }

    /// Prompt tokens of the next worker.
    pub(super) fn isl(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    /// The request for a worker that does all of it.
    pub(super) fn whole(&self, base: &EngineRequest, dp_rank: u32) -> EngineRequest {
        let mut request = base.clone();
        request.token_ids = self.tokens.clone();
        let stop = &mut request.stop_conditions;
        stop.max_tokens = stop.max_tokens.map(|max| max.saturating_sub(self.generated).max(1));
        stop.min_tokens = stop.min_tokens.map(|min| min.saturating_sub(self.generated));
        request.routing.get_or_insert_default().dp_rank = Some(dp_rank);
        request
    }

    /// The prefill leg: one token, which nobody reads.
    pub(super) fn prefill(&self, base: &EngineRequest, at: WorkerRank, handoff: &Handoff) -> EngineRequest {
        let mut request = self.whole(base, at.dp_rank);
        request.stop_conditions.max_tokens = Some(1);
        prefilled_at(&mut request, at);
        request.bootstrap_info.clone_from(&handoff.bootstrap);
        request
    }

    /// The decode leg.
    pub(super) fn decode(
        &self,
        base: &EngineRequest,
        dp_rank: u32,
        prefill: WorkerRank,
        handoff: &Handoff,
    ) -> EngineRequest {
        let mut request = self.whole(base, dp_rank);
        prefilled_at(&mut request, prefill);
        request.bootstrap_info.clone_from(&handoff.bootstrap);
        request.prefill_result.clone_from(&handoff.result);
        // Its prompt is computed elsewhere: that is how the choice was made, and the worker is told.
        request.router_config_override = Some(RouterConfigOverride {
            overlap_score_credit: Some(0.0),
            assume_kv_reuse: Some(false),
            track_prefill_tokens: Some(false),
            ..RouterConfigOverride::default()
        });
        request
    }
}

fn prefilled_at(request: &mut EngineRequest, at: WorkerRank) {
    let routing = request.routing.get_or_insert_default();
    routing.prefill_worker_id = Some(at.worker.0);
    routing.prefill_dp_rank = Some(at.dp_rank);
}

impl Handoff {
    /// A meeting place at a prefill worker that announces one; every call gives a room of its own.
    pub(super) fn at(worker: &WorkerInfo, dp_rank: u32) -> Self {
        let endpoint = worker.card.runtime_config.disaggregated_endpoint.as_ref();
        let place = endpoint.and_then(|at| Some((at.bootstrap_host.clone()?, at.bootstrap_port?)));
        let ranks = worker.card.runtime_config.data_parallel_size.max(1);
        let bootstrap = place.map(|(bootstrap_host, bootstrap_port)| BootstrapInfo {
            bootstrap_host,
            bootstrap_port,
            bootstrap_room: bootstrap_room(draw(), dp_rank, ranks),
            handoff_id: Some(Uuid::new_v4()),
        });
        Handoff { bootstrap, result: None }
    }

    /// What the first output of a prefill worker without a meeting place amounts to.
    pub(super) fn from_result(result: PrefillResult) -> Self {
        match serde_json::from_value::<BootstrapInfo>(result.disaggregated_params.clone()) {
            Ok(bootstrap) => Handoff { bootstrap: Some(bootstrap), result: None },
            Err(_) => Handoff { bootstrap: None, result: Some(result) },
        }
    }
}

/// 63 random bits from the operating system: a seed must never make two frontends draw the same rooms.
fn draw() -> u64 {
    // Of the lower half of a version 4 UUID all but the two highest bits are random; of the upper, the highest is.
    let (high, low) = Uuid::new_v4().as_u64_pair();
    (low & (u64::MAX >> 2)) | (high >> 63 << 62)
}

#[cfg(test)]
mod tests;
