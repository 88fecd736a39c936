//! `GET /console/state`: one document with everything the console and `roost top` show.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use roost_router::{RankSnapshot, SessionView, Snapshot, Stats};
use serde::Serialize;
use serde_json::{Value, json};

use super::alarms::{self, PoolFacts, Turns};
use crate::explain::{self, DecisionView};
use crate::metrics::{Curves, Distribution};
use crate::models::Pool;
use crate::reply;
use crate::shared::Shared;

/// Sessions and decisions in one document.
const LIMIT: usize = 64;

/// All of it, in this order.
#[derive(Serialize)]
struct Document {
    at_ms: u64,
    state: &'static str,
    affinity: bool,
    curves: Value,
    events: Value,
    pools: Vec<Value>,
    decisions: Vec<DecisionView>,
    alarms: Vec<Value>,
}

/// The document; sessions are those with `part` in their names.
pub(super) fn answer(shared: &Shared, part: &str) -> Response {
    let registry = shared.models.snapshot();
    let (mut pools, mut facts) = (Vec::new(), Vec::new());
    for (model, version, pool) in &registry.pools {
        let snapshot = pool.router.snapshot();
        let sessions = pool.router.sessions(part, LIMIT);
        pools.push(json!({
            "model": **model,
            "version": **version,
            "role": explain::role_name(pool.router.role()),
            "bindings": snapshot.bindings,
            "waiting_bindings": snapshot.waiting_bindings,
            "active_requests": snapshot.active_requests,
            "queued_requests": snapshot.queue.requests,
            "counts": counts(&snapshot.stats),
            "index": index(pool),
            "ranks": ranks(pool, &snapshot),
            "sessions": {
                "found": sessions.found,
                "longest": sessions.longest.iter().map(session).collect::<Vec<_>>(),
            },
        }));
        let silent = pool.engines().instances().filter(|i| pool.is_silent(i.info.worker)).count();
        let turns = pool.router.has_affinity().then(|| {
            let latest = pool.router.recent_decisions(alarms::WINDOW);
            Turns::of(latest.iter().map(|made| &**made))
        });
        facts.push(PoolFacts { model: model.to_string(), role: pool.router.role(), snapshot, silent, turns });
    }
    let cluster = shared.cluster.stats();
    let alarms = alarms::of(
        &facts,
        &alarms::ClusterFacts {
            store_unreachable: cluster.store_unreachable,
            ranks_with_holes: cluster.ranks_with_holes,
            is_leaving: shared.is_leaving(),
        },
    );
    let state = if shared.is_leaving() {
        "draining"
    } else if registry.ready.is_empty() {
        "starting"
    } else {
        "ready"
    };
    let body = Document {
        at_ms: reply::unix_ms(),
        state,
        affinity: shared.config.route.router.affinity.ttl.is_some(),
        curves: curves(&shared.metrics.curves()),
        events: json!({
            "applied": cluster.kv_events,
            "gaps": cluster.kv_gaps,
            "recoveries": cluster.recoveries,
            "recoveries_failed": cluster.recoveries_failed,
            "lag_ms": cluster.kv_lag_ms,
        }),
        pools,
        decisions: explain::latest(shared, LIMIT),
        alarms: alarms.iter().map(alarms::Alarm::json).collect(),
    };
    reply::serialized(StatusCode::OK, &body)
}

fn counts(stats: &Stats) -> Value {
    let rejected =
        stats.rejected_overloaded + stats.rejected_queue_full + stats.rejected_waited + stats.rejected_other;
    json!({
        "placed": stats.placed,
        "rejected": rejected,
        "affinity_hits": stats.affinity_hits,
        "affinity_new": stats.affinity_new,
        "rebinds": stats.rebinds.iter().sum::<u64>(),
        "best_cached_tokens": stats.best_cached_tokens,
        "selected_cached_tokens": stats.selected_cached_tokens,
    })
}

fn index(pool: &Pool) -> Value {
    let stats = pool.index.stats();
    json!({"blocks": stats.blocks, "residencies": stats.residencies, "bytes": stats.bytes})
}

fn ranks(pool: &Pool, snapshot: &Snapshot) -> Vec<Value> {
    let engines = pool.engines();
    let rank = |rank: &RankSnapshot| {
        let info = engines.get(rank.rank.worker).and_then(|engine| engine.instances().first());
        let silent = info.is_some_and(|i| pool.is_silent(i.info.worker));
        json!({
            "worker": format!("{:x}", rank.rank.worker.0),
            "dp_rank": rank.rank.dp_rank,
            "address": info.map(|i| i.info.target.address.to_string()),
            "sessions": rank.bindings,
            "active_requests": rank.active_requests,
            "prefill_tokens": rank.prefill_tokens,
            "active_blocks": rank.active_blocks,
            "used_blocks": rank.used_blocks,
            "total_blocks": rank.total_blocks,
            "placed": rank.placed,
            "asked_tokens": rank.asked_tokens,
            "cached_tokens": rank.cached_tokens,
            "state": alarms::state_of(rank),
            "events": !silent,
        })
    };
    snapshot.ranks.iter().map(rank).collect()
}

fn session(view: &SessionView) -> Value {
    let seconds = |duration: Duration| duration.as_secs();
    json!({
        "session": view.session,
        "worker": format!("{:x}", view.rank.worker.0),
        "dp_rank": view.rank.dp_rank,
        "running": view.running,
        "turns": view.turns,
        "rebinds": view.rebinds,
        "context_tokens": view.context_tokens,
        "hit_rate": view.hit_rate,
        "bound_for_s": seconds(view.bound_for),
        "idle_s": seconds(view.idle),
    })
}

fn curves(curves: &Curves) -> Value {
    json!({
        "active": curves.active,
        "succeeded": curves.succeeded,
        "failed": curves.failed,
        "output_tokens": curves.output_tokens,
        "ttft_s": distribution(&curves.time_to_first_token),
        "itl_s": distribution(&curves.inter_token_latency),
    })
}

fn distribution(of: &Distribution) -> Value {
    json!({"bounds": of.bounds, "cumulative": of.cumulative, "count": of.count})
}
