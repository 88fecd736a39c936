use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::fixtures::{array, load, uint};
use crate::{AffinityConfig, Config, Core, End, Mode, Request, Worker};

const TTL: Duration = Duration::from_secs(10);

/// One frontend of several.
struct Frontend {
    core: Core,
    now: Instant,
}

impl Frontend {
    fn new(writer_id: u64, workers: u64) -> Self {
        let affinity = AffinityConfig { ttl: Some(TTL), ..AffinityConfig::default() };
        let core = Core::new(Config { mode: Mode::Kv, affinity, ..Config::default() }, writer_id).unwrap();
        let now = Instant::now();
        let mut frontend = Self { core, now };
        frontend
            .core
            .replicate(now, Identity { writer_id, unix_nanos: 1000, bindings: true, sequences: true });
        (1..=workers).for_each(|id| frontend.join(id, 1));
        frontend
    }

    fn join(&mut self, id: u64, ranks: u32) {
        let worker = Worker { id: WorkerId(id), ranks, ..Worker::default() };
        self.core.worker_joined(self.now, worker);
    }

    fn place(&mut self, id: &str, session: &str) -> crate::Placement {
        let sequence: Arc<[SequenceHash]> = (0..10).map(SequenceHash).collect();
        let overlap = roost_kv::Overlap::default();
        let request =
            Request { id: Some(id), session: Some(session), ..Request::new(160, 16, &sequence, &overlap) };
        self.core.place(self.now, &request).unwrap()
    }

    /// Serves a turn and returns where, with what the others are told.
    fn serve(&mut self, id: &str, session: &str) -> (WorkerRank, Vec<Outbound>) {
        let placement = self.place(id, session);
        self.core.first_token(self.now, placement.booking);
        self.core.finish(self.now, placement.booking, End::Ok);
        (placement.rank, self.core.take_outbound().into())
    }

    fn hear(&mut self, events: &[Outbound]) {
        for event in events {
            match event {
                Outbound::Binding(event) => {
                    self.core.apply_binding(self.now, event);
                }
                Outbound::Sequence(event) => self.core.apply_sequence(self.now, event, event.origin),
            }
        }
    }

    fn load(&self) -> Vec<(u64, u64, u32)> {
        let ranks = self.core.snapshot(self.now).ranks;
        ranks.iter().map(|rank| (rank.active_blocks, rank.prefill_tokens, rank.active_requests)).collect()
    }
}

fn event(
    session: &str,
    (worker, dp_rank): (u64, Option<u32>),
    sequence: u64,
    writer_id: u64,
) -> BindingEvent {
    BindingEvent { session_id: session.to_owned(), worker: WorkerId(worker), dp_rank, sequence, writer_id }
}

fn outcome(name: &str) -> Applied {
    match name {
        "Inserted" => Applied::Inserted,
        "Refreshed" => Applied::Refreshed,
        "ReplacedNewer" => Applied::ReplacedNewer,
        "ReplacedExpired" => Applied::ReplacedExpired,
        "IgnoredConflict" => Applied::IgnoredConflict,
        "IgnoredInitializing" => Applied::IgnoredInitializing,
        other => panic!("unknown outcome {other}"),
    }
}

#[test]
fn bindings_merge_as_in_the_peers_trace() {
    let traces = load("routing/affinity.json");
    let trace = array(&traces["traces"]).iter().find(|trace| trace["replication"] == true).unwrap();
    let mut frontend = Frontend::new(77, 4);
    for step in array(&trace["steps"]) {
        let expected = outcome(step["outcome"].as_str().unwrap());
        let applied = match &step["target"] {
            Value::Null if expected == Applied::IgnoredInitializing => {
                frontend.place("r", "fresh");
                frontend.core.apply_binding(frontend.now, &event("fresh", (3, Some(0)), u64::MAX >> 1, 9))
            }
            Value::Null => {
                frontend.now += TTL;
                frontend.core.apply_binding(frontend.now, &event("s", (4, Some(0)), 1, 1))
            }
            target => {
                let target = (uint(&target["worker"]), target["dp_rank"].as_u64().map(|rank| rank as u32));
                let told = event("s", target, uint(&step["sequence"]), uint(&step["writer_id"]));
                frontend.core.apply_binding(frontend.now, &told)
            }
        };
        assert_eq!(applied, expected, "{}", step["update"]);
        if let Some(worker) = step["bound_after"]["worker"].as_u64() {
            let bound = frontend.core.bound(frontend.now, "s").unwrap();
            assert_eq!(bound.worker.0, worker, "{}", step["update"]);
        }
    }
}

