//! Workers that die, drain, refuse or are full: requests are served elsewhere while any worker can.

use super::*;

/// Serves a first turn of "s" and returns its worker.
fn bind(pool: &mut Pool) -> u64 {
    pool.serve(&Turn::of("s", vec![1; 200]))
}

#[test]
fn a_session_leaves_a_crashed_worker_in_the_same_request() {
    // C-AFF-01: the worker is dead but still known.
    let mut pool = Pool::new(3);
    let dead = bind(&mut pool);
    let turn = Turn::of("s", vec![1; 220]);
    let tried = pool.place(&turn).unwrap();
    assert_eq!(worker(&tried), dead);
    pool.core.worker_failed(pool.now, WorkerId(dead), Failure::Unreachable);
    pool.core.finish(pool.now, tried.booking, End::Failed);
    let retry = pool.start(&Turn { exclude: &[WorkerId(dead)], ..turn.clone() });
    assert_ne!(worker(&retry), dead);
    assert_eq!(retry.affinity, AffinityOutcome::Rebound(RebindReason::Excluded));
    pool.core.finish(pool.now, retry.booking, End::Ok);
    // From then on it stays, also once the dead worker would be tried again.
    for _ in 0..30 {
        pool.sleep(1);
        assert_eq!(pool.serve(&turn), worker(&retry));
    }
    let stats = pool.core.stats();
    assert_eq!((stats.rebinds_for(RebindReason::Excluded), stats.worker_failures), (1, 1));
}

#[test]
fn other_sessions_of_a_crashed_worker_move_without_trying_it() {
    let mut pool = Pool::new(3);
    let dead = bind(&mut pool);
    pool.core.worker_failed(pool.now, WorkerId(dead), Failure::Broken);
    let placement = pool.place(&Turn::of("s", vec![1; 220])).unwrap();
    assert_eq!(placement.affinity, AffinityOutcome::Rebound(RebindReason::WorkerFailed));
    // Given up before dispatch: the session is where it was.
    pool.core.finish(pool.now, placement.booking, End::Cancelled);
    assert_eq!(pool.core.bound(pool.now, "s").unwrap().worker.0, dead);
}

#[test]
fn quarantines_end_one_by_one_with_one_probe_each() {
    let mut pool = Pool::new(2);
    pool.core.worker_failed(pool.now, WorkerId(1), Failure::Unreachable);
    pool.sleep(4);
    let short = |pool: &mut Pool| worker(&pool.place(&Turn::plain(vec![1; 64])).unwrap());
    assert_eq!((0..5).map(|_| short(&mut pool)).collect::<Vec<_>>(), [2; 5]);
    pool.sleep(1);
    assert_eq!(short(&mut pool), 1, "the probe, as the worker is idle");
    assert_eq!((short(&mut pool), short(&mut pool)), (2, 2));
    pool.core.worker_failed(pool.now, WorkerId(1), Failure::Unreachable);
    pool.sleep(9);
    assert_eq!(short(&mut pool), 2, "twice the time");
    pool.sleep(1);
    let probe = pool.place(&Turn::plain(vec![1; 64])).unwrap();
    assert_eq!(worker(&probe), 1);
    pool.core.committed(pool.now, probe.booking);
    assert_eq!(short(&mut pool), 1, "trusted again");
}

#[test]
fn a_probe_that_is_given_up_makes_room_for_another() {
    let mut pool = Pool::new(2);
    pool.core.worker_failed(pool.now, WorkerId(1), Failure::Timeout);
    pool.sleep(5);
    for _ in 0..3 {
        let probe = pool.place(&Turn { pin: pin(Some(1), None), ..Turn::plain(vec![1; 64]) }).unwrap();
        pool.core.finish(pool.now, probe.booking, End::Cancelled);
    }
    assert!(pool.idle());
}

#[test]
fn with_every_worker_failed_one_request_at_a_time_tries() {
    let mut pool = Pool::new(2);
    pool.core.worker_failed(pool.now, WorkerId(2), Failure::Unreachable);
    pool.sleep(1);
    pool.core.worker_failed(pool.now, WorkerId(1), Failure::Unreachable);
    let first = pool.place(&Turn::plain(vec![1; 64])).unwrap();
    assert_eq!(worker(&first), 2, "it failed first");
    assert_eq!(worker(&pool.place(&Turn::plain(vec![1; 64])).unwrap()), 1);
    assert_eq!(pool.place(&Turn::plain(vec![1; 64])).unwrap_err(), Rejection::NoWorkers);
    pool.core.first_token(pool.now, first.booking);
    assert_eq!(pool.serve(&Turn::plain(vec![1; 64])), 2);
}

