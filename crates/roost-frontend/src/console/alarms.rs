//! What an operator should know, in words.

use std::time::Duration;

use roost_router::{AffinityOutcome, Decision, Outcome, RankSnapshot, Role, Snapshot};
use serde_json::{Value, json};

use crate::explain;

/// The store may be away for so long before it is told.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
/// Running requests that make a rank a hot spot, if it has also so many times the mean of its pool.
const HOT_REQUESTS: u32 = 8;
const HOT_RATIO: f64 = 2.5;
/// Decisions of a pool that are looked at: what was long ago is no alarm any more.
pub(super) const WINDOW: usize = 256;
/// Placements among them before the share of requests without a session says something.
const ENOUGH: usize = 20;
/// Share of requests without a session that is told, percent.
const SESSIONLESS_PERCENT: usize = 20;

/// One alarm.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    /// `critical`: requests fail or will; `warning`: they cost more than they should.
    level: &'static str,
    /// A name for machines.
    code: &'static str,
    text: String,
}

/// What is known of a pool.
pub(super) struct PoolFacts {
    pub(super) model: String,
    pub(super) role: Role,
    pub(super) snapshot: Snapshot,
    /// Workers whose KV events ought to come and do not.
    pub(super) silent: usize,
    /// What sessions had to do with the latest placements; `None` where they are not bound.
    pub(super) turns: Option<Turns>,
}

/// The latest placements of a pool that binds sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    placed: usize,
    /// Of those, without a session.
    unnamed: usize,
    /// Of those, of a session that the table had no place for.
    unbound: usize,
}

/// What is known beside the pools.
pub(super) struct ClusterFacts {
    pub(super) store_unreachable: Duration,
    pub(super) ranks_with_holes: u64,
    pub(super) is_leaving: bool,
}

impl Turns {
    /// Counts them.
    pub(super) fn of<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> Self {
        let mut turns = Turns::default();
        for made in decisions {
            if matches!(made.outcome, Outcome::Placed { .. }) {
                turns.placed += 1;
                turns.unnamed += usize::from(made.session.is_empty());
                turns.unbound += usize::from(made.affinity == AffinityOutcome::TableFull);
            }
        }
        turns
    }
}

impl Alarm {
    pub(super) fn json(&self) -> Value {
        json!({"level": self.level, "code": self.code, "text": self.text})
    }
}

/// The state of a rank in one word, the worst first.
pub(super) fn state_of(rank: &RankSnapshot) -> &'static str {
    match rank {
        RankSnapshot { draining: true, .. } => "draining",
        RankSnapshot { quarantined: true, .. } => "quarantined",
        RankSnapshot { busy: true, .. } => "busy",
        _ => "ready",
    }
}

/// All alarms of a moment, the critical ones first.
pub(super) fn of(pools: &[PoolFacts], cluster: &ClusterFacts) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let mut tell = |level, code, text: String| alarms.push(Alarm { level, code, text });
    if cluster.is_leaving {
        tell(
            "warning",
            "draining",
            "This frontend is going down: running answers end, new requests are refused.".into(),
        );
    }
    if pools.iter().all(|pool| pool.snapshot.ranks.is_empty()) {
        tell("critical", "no_workers", "No worker is known: every request is refused.".into());
    }
    if cluster.store_unreachable >= STORE_PATIENCE {
        let seconds = cluster.store_unreachable.as_secs();
        tell(
            "critical",
            "store_unreachable",
            format!(
                "The discovery store has not answered for {seconds} s. What is known of the workers still serves; no worker can join."
            ),
        );
    }
    if cluster.ranks_with_holes > 0 {
        tell(
            "warning",
            "event_gaps",
            format!(
                "KV events of {} ranks were lost and could not be asked for again: their cache is known in part only.",
                cluster.ranks_with_holes
            ),
        );
    }
    for pool in pools {
        of_pool(pool, &mut tell);
    }
    alarms.sort_by_key(|alarm| alarm.level != "critical");
    alarms
}

