use roost_kv::{EngineHash, KvEventData, Tier, WorkerId};

use super::*;

fn rank() -> WorkerRank {
    WorkerRank::new(WorkerId(1), 0)
}

/// Event `id`; what it does is told by its number.
fn event(id: u64) -> KvEvent {
    let data = KvEventData::Removed { blocks: vec![EngineHash(id)] };
    KvEvent { event_id: id, rank: rank(), tier: Tier::Device, data }
}

fn events(ids: impl IntoIterator<Item = u64>) -> Vec<KvEvent> {
    ids.into_iter().map(event).collect()
}

fn apply(ids: impl IntoIterator<Item = u64>) -> Need {
    Need::Apply(events(ids))
}

fn dump(ids: impl IntoIterator<Item = u64>, last_event_id: u64) -> KvAnswer {
    KvAnswer::TreeDump { events: events(ids), last_event_id }
}

fn history(ids: impl IntoIterator<Item = u64>, last_event_id: u64) -> KvAnswer {
    KvAnswer::Events { events: events(ids), last_event_id }
}

/// A feed that is up to date after event `last`.
fn live_at(last: u64) -> Feed {
    let mut feed = Feed::new(rank(), true);
    assert_eq!(feed.connected(), [Need::Ask { from: None }]);
    assert_eq!(feed.answered(dump([], last)), [Need::Reset]);
    feed
}

#[test]
fn first_contact_takes_the_whole_state_and_then_what_was_held() {
    let mut feed = Feed::new(rank(), true);
    assert_eq!(feed.received(events([6])), [], "held until the state is there");
    assert_eq!(feed.connected(), [Need::Ask { from: None }]);
    assert_eq!(feed.received(events([7, 8])), []);
    // Ids inside a dump are made up: 0 and 1 must not become the cursor.
    assert_eq!(feed.answered(dump([0, 1], 6)), [Need::Reset, apply([0, 1]), apply([7, 8])]);
    assert_eq!(feed.received(events([9])), [apply([9])]);
    assert_eq!(feed.stats, FeedStats { applied: 5, stale: 1, recovered: 1, ..FeedStats::default() });
}

#[test]
fn one_gap_one_query() {
    for variant in ["events", "dump"] {
        let mut feed = live_at(0);
        assert_eq!(feed.received(events([1, 2])), [apply([1, 2])]);
        assert_eq!(feed.received(events([7])), [Need::Ask { from: Some(3) }]);
        let answered = match variant {
            "events" => feed.answered(history(3..=6, 6)),
            _ => feed.answered(dump([0, 1, 2], 7)),
        };
        let wanted = match variant {
            "events" => vec![apply(3..=6), apply([7])],
            _ => vec![Need::Reset, apply([0, 1, 2])],
        };
        assert_eq!(answered, wanted, "{variant}");
        assert_eq!(feed.received(events([8])), [apply([8])], "{variant}: no second query");
        assert_eq!(feed.received(events([8, 6])), [], "{variant}: repeated and late");
        assert_eq!((feed.cursor, feed.stats.gaps), (Cursor::at(8), 1), "{variant}");
    }
}

#[test]
fn events_before_a_gap_in_one_batch_are_applied_first() {
    let mut feed = live_at(0);
    assert_eq!(feed.received(events([1, 2, 5, 6])), [apply([1, 2]), Need::Ask { from: Some(3) }]);
    assert_eq!(feed.answered(history(3..=6, 6)), [apply(3..=6)]);
}

#[test]
fn a_failed_recovery_forgets_the_rank_and_goes_on() {
    let mut feed = live_at(2);
    assert_eq!(feed.received(events([3])), [apply([3])]);
    assert_eq!(feed.received(events([7])), [Need::Ask { from: Some(4) }]);
    assert_eq!(feed.failed(), [Need::Reset, Need::Rest { before: 0 }, apply([7])]);
    assert!(feed.has_holes());
    assert_eq!(feed.received(events([8])), [apply([8])]);
    assert_eq!(feed.failed(), [], "nothing was asked");
    assert_eq!(feed.received(events([11])), [Need::Reset, apply([11])], "no query before the rest is over");
    assert_eq!((feed.stats.failed, feed.stats.forgotten), (1, 2));

    // The longer it lasts, the longer the rests.
    for before in 1..4 {
        assert_eq!(feed.rested(), [Need::Ask { from: None }]);
        assert_eq!(feed.rested(), [], "one query at a time");
        let no = match before {
            1 => KvAnswer::Error("no".into()),
            _ => KvAnswer::TreeDumpFailed { last_event_id: None, message: None },
        };
        assert_eq!(feed.answered(no), [Need::Reset, Need::Rest { before }]);
    }
    assert_eq!(feed.rested(), [Need::Ask { from: None }]);
    assert_eq!(feed.answered(dump([0, 1], 11)), [Need::Reset, apply([0, 1])]);
    assert!(!feed.has_holes());
    assert_eq!(feed.received(events([14])), [Need::Ask { from: Some(12) }]);
    assert_eq!(feed.failed(), [Need::Reset, Need::Rest { before: 0 }, apply([14])], "rests are short again");
}

