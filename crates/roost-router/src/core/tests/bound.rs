//! Bounded load: sessions leave hot workers, once, and only when that pays.

use super::*;
use crate::AffinityMode;

fn bounded(workers: u64) -> Pool {
    Pool::with(workers, |config| config.affinity.mode = AffinityMode::Bounded)
}

/// Queues `tokens` of prefill on a worker.
fn heat(pool: &mut Pool, worker: u64, tokens: u32) -> Placement {
    let tokens = pool.fresh(tokens);
    pool.place(&Turn { pin: pin(Some(worker), None), ..Turn::plain(tokens) }).unwrap()
}

#[test]
fn a_session_leaves_a_hot_worker_and_stays_where_it_went() {
    let mut pool = bounded(3);
    let mut tokens = pool.fresh(4000);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    let load = heat(&mut pool, home, 100_000);
    tokens.extend(pool.fresh(100));
    let turn = Turn::of("s", tokens);
    let placement = pool.start(&turn);
    let refuge = worker(&placement);
    assert_ne!(refuge, home);
    assert_eq!(placement.affinity, AffinityOutcome::Rebound(RebindReason::Hot));
    assert_eq!(placement.decision.candidates.len(), 3, "the record shows what it was weighed against");
    pool.core.finish(pool.now, placement.booking, End::Ok);
    // The load moves after it: it is not chased around.
    pool.core.finish(pool.now, load.booking, End::Ok);
    let load = heat(&mut pool, refuge, 100_000);
    assert_eq!(pool.serve(&turn), refuge, "within the cooldown");
    pool.core.finish(pool.now, load.booking, End::Ok);
    pool.sleep(31);
    assert_eq!(pool.serve(&turn), refuge, "nothing is hot");
    assert_eq!(pool.core.stats().rebinds_for(RebindReason::Hot), 1);
}

#[test]
fn a_long_cache_outweighs_the_same_heat() {
    let mut pool = bounded(3);
    let tokens = pool.fresh(60_000);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    heat(&mut pool, home, 100_000);
    assert_eq!(pool.serve(&Turn::of("s", tokens.clone())), home);
    heat(&mut pool, home, 500_000);
    assert_ne!(pool.serve(&Turn::of("s", tokens)), home, "but not every heat");
}

#[test]
fn running_answers_are_a_weak_reason_to_leave() {
    let mut pool = bounded(2);
    let tokens = pool.fresh(4000);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    let running: Vec<_> = (0..10).map(|_| heat(&mut pool, home, 20_000)).collect();
    for placement in &running {
        pool.core.first_token(pool.now, placement.booking);
    }
    assert_eq!(
        pool.serve(&Turn::of("s", tokens.clone())),
        home,
        "nobody waits for these 200,000 tokens to end"
    );
    heat(&mut pool, home, 100_000);
    assert_ne!(pool.serve(&Turn::of("s", tokens)), home, "but for these");
}

#[test]
fn a_session_stays_when_all_workers_are_hot() {
    let mut pool = bounded(2);
    let tokens = pool.fresh(4000);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    for worker in 1..=2 {
        heat(&mut pool, worker, 100_000);
    }
    assert_eq!(pool.serve(&Turn::of("s", tokens)), home);
}

#[test]
fn a_session_does_not_leave_for_a_worker_that_cannot_serve() {
    let mut pool = bounded(2);
    let tokens = pool.fresh(4000);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    heat(&mut pool, home, 100_000);
    pool.core.worker_draining(WorkerId(3 - home));
    assert_eq!(pool.serve(&Turn::of("s", tokens)), home);
}

#[test]
fn hard_affinity_and_pins_ignore_the_heat() {
    let mut pool = Pool::new(3);
    let tokens = pool.fresh(4000);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    heat(&mut pool, home, 1_000_000);
    assert_eq!(pool.serve(&Turn::of("s", tokens.clone())), home);
    let mut pool = bounded(3);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    heat(&mut pool, home, 1_000_000);
    assert_eq!(pool.serve(&Turn { pin: pin(Some(home), None), ..Turn::of("s", tokens) }), home);
}

#[test]
fn a_herd_spreads_over_the_idle_workers() {
    let mut pool = bounded(4);
    let prompts: Vec<Vec<u32>> = (0..40).map(|_| pool.fresh(2000)).collect();
    for (session, tokens) in prompts.iter().enumerate() {
        let name = format!("s{session}");
        pool.serve(&Turn { pin: pin(Some(1), None), ..Turn::of(&name, tokens.clone()) });
    }
    heat(&mut pool, 1, 200_000);
    let mut placed = [0; 4];
    for (session, tokens) in prompts.iter().enumerate() {
        placed
            [worker(&pool.place(&Turn::of(&format!("s{session}"), tokens.clone())).unwrap()) as usize - 1] +=
            1;
    }
    assert!(placed[1..].iter().all(|count| (10..=15).contains(count)), "{placed:?}");
}

#[test]
fn a_decode_pool_moves_sessions_by_blocks_in_use() {
    let mut pool = Pool::with(2, |config| {
        config.role = Role::Decode;
        config.affinity.mode = AffinityMode::Bounded;
    });
    let tokens = pool.fresh(4000);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    for _ in 0..10 {
        let other = pool.fresh(4000);
        pool.start(&Turn { pin: pin(Some(home), None), ..Turn::plain(other) });
    }
    assert_eq!(pool.serve(&Turn::of("s", tokens)), 3 - home, "its cache comes with the prefill anyway");
}