#[test]
fn a_session_bound_by_one_frontend_is_followed_by_the_other() {
    // C-AFF-05: turns alternate between two frontends.
    let (mut a, mut b) = (Frontend::new(1, 4), Frontend::new(2, 4));
    for session in 0..20 {
        let session = format!("s{session}");
        let mut homes = std::collections::BTreeSet::new();
        for turn in 0..6 {
            let (here, there) = if turn % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
            let (rank, events) = here.serve(&format!("{session}.{turn}"), &session);
            homes.insert(rank);
            there.hear(&events);
        }
        assert_eq!(homes.len(), 1, "{session}");
    }
    assert_eq!((a.core.stats().bindings_imported, b.core.stats().bindings_imported), (0, 20));
}

#[test]
fn a_binding_used_elsewhere_does_not_expire_here() {
    let (mut a, mut b) = (Frontend::new(1, 2), Frontend::new(2, 2));
    let (home, events) = a.serve("r1", "s");
    b.hear(&events);
    for turn in 0..5 {
        b.now += TTL - Duration::from_secs(1);
        a.now = b.now;
        let (rank, events) = b.serve(&format!("r{turn}"), "s");
        assert_eq!(rank, home);
        a.hear(&events);
    }
    assert_eq!(a.core.bound(a.now, "s"), Some(home));
    a.now += TTL;
    assert_eq!(a.core.bound(a.now, "s"), None);
}

#[test]
fn the_later_of_two_first_bindings_wins_everywhere() {
    let (mut a, mut b) = (Frontend::new(1, 1), Frontend::new(2, 1));
    a.join(2, 1);
    let (first, from_a) = a.serve("r1", "s");
    b.now += Duration::from_secs(1);
    let (_, from_b) = b.serve("r2", "s");
    b.core.worker_joined(b.now, Worker { id: WorkerId(2), ..Worker::default() });
    a.hear(&from_b);
    b.hear(&from_a);
    assert_eq!(a.core.bound(a.now, "s"), b.core.bound(b.now, "s"), "first on {first}");
}

#[test]
fn a_binding_to_an_unknown_worker_waits_for_it() {
    let mut frontend = Frontend::new(1, 1);
    let told = event("s", (9, Some(1)), 5, 2);
    assert_eq!(frontend.core.apply_binding(frontend.now, &told), Applied::Waiting);
    assert_eq!(frontend.core.apply_binding(frontend.now, &told), Applied::Waiting);
    let late = event("t", (9, Some(0)), 5, 2);
    assert_eq!(frontend.core.apply_binding(frontend.now, &late), Applied::Waiting);
    assert_eq!(frontend.core.snapshot(frontend.now).waiting_bindings, 2);
    frontend.now += Duration::from_secs(4);
    frontend.join(9, 2);
    let home = WorkerRank::new(WorkerId(9), 1);
    assert_eq!(frontend.core.bound(frontend.now, "s"), Some(home));
    assert_eq!(frontend.core.snapshot(frontend.now).waiting_bindings, 0);
    frontend.now += Duration::from_secs(6);
    assert_eq!(frontend.core.bound(frontend.now, "s"), None, "the wait was idle time");
}

#[test]
fn a_worker_only_binding_means_the_same_rank_everywhere() {
    let (mut a, mut b) = (Frontend::new(1, 0), Frontend::new(2, 0));
    let mut ranks = std::collections::BTreeSet::new();
    for frontend in [&mut a, &mut b] {
        frontend.join(1, 8);
        for session in 0..32 {
            let told = event(&format!("s{session}"), (1, None), 5, 3);
            assert_eq!(frontend.core.apply_binding(frontend.now, &told), Applied::Inserted);
        }
    }
    for session in 0..32 {
        let session = format!("s{session}");
        let bound = a.core.bound(a.now, &session);
        assert_eq!(bound, b.core.bound(b.now, &session));
        ranks.extend(bound);
    }
    assert!(ranks.len() > 4, "{ranks:?}");
    let beyond = event("x", (1, Some(8)), 5, 3);
    assert_eq!(a.core.apply_binding(a.now, &beyond), Applied::IgnoredUnusable);
}

#[test]
fn requests_of_other_frontends_are_load_until_they_end() {
    let (mut a, mut b) = (Frontend::new(1, 1), Frontend::new(2, 1));
    let placement = a.place("r", "s");
    b.hear(&Vec::from(a.core.take_outbound()));
    assert_eq!(b.load(), [(10, 160, 1)]);
    assert_eq!(b.core.snapshot(b.now).remote_requests, 1);
    a.core.first_token(a.now, placement.booking);
    let told = Vec::from(a.core.take_outbound());
    b.hear(&told);
    b.hear(&told);
    assert_eq!(b.load(), [(10, 0, 1)]);
    a.core.finish(a.now, placement.booking, End::Ok);
    let told = Vec::from(a.core.take_outbound());
    a.hear(&told);
    b.hear(&told);
    b.hear(&told);
    assert_eq!((a.load(), b.load()), (vec![(0, 0, 0)], vec![(0, 0, 0)]));
}