#[test]
fn a_state_that_was_never_whole_is_asked_for_again() {
    let mut feed = Feed::new(rank(), true);
    feed.connected();
    feed.received(events([5]));
    assert_eq!(feed.failed(), [Need::Reset, Need::Rest { before: 0 }, apply([5])]);
    assert_eq!(feed.received(events([6])), [apply([6])]);
    assert_eq!(feed.connected(), [Need::Ask { from: None }], "a new connection ends the rest");
    assert_eq!(feed.rested(), []);
}

#[test]
fn a_new_connection_asks_for_what_fell_into_the_break() {
    let mut feed = live_at(5);
    assert_eq!(feed.connected(), [Need::Ask { from: Some(6) }]);
    let up_to_date =
        |newest| KvAnswer::TooNew { requested_start: Some(6), requested_end: None, newest_available: newest };
    assert_eq!(feed.answered(up_to_date(5)), [], "nothing was missed");

    assert_eq!(feed.connected(), [Need::Ask { from: Some(6) }]);
    assert_eq!(feed.answered(up_to_date(2)), [Need::Ask { from: None }], "the worker counts anew");
    assert_eq!(feed.answered(dump([0], 2)), [Need::Reset, apply([0])]);
    assert_eq!(feed.received(events([3])), [apply([3])]);

    assert_eq!(feed.connected(), [Need::Ask { from: Some(4) }]);
    assert_eq!(feed.connected(), [], "one query at a time");
    assert_eq!(
        feed.answered(history([4], 4)),
        [apply([4]), Need::Ask { from: Some(5) }],
        "and the second break"
    );
}

#[test]
fn answers_without_progress_end_the_asking() {
    let mut feed = live_at(2);
    assert_eq!(feed.received(events([7])), [Need::Ask { from: Some(3) }]);
    assert_eq!(feed.answered(history([3, 4], 4)), [apply([3, 4]), Need::Ask { from: Some(5) }]);
    let given_up = [Need::Reset, Need::Rest { before: 0 }, apply([7])];
    assert_eq!(feed.answered(history([], 4)), given_up, "never a silent hole");
}

#[test]
fn holding_back_is_bounded() {
    let mut feed = live_at(0);
    feed.received(events([10]));
    let many = MAX_HELD as u64;
    assert_eq!(feed.received(events(11..=10 + many)), []);
    assert_eq!(feed.held.len(), MAX_HELD);
    assert_eq!(feed.stats.overflowed, 1);
    // Event 10 was given up; the answer ends before it, so that the rest is asked for.
    assert_eq!(feed.answered(history(1..=9, 9)), [apply(1..=9), Need::Ask { from: Some(10) }]);
    assert_eq!(feed.answered(history([10], 10)), [apply([10]), apply(11..=10 + many)]);
}

#[test]
fn without_a_query_endpoint_a_gap_empties_the_rank() {
    let mut feed = Feed::new(rank(), false);
    assert_eq!(feed.connected(), []);
    assert_eq!(feed.received(events([5, 6])), [apply([5, 6])]);
    assert_eq!(feed.received(events([7, 9])), [apply([7]), Need::Reset, apply([9])]);
    assert_eq!(feed.connected(), []);
    assert_eq!((feed.stats.gaps, feed.stats.forgotten), (1, 1));
}

#[test]
fn events_of_others_and_of_no_concern_are_left_out() {
    let mut feed = live_at(0);
    let foreign = KvEvent { rank: WorkerRank::new(WorkerId(1), 1), ..event(1) };
    let void = KvEvent { data: KvEventData::Removed { blocks: vec![] }, ..event(1) };
    assert_eq!(feed.received(vec![foreign, void]), []);
    assert_eq!(feed.received(events([2])), [apply([2])], "an event of no concern keeps its number");
    assert_eq!((feed.stats.foreign, feed.stats.ignored), (1, 1));
}
