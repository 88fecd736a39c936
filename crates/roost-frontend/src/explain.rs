//! `GET /debug/routing` and `GET /debug/routing/{request or session}`: why requests went where they went.

use std::time::Instant;

use axum::response::Response;
use bytes::BytesMut;
use http::StatusCode;
use roost_kv::WorkerRank;
use roost_openai::ApiError;
use roost_router::{AffinityOutcome, Candidate, Decision, Outcome, Role};
use serde_json::{Value, json};

use crate::reply;
use crate::shared::Shared;

/// Decisions in one answer.
const LIMIT: usize = 64;

/// The latest decisions of every pool.
pub(crate) fn recent(shared: &Shared) -> Response {
    answer(&json!({"decisions": latest(shared, LIMIT)}))
}

/// At most so many of the latest decisions of every pool, the latest first.
pub(crate) fn latest(shared: &Shared, limit: usize) -> Vec<Value> {
    let registry = shared.models.snapshot();
    let mut decisions = Vec::new();
    for (model, _, pool) in &registry.pools {
        let role = pool.router.role();
        decisions.extend(pool.router.recent_decisions(limit).into_iter().map(|made| (model, role, made)));
    }
    decisions.sort_by_key(|(.., decision)| std::cmp::Reverse(decision.at));
    decisions.truncate(limit);
    decisions.iter().map(|(model, role, decision)| decision_json(model, *role, decision)).collect()
}

/// The decisions about a request (by the id of its answer, or the bare one) or a session, the latest first.
pub(crate) fn about(shared: &Shared, name: &str) -> Response {
    let bare = name.strip_prefix("chatcmpl-").or_else(|| name.strip_prefix("cmpl-")).unwrap_or(name);
    let registry = shared.models.snapshot();
    let now = Instant::now();
    let (mut decisions, mut bindings) = (Vec::new(), Vec::new());
    for (model, _, pool) in &registry.pools {
        let role = pool.router.role();
        let mut found = pool.router.decisions_about(name, LIMIT);
        if bare != name {
            found.extend(pool.router.decisions_about(bare, LIMIT));
        }
        decisions.extend(found.into_iter().map(|made| (model, role, made)));
        if let Some(rank) = pool.router.bound(name) {
            bindings.push(json!({"model": **model, "role": role_name(role), "worker": rank_json(rank)}));
        }
    }
    if decisions.is_empty() && bindings.is_empty() {
        let shown: String = name.chars().take(256).collect();
        let text = format!(
            "No routing decision is kept about a request or session `{shown}`. The latest {} decisions of each pool are.",
            shared.config.route.router.decisions
        );
        return reply::error(&ApiError::new(404, text), shared.config.http.error_shape);
    }
    decisions.sort_by_key(|(.., decision)| now.saturating_duration_since(decision.at));
    decisions.truncate(LIMIT);
    let decisions = decisions.iter().map(|(model, role, decision)| decision_json(model, *role, decision));
    answer(&json!({"id": name, "bound": bindings, "decisions": decisions.collect::<Vec<Value>>()}))
}

fn answer(body: &Value) -> Response {
    reply::json(StatusCode::OK, BytesMut::from(body.to_string().as_bytes()))
}

fn decision_json(model: &str, role: Role, decision: &Decision) -> Value {
    let (outcome, rank, reason, error) = match decision.outcome {
        Outcome::Placed { rank, reason } => ("placed", Some(rank), Some(reason.label()), None),
        Outcome::Rejected(rejection) => ("rejected", None, None, Some(rejection.to_string())),
    };
    let moved = match decision.affinity {
        AffinityOutcome::Rebound(reason) => Some(reason.label()),
        _ => None,
    };
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    json!({
        "model": model,
        "role": role_name(role),
        "number": decision.number,
        "age_ms": u64::try_from(decision.at.elapsed().as_millis()).unwrap_or(u64::MAX),
        "request": name(&decision.request),
        "session": name(&decision.session),
        "isl_tokens": decision.isl_tokens,
        "block_size": decision.block_size,
        "priority": decision.priority,
        "outcome": outcome,
        "worker": rank.map(rank_json),
        "reason": reason,
        "error": error,
        "affinity": {
            "outcome": decision.affinity.label(),
            "moved_because": moved,
            "bound_before": decision.bound.map(rank_json),
        },
        "considered": decision.considered,
        "candidates": decision.candidates.iter().map(|one| candidate_json(one, rank)).collect::<Vec<_>>(),
    })
}

fn candidate_json(candidate: &Candidate, chosen: Option<WorkerRank>) -> Value {
    let Candidate { rank, overlap, load, terms, preference } = candidate;
    json!({
        "worker": rank_json(*rank),
        "chosen": chosen == Some(*rank),
        "overlap_blocks": {
            "device": overlap.device,
            "host": overlap.host,
            "disk": overlap.disk,
            "external": overlap.external,
        },
        "load": {
            "prefill_tokens": load.prefill_tokens,
            "active_blocks": load.active_blocks,
            "active_requests": load.active_requests,
            "additional_blocks": load.additional_blocks,
        },
        "preference": preference,
        "cost": {
            "prefill": terms.prefill,
            "decode": terms.decode,
            "requests": terms.requests,
            "preference": terms.preference,
            "future": terms.future,
            "bonus": terms.bonus,
            "total": terms.total(),
        },
    })
}

fn rank_json(rank: WorkerRank) -> Value {
    json!({"id": rank.worker.0, "hex": format!("{:x}", rank.worker.0), "dp_rank": rank.dp_rank})
}

/// A role in one word.
pub(crate) const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Aggregated => "aggregated",
        Role::Prefill => "prefill",
        Role::Decode => "decode",
    }
}