#[test]
fn an_overload_answer_is_forgotten_without_any_report() {
    // C-OVL-01.
    let mut pool = Pool::new(2);
    let refusing = bind(&mut pool);
    pool.core.worker_failed(pool.now, WorkerId(refusing), Failure::Overloaded);
    let placement = pool.place(&Turn::of("s", vec![1; 220])).unwrap();
    assert_eq!(placement.affinity, AffinityOutcome::Rebound(RebindReason::Overloaded));
    pool.core.worker_failed(pool.now, placement.rank.worker, Failure::Overloaded);
    assert_eq!(pool.place(&Turn::plain(vec![1])).unwrap_err(), Rejection::Overloaded);
    assert_eq!(pool.core.stats().rejected_overloaded, 1);
    pool.core.finish(pool.now, placement.booking, End::Failed);
    pool.sleep(1);
    let used: std::collections::BTreeSet<u64> =
        (0..20).map(|_| pool.serve(&Turn::plain(vec![1; 9]))).collect();
    assert_eq!(used.len(), 2);
}

#[test]
fn a_worker_that_left_takes_its_bindings_and_load_along() {
    let mut pool = Pool::new(2);
    let gone = bind(&mut pool);
    let running = pool.place(&Turn::of("s", vec![1; 220])).unwrap();
    assert_eq!(pool.core.worker_left(pool.now, WorkerId(gone)), 1);
    assert_eq!(pool.core.stats().rebinds_for(RebindReason::WorkerGone), 1);
    assert_eq!((pool.core.bound(pool.now, "s"), pool.core.snapshot(pool.now).active_requests), (None, 0));
    assert_eq!(pool.serve(&Turn::of("s", vec![1; 220])), 3 - gone);
    // The old turn ends late; a new worker in the same slot is not touched by it.
    pool.join(9);
    pool.start(&Turn { pin: pin(Some(9), None), ..Turn::plain(vec![3; 32]) });
    pool.core.first_token(pool.now, running.booking);
    pool.core.finish(pool.now, running.booking, End::Ok);
    assert_eq!(pool.core.snapshot(pool.now).active_requests, 1);
    assert_eq!(pool.core.bound(pool.now, "s").unwrap().worker.0, 3 - gone);
}

#[test]
fn a_changed_description_keeps_the_ranks_that_remain() {
    let mut pool = Pool::new(0);
    let worker = |ranks| Worker { id: WorkerId(1), ranks, ..Worker::default() };
    pool.core.worker_joined(pool.now, worker(4));
    for dp_rank in 0..4 {
        let turn = Turn { pin: pin(None, Some(dp_rank)), ..Turn::plain(vec![dp_rank; 64]) };
        pool.start(&turn);
    }
    pool.core.worker_joined(pool.now, worker(2));
    let requests = |pool: &Pool| -> Vec<u32> {
        pool.core.snapshot(pool.now).ranks.iter().map(|rank| rank.active_requests).collect()
    };
    assert_eq!(requests(&pool), [1, 1]);
    pool.core.worker_joined(pool.now, worker(3));
    assert_eq!(requests(&pool), [1, 1, 0]);
}

#[test]
fn a_draining_worker_gets_nothing() {
    let mut pool = Pool::new(2);
    let leaving = bind(&mut pool);
    pool.core.worker_draining(WorkerId(leaving));
    let placement = pool.start(&Turn::of("s", vec![1; 220]));
    assert_eq!(placement.affinity, AffinityOutcome::Rebound(RebindReason::Draining));
    assert_eq!((0..9).map(|_| pool.serve(&Turn::plain(vec![2; 9]))).collect::<Vec<_>>(), [3 - leaving; 9]);
    pool.core.worker_draining(WorkerId(3 - leaving));
    assert_eq!(pool.place(&Turn::plain(vec![1])).unwrap_err(), Rejection::NoWorkers);
    pool.join(leaving);
    assert_eq!(pool.serve(&Turn::plain(vec![1])), leaving);
}

#[test]
fn a_busy_rank_is_left_by_its_sessions_until_it_is_free() {
    let mut pool = Pool::with(2, |config| config.busy.active_prefill_tokens = Some(1000));
    let home = bind(&mut pool);
    let long = pool.fresh(5000);
    let load = pool.place(&Turn { pin: pin(Some(home), None), ..Turn::plain(long) }).unwrap();
    let turn = Turn::of("s", vec![1; 220]);
    let placement = pool.place(&turn).unwrap();
    assert_eq!(placement.affinity, AffinityOutcome::Rebound(RebindReason::Overloaded));
    pool.core.finish(pool.now, placement.booking, End::Cancelled);
    let pinned = Turn { pin: pin(Some(home), None), ..Turn::plain(vec![1]) };
    assert_eq!(pool.place(&pinned).unwrap_err(), Rejection::PinOverloaded { worker: WorkerId(home) });
    pool.core.first_token(pool.now, load.booking);
    assert_eq!(pool.place(&turn).unwrap().affinity, AffinityOutcome::Hit);
}