fn of_pool(pool: &PoolFacts, tell: &mut impl FnMut(&'static str, &'static str, String)) {
    let PoolFacts { model, role, snapshot, silent, turns } = pool;
    let name = format!("{model} ({})", explain::role_name(*role));
    let ranks = &snapshot.ranks;
    let count = |state: &str| ranks.iter().filter(|rank| state_of(rank) == state).count();
    let unfit = count("quarantined") + count("draining");
    if !ranks.is_empty() && unfit == ranks.len() {
        tell(
            "critical",
            "no_healthy_worker",
            format!("{name}: every rank has failed lately or is going down."),
        );
    } else if count("quarantined") > 0 {
        tell(
            "warning",
            "quarantined",
            format!(
                "{name}: {} of {} ranks failed lately and are avoided.",
                count("quarantined"),
                ranks.len()
            ),
        );
    }
    if !ranks.is_empty() && count("busy") == ranks.len() {
        tell(
            "critical",
            "all_busy",
            format!("{name}: every rank is over its busy threshold, requests are refused."),
        );
    }
    if *silent > 0 {
        tell(
            "warning",
            "silent_workers",
            format!(
                "{name}: {silent} workers publish no KV events, so their cache is guessed. Start them with a KV event publisher."
            ),
        );
    }
    if snapshot.queue.requests > 0 {
        tell("warning", "queue", format!("{name}: {} requests wait for room.", snapshot.queue.requests));
    }
    for rank in hot_spots(ranks) {
        tell(
            "warning",
            "hot_spot",
            format!(
                "{name}: worker {:x} rank {} runs {} requests, far more than the others.",
                rank.rank.worker.0, rank.rank.dp_rank, rank.active_requests
            ),
        );
    }
    if let Some(turns) = turns {
        of_turns(&name, turns, tell);
    }
}

fn of_turns(name: &str, turns: &Turns, tell: &mut impl FnMut(&'static str, &'static str, String)) {
    let Turns { placed, unnamed, unbound } = *turns;
    if placed >= ENOUGH && unnamed * 100 > placed * SESSIONLESS_PERCENT {
        tell(
            "warning",
            "no_session_header",
            format!(
                "{name}: {unnamed} of the latest {placed} requests named no session, so nothing brings their next turns home. \
                 Have clients send X-Dynamo-Session-ID."
            ),
        );
    }
    if unbound > 0 {
        tell(
            "warning",
            "table_full",
            format!(
                "{name}: {unbound} of the latest {placed} requests were served unbound because the table of sessions was full of running ones."
            ),
        );
    }
}

