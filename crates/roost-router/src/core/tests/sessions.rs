//! Bindings: their life, races, and what may move them.

use super::*;

#[test]
fn a_session_stays_through_growth_and_load() {
    let mut pool = Pool::new(3);
    let mut tokens = pool.fresh(500);
    let first = pool.serve(&Turn::of("s", tokens.clone()));
    // Its worker is the busiest by far.
    let load = pool.fresh(100_000);
    pool.place(&Turn { pin: pin(Some(first), None), ..Turn::plain(load) }).unwrap();
    for _ in 0..6 {
        tokens.extend(pool.fresh(200));
        pool.sleep(50);
        assert_eq!(pool.serve(&Turn::of("s", tokens.clone())), first);
    }
    let stats = pool.core.stats();
    assert_eq!((stats.affinity_new, stats.affinity_hits), (1, 6));
}

#[test]
fn the_rank_sticks_too() {
    let mut pool = Pool::new(0);
    pool.core
        .worker_joined(pool.now, Worker { id: WorkerId(1), start_rank: 4, ranks: 8, ..Worker::default() });
    let first = pool.start(&Turn::of("s", vec![1; 100])).rank;
    for turn in 0..8 {
        assert_eq!(pool.start(&Turn::of("s", vec![1; 100 + turn])).rank, first);
    }
}

#[test]
fn a_binding_outlives_its_idle_time_while_an_answer_streams() {
    // C-AFF-03, s-long.
    let mut pool = Pool::new(3);
    let long = pool.start(&Turn::of("s", vec![1; 100]));
    pool.sleep(600);
    pool.core.expire(pool.now);
    let second = pool.place(&Turn::of("s", vec![1; 120])).unwrap();
    assert_eq!((second.rank, second.affinity), (long.rank, AffinityOutcome::Hit));
    pool.core.finish(pool.now, long.booking, End::Ok);
    pool.core.finish(pool.now, second.booking, End::Cancelled);
    pool.sleep(59);
    assert_eq!(pool.core.bound(pool.now, "s"), Some(long.rank));
    pool.sleep(1);
    assert_eq!(pool.core.bound(pool.now, "s"), None);
    assert_eq!(pool.core.expire(pool.now), Expired { bindings: 1, bookings: 0, waiting: 0 });
}

#[test]
fn turns_at_the_same_moment_go_to_one_worker() {
    // C-AFF-03, s-par.
    let mut pool = Pool::new(3);
    let turns: Vec<Placement> = (0..8).map(|_| pool.place(&Turn::of("s", vec![1; 1000])).unwrap()).collect();
    assert!(turns.iter().all(|turn| turn.rank == turns[0].rank));
    assert_eq!(turns[0].affinity, AffinityOutcome::New);
    assert!(turns[1..].iter().all(|turn| turn.affinity == AffinityOutcome::Followed));
}

#[test]
fn a_cancelled_first_turn_leaves_nothing_or_what_others_follow() {
    // C-AFF-03, s-can and s-can2.
    let mut pool = Pool::new(3);
    let alone = pool.place(&Turn::of("s-can2", vec![1; 100])).unwrap();
    pool.core.finish(pool.now, alone.booking, End::Cancelled);
    assert_eq!((pool.core.bound(pool.now, "s-can2"), pool.core.snapshot(pool.now).bindings), (None, 0));

    let first = pool.place(&Turn::of("s-can", vec![1; 100])).unwrap();
    let second = pool.place(&Turn::of("s-can", vec![1; 100])).unwrap();
    pool.core.finish(pool.now, first.booking, End::Cancelled);
    assert_eq!(pool.core.bound(pool.now, "s-can"), Some(second.rank));
    pool.core.committed(pool.now, second.booking);
    pool.core.finish(pool.now, second.booking, End::Ok);
    assert_eq!(pool.core.snapshot(pool.now).bindings, 1);
}

#[test]
fn a_full_table_and_an_over_long_id_serve_all_the_same() {
    // C-AFF-04.
    let mut pool = Pool::with(2, |config| config.affinity.capacity = 100);
    for session in 1..=101 {
        pool.serve(&Turn::of(&format!("session {session}"), vec![session; 20]));
    }
    let stats = pool.core.stats();
    assert_eq!((stats.affinity_evicted, pool.core.snapshot(pool.now).bindings), (1, 100));
    assert_eq!(pool.core.bound(pool.now, "session 1"), None);
    assert!(pool.core.bound(pool.now, "session 101").is_some());
    let long = "x".repeat(8000);
    let first = pool.serve(&Turn::of(&long, vec![7; 20]));
    assert_eq!(pool.place(&Turn::of(&long, vec![7; 20])).unwrap().affinity, AffinityOutcome::Hit);
    assert_eq!(pool.core.bound(pool.now, &long).unwrap().worker.0, first);
}

#[test]
fn a_table_of_running_turns_serves_without_binding() {
    let mut pool = Pool::with(2, |config| config.affinity.capacity = 1);
    pool.place(&Turn::of("a", vec![1; 20])).unwrap();
    assert_eq!(pool.place(&Turn::of("b", vec![1; 20])).unwrap().affinity, AffinityOutcome::TableFull);
    assert_eq!(pool.core.stats().affinity_table_full, 1);
}

#[test]
fn a_pin_wins_over_the_binding_and_moves_it() {
    let mut pool = Pool::new(2);
    let first = pool.serve(&Turn::of("s", vec![1; 100]));
    let other = 3 - first;
    let turn = Turn { pin: pin(Some(other), None), ..Turn::of("s", vec![1; 100]) };
    let placement = pool.start(&turn);
    assert_eq!(
        (worker(&placement), placement.affinity),
        (other, AffinityOutcome::Rebound(RebindReason::Pinned))
    );
    assert_eq!(pool.serve(&Turn::of("s", vec![1; 100])), other);
    assert_eq!(pool.core.stats().rebinds_for(RebindReason::Pinned), 1);
}

#[test]
fn affinity_off_ignores_sessions() {
    for change in
        [(|config: &mut Config| config.affinity.ttl = None) as fn(&mut Config), |config: &mut Config| {
            config.affinity.mode = AffinityMode::Off
        }]
    {
        let mut pool = Pool::with(3, change);
        let placement = pool.start(&Turn::of("s", vec![1; 10]));
        assert_eq!((placement.affinity, pool.core.bound(pool.now, "s")), (AffinityOutcome::None, None));
        assert!(!pool.core.unbind(pool.now, "s"));
    }
}

#[test]
fn an_unbound_session_starts_anew() {
    let mut pool = Pool::new(3);
    pool.serve(&Turn::of("s", vec![1; 10]));
    assert!(pool.core.unbind(pool.now, "s"));
    assert_eq!(pool.place(&Turn::of("s", vec![1; 10])).unwrap().affinity, AffinityOutcome::New);
}

#[test]
fn two_pools_of_one_model_bind_a_session_independently() {
    let mut prefill = Pool::with(2, |config| config.role = Role::Prefill);
    let mut decode = Pool::with(2, |config| config.role = Role::Decode);
    prefill.serve(&Turn { pin: pin(Some(1), None), ..Turn::of("s", vec![1; 50]) });
    decode.serve(&Turn { pin: pin(Some(2), None), ..Turn::of("s", vec![1; 50]) });
    assert_eq!(prefill.serve(&Turn::of("s", vec![1; 60])), 1);
    assert_eq!(decode.serve(&Turn::of("s", vec![1; 60])), 2);
}