#[test]
fn a_request_whose_end_was_lost_expires() {
    let (mut a, mut b) = (Frontend::new(1, 1), Frontend::new(2, 1));
    a.place("r", "s");
    b.hear(&Vec::from(a.core.take_outbound()));
    b.core.expire(b.now);
    for _ in 0..2 {
        b.now += Duration::from_secs(300);
        b.core.expire(b.now);
    }
    assert_eq!((b.load(), b.core.snapshot(b.now).remote_requests), (vec![(0, 0, 0)], 0));
}

#[test]
fn what_is_saved_comes_back_after_a_restart() {
    let mut old = Frontend::new(1, 3);
    let homes: Vec<WorkerRank> = (0..50).map(|session| old.serve("r", &format!("s{session}")).0).collect();
    old.now += Duration::from_secs(3);
    old.serve("r", "s7");
    let (mut saved, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let (chunk, next) = old.core.save(old.now, start, 16);
        saved.extend(chunk);
        from = next;
    }
    assert_eq!(saved.len(), 50);
    let mut new = Frontend::new(2, 2);
    new.core.restore(new.now, saved);
    new.join(3, 1);
    for (session, home) in homes.iter().enumerate() {
        assert_eq!(new.core.bound(new.now, &format!("s{session}")), Some(*home));
    }
    new.now += Duration::from_secs(7);
    let live = |session: &str| new.core.bound(new.now, session).is_some();
    assert!(live("s7") && !live("s8"), "idle time goes on where it was");
}

#[test]
fn events_that_nobody_takes_are_dropped_and_counted() {
    let mut frontend = Frontend::new(1, 1);
    for turn in 0..1200 {
        let placement = frontend.place(&format!("r{turn}"), "s");
        frontend.core.first_token(frontend.now, placement.booking);
        frontend.core.finish(frontend.now, placement.booking, End::Ok);
    }
    // Begun, bound, first token, used, ended: five each.
    assert_eq!(frontend.core.stats().outbound_dropped, 1200 * 5 - 4096);
    assert_eq!(frontend.core.take_outbound().len(), 4096);
}

#[test]
fn a_request_of_a_frontend_that_is_gone_ends_after_one_to_two_intervals() {
    let (mut here, mut there) = (Frontend::new(1, 1), Frontend::new(2, 1));
    here.core.expire(here.now);
    for id in ["silent", "alive"] {
        there.place(id, id);
    }
    here.hear(&Vec::from(there.core.take_outbound()));
    let own = here.place("own", "own");
    assert_eq!(here.core.snapshot(here.now).active_requests, 3);
    here.now += Duration::from_secs(300);
    assert_eq!(here.core.expire(here.now).bookings, 0, "just heard of");
    let done = SequenceEvent {
        request_id: "alive".to_owned(),
        rank: own.rank,
        origin: 2,
        step: SequenceStep::PrefillCompleted,
    };
    here.core.apply_sequence(here.now, &done, done.origin);
    here.now += Duration::from_secs(300);
    assert_eq!(here.core.expire(here.now).bookings, 1, "the one that is silent");
    assert_eq!(here.core.snapshot(here.now).active_requests, 2);
    here.now += Duration::from_secs(300);
    here.core.expire(here.now);
    here.now += Duration::from_secs(300);
    here.core.expire(here.now);
    assert_eq!(here.core.snapshot(here.now).active_requests, 1, "ours lasts as long as it runs");
}

#[test]
fn requests_of_a_frontend_that_went_are_not_counted_any_more() {
    let (mut a, mut b, mut c) = (Frontend::new(1, 2), Frontend::new(2, 2), Frontend::new(3, 2));
    a.place("r1", "s1");
    b.place("r2", "s2");
    for events in [a.core.take_outbound(), b.core.take_outbound()] {
        c.hear(&Vec::from(events));
    }
    let requests = |frontend: &Frontend| frontend.load().iter().map(|load| load.2).sum::<u32>();
    assert_eq!(requests(&c), 2);
    c.core.teller_left(c.now, 1);
    assert_eq!(requests(&c), 1, "the other's stays");
    c.core.teller_left(c.now, 2);
    assert!(c.load().iter().all(|load| *load == (0, 0, 0)), "{:?}", c.load());
}