/// Ranks that run far more than the mean of the others.
fn hot_spots(ranks: &[RankSnapshot]) -> impl Iterator<Item = &RankSnapshot> {
    let all: u32 = ranks.iter().map(|rank| rank.active_requests).sum();
    ranks.iter().filter(move |rank| {
        let others = ranks.len().saturating_sub(1);
        others > 0
            && rank.active_requests >= HOT_REQUESTS
            && f64::from(rank.active_requests)
                > HOT_RATIO * (f64::from(all - rank.active_requests) / others as f64)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use roost_kv::{WorkerId, WorkerRank};
    use roost_router::{Reason, Rejection};

    use super::*;

    fn rank(worker: u64, active_requests: u32) -> RankSnapshot {
        RankSnapshot {
            rank: WorkerRank::new(WorkerId(worker), 0),
            bindings: 0,
            active_blocks: 0,
            prefill_tokens: 0,
            active_requests,
            placed: 0,
            asked_tokens: 0,
            cached_tokens: 0,
            used_blocks: None,
            total_blocks: None,
            busy: false,
            quarantined: false,
            draining: false,
        }
    }

    fn pool(ranks: Vec<RankSnapshot>) -> PoolFacts {
        let snapshot = Snapshot { ranks, ..Snapshot::default() };
        PoolFacts { model: "m".into(), role: Role::Aggregated, snapshot, silent: 0, turns: None }
    }

    fn after(placed: usize, unnamed: usize, unbound: usize) -> PoolFacts {
        PoolFacts { turns: Some(Turns { placed, unnamed, unbound }), ..pool(vec![rank(1, 0), rank(2, 0)]) }
    }

    fn quiet() -> ClusterFacts {
        ClusterFacts { store_unreachable: Duration::ZERO, ranks_with_holes: 0, is_leaving: false }
    }

    fn codes(pools: &[PoolFacts], cluster: &ClusterFacts) -> Vec<&'static str> {
        of(pools, cluster).iter().map(|alarm| alarm.code).collect()
    }

    #[test]
    fn a_fleet_that_is_well_alarms_nobody() {
        assert_eq!(codes(&[pool(vec![rank(1, 9), rank(2, 8)])], &quiet()), [""; 0]);
        assert_eq!(codes(&[after(100, 20, 0)], &quiet()), [""; 0]);
    }

    /// Old troubles are no alarm for ever, and a pool without affinity has none of this kind.
    #[test]
    fn turns_are_those_of_late() {
        let made = |session: &str, affinity| Decision {
            session: session.into(),
            affinity,
            outcome: Outcome::Placed { rank: rank(1, 0).rank, reason: Reason::Cost },
            ..decision()
        };
        let refused = Decision { outcome: Outcome::Rejected(Rejection::Overloaded), ..decision() };
        let all = [
            made("a", AffinityOutcome::Hit),
            made("", AffinityOutcome::None),
            made("b", AffinityOutcome::TableFull),
            refused,
        ];
        assert_eq!(Turns::of(&all), Turns { placed: 3, unnamed: 1, unbound: 1 });
    }

    fn decision() -> Decision {
        Decision {
            number: 1,
            at: Instant::now(),
            request: String::new(),
            session: String::new(),
            isl_tokens: 1,
            block_size: 1,
            priority: 0,
            outcome: Outcome::Rejected(Rejection::Overloaded),
            affinity: AffinityOutcome::None,
            bound: None,
            considered: 0,
            candidates: Vec::new(),
        }
    }

    #[test]
    fn each_alarm_at_its_time() {
        assert_eq!(codes(&[], &quiet()), ["no_workers"]);
        let away = ClusterFacts { store_unreachable: Duration::from_secs(9), ranks_with_holes: 2, ..quiet() };
        let well = || vec![rank(1, 0), rank(2, 0)];
        assert_eq!(codes(&[pool(well())], &away), ["store_unreachable", "event_gaps"]);
        assert_eq!(codes(&[after(100, 30, 0)], &quiet()), ["no_session_header"]);
        assert_eq!(codes(&[after(19, 19, 0)], &quiet()), [""; 0], "too few to say");
        assert_eq!(codes(&[after(2, 0, 1)], &quiet()), ["table_full"]);

        let hot = pool(vec![rank(1, 12), rank(2, 2), rank(3, 3)]);
        let told = of(&[hot], &quiet());
        assert_eq!((told.len(), told[0].code), (1, "hot_spot"));
        assert!(told[0].text.contains("worker 1 rank 0 runs 12 requests"), "{}", told[0].text);
        assert_eq!(codes(&[pool(vec![rank(1, 30)])], &quiet()), [""; 0], "alone");

        let failed = RankSnapshot { quarantined: true, ..rank(1, 0) };
        assert_eq!(codes(&[pool(vec![failed, rank(2, 0)])], &quiet()), ["quarantined"]);
        let draining = RankSnapshot { draining: true, ..rank(2, 0) };
        assert_eq!(codes(&[pool(vec![failed, draining])], &quiet()), ["no_healthy_worker"]);
        let busy = RankSnapshot { busy: true, ..rank(1, 0) };
        assert_eq!(codes(&[pool(vec![busy])], &quiet()), ["all_busy"]);
        let silent = PoolFacts { silent: 1, ..pool(well()) };
        assert_eq!(codes(&[silent], &quiet()), ["silent_workers"]);
    }
}