#[test]
fn reports_count_while_they_are_fresh_and_thresholds_can_change() {
    let mut pool = Pool::new(1);
    let rank = WorkerRank::new(WorkerId(1), 0);
    pool.core.load(pool.now, rank, 90, Some(100));
    assert!(pool.place(&Turn::plain(vec![1])).is_ok());
    let thresholds = BusyThresholds { active_decode_blocks: Some(0.8), ..BusyThresholds::default() };
    pool.core.set_busy_thresholds(thresholds).unwrap();
    assert_eq!(pool.core.busy_thresholds(), thresholds);
    assert_eq!(pool.place(&Turn::plain(vec![1])).unwrap_err(), Rejection::Overloaded);
    let wrong = BusyThresholds { active_decode_blocks: Some(2.0), ..thresholds };
    assert!(pool.core.set_busy_thresholds(wrong).is_err());
    // An idle worker sends no report: the old one must not mark it for ever.
    pool.sleep(31);
    assert!(pool.place(&Turn::plain(vec![1])).is_ok());
}

#[test]
fn required_properties_filter_and_preferred_ones_attract() {
    let mut pool = Pool::new(2);
    let gold = Worker { id: WorkerId(3), taints: vec!["gold".to_owned()], ..Worker::default() };
    pool.core.worker_joined(pool.now, gold);
    let (sequence, overlap) = (Arc::from([]), Overlap::default());
    let request = Request::new(100, 16, &sequence, &overlap);
    let (taint, other) = (["gold".to_owned()], ["absent".to_owned()]);
    let preferred = [("gold".to_owned(), 1.0)];
    let mut place = |constraints| {
        pool.core
            .place(pool.now, &Request { constraints, ..request })
            .map(|placement| placement.rank.worker.0)
    };
    assert_eq!(place(crate::Constraints { required: &taint, preferred: &[] }), Ok(3));
    assert_eq!(place(crate::Constraints { required: &other, preferred: &[] }), Err(Rejection::NoWorkers));
    assert_ne!(place(crate::Constraints::default()), Ok(3), "it has a request already");
    let before = place(crate::Constraints { required: &[], preferred: &preferred });
    assert_eq!(before, Ok(3), "half the price for what is preferred");
}

#[test]
fn a_booking_lasts_as_long_as_its_request() {
    let mut pool = Pool::new(2);
    pool.core.expire(pool.now);
    // A prefill of two hours: not a word is heard until its first token.
    let silent = pool.place(&Turn::of("s", vec![1; 100])).unwrap();
    for _ in 0..24 {
        pool.sleep(300);
        pool.core.expire(pool.now);
    }
    let snapshot = pool.core.snapshot(pool.now);
    assert_eq!((snapshot.active_requests, snapshot.stats.bookings_expired, snapshot.bindings), (1, 0, 1));
    let rank = snapshot.ranks.iter().find(|rank| rank.rank == silent.rank).unwrap();
    assert_eq!((rank.active_requests, rank.prefill_tokens), (1, 100));
    pool.core.finish(pool.now, silent.booking, End::Ok);
    assert!(pool.idle());
}

#[test]
fn a_preview_tells_the_placement_and_changes_nothing() {
    let mut pool = Pool::with(3, |config| config.mode = Mode::RoundRobin);
    let worker = Worker {
        id: WorkerId(1),
        total_kv_blocks: Some(50),
        max_batched_tokens: Some(512),
        ..Worker::default()
    };
    pool.core.worker_joined(pool.now, worker);
    let home = bind(&mut pool);
    let prompt: Arc<[roost_kv::SequenceHash]> = (0..10).map(roost_kv::SequenceHash).collect();
    let overlap = Overlap::default();
    for session in [Some("s"), Some("new"), None] {
        let request = Request { session, ..Request::new(160, 16, &prompt, &overlap) };
        let before = format!("{:?}", pool.core.snapshot(pool.now));
        let preview = pool.core.preview(pool.now, &request).unwrap();
        assert_eq!(format!("{:?}", pool.core.snapshot(pool.now)), before);
        if session == Some("s") {
            assert_eq!(preview.rank.worker, WorkerId(home));
        }
        let placed = pool.core.place(pool.now, &request).unwrap();
        assert_eq!(placed.rank, preview.rank);
        let candidate = placed.decision.candidates.iter().find(|candidate| candidate.rank == placed.rank);
        assert_eq!(candidate.map(|candidate| candidate.load), Some(preview.load));
        pool.core.finish(pool.now, placed.booking, End::Cancelled);
    }
    let pinned = Request { pin: pin(Some(1), None), ..Request::new(160, 16, &prompt, &overlap) };
    let preview = pool.core.preview(pool.now, &pinned).unwrap();
    assert_eq!((preview.total_blocks, preview.max_batched_tokens, preview.blocks()), (Some(50), 512, 10));
    assert!(!preview.prefill_exceeds(0.0));
    let unknown = Request { pin: pin(Some(9), None), ..pinned };
    assert_eq!(
        pool.core.preview(pool.now, &unknown).unwrap_err(),
        Rejection::UnknownWorker { worker: WorkerId(9) }
    );
}
