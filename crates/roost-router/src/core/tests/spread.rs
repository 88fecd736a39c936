//! First turns: spreading sessions by the load they promise, without giving up long private caches.

use super::*;

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|session| format!("a{session}"))
}

#[test]
fn sessions_that_start_one_after_the_other_spread() {
    // C-AFF-02: 30 sessions share a system prompt of 640 tokens.
    for block_size in [16, 64] {
        let mut pool = Pool::new(3);
        pool.block_size = block_size;
        let system = pool.fresh(640);
        let sessions = pool.open_sessions(names(30), &system, 40);
        assert!(sessions.iter().all(|count| *count <= 12), "{sessions:?} at block size {block_size}");
        let stats = pool.core.stats();
        assert!(stats.spread_lost_tokens > 0, "the cost of spreading is counted");
        assert_eq!(stats.spread_lost_tokens, stats.best_cached_tokens - stats.selected_cached_tokens);
        // Second phase: all at once, each where it is bound.
        let mut active = [0; 3];
        for name in names(30) {
            let tokens = [system.clone(), pool.fresh(80)].concat();
            let placement = pool.start(&Turn::of(&name, tokens));
            assert_eq!(placement.affinity, AffinityOutcome::Hit);
            active[worker(&placement) as usize - 1] += 1;
        }
        assert_eq!(active.to_vec(), sessions);
    }
}

#[test]
fn a_long_system_prompt_is_recomputed_once_per_worker() {
    let mut pool = Pool::new(3);
    pool.block_size = 64;
    let system = pool.fresh(30_000);
    let sessions = pool.open_sessions(names(30), &system, 1000);
    assert!(sessions.iter().all(|count| *count <= 12), "{sessions:?}");
    // Two more workers computed it; once more is the price of telling a shared prefix from a private one.
    let lost = pool.core.stats().spread_lost_tokens;
    assert!(lost <= 2 * 30_000, "{lost}");
}

#[test]
fn a_small_promise_does_not_outweigh_a_longer_cached_prefix() {
    let mut pool = Pool::new(2);
    let document = pool.fresh(4000);
    let home = pool.serve(&Turn::plain(document.clone()));
    let small = pool.fresh(64);
    pool.serve(&Turn { pin: pin(Some(home), None), ..Turn::of("small", small) });
    let tokens = [document, pool.fresh(40)].concat();
    assert_eq!(pool.serve(&Turn::of("s", tokens)), home);
}

#[test]
fn without_the_term_they_pile_up() {
    let mut pool = Pool::with(3, |config| config.affinity.future_weight = 0.0);
    let system = pool.fresh(640);
    let sessions = pool.open_sessions(names(30), &system, 40);
    assert_eq!(sessions.iter().max(), Some(&30), "the fault that the term answers");
}

#[test]
fn a_long_conversation_taken_up_again_goes_where_its_cache_is() {
    let mut pool = Pool::new(3);
    pool.block_size = 64;
    let conversation = pool.fresh(100_000);
    let home = pool.serve(&Turn::of("old", conversation.clone()));
    pool.sleep(61);
    pool.core.expire(pool.now);
    assert_eq!(pool.core.bound(pool.now, "old"), None);
    // Its worker now has ten live sessions of 100,000 tokens, the others none.
    for session in 0..10 {
        let tokens = pool.fresh(100_000);
        let name = format!("b{session}");
        pool.serve(&Turn { pin: pin(Some(home), None), ..Turn::of(&name, tokens) });
    }
    let next = [conversation, pool.fresh(2000)].concat();
    let placement = pool.place(&Turn::of("old", next)).unwrap();
    assert_eq!((worker(&placement), placement.affinity), (home, AffinityOutcome::New));
    assert_eq!(pool.core.stats().spread_lost_tokens, 0);
}

#[test]
fn bound_turns_and_requests_without_session_ignore_promises() {
    let mut pool = Pool::new(2);
    let tokens = pool.fresh(640);
    let home = pool.serve(&Turn::of("s", tokens.clone()));
    for session in 0..5 {
        let other = pool.fresh(10_000);
        pool.serve(&Turn { pin: pin(Some(home), None), ..Turn::of(&format!("x{session}"), other) });
    }
    assert_eq!(pool.serve(&Turn::plain(tokens.clone())), home, "no session, no promise");
    assert_eq!(pool.serve(&Turn::of("s", tokens)), home);
}

#[test]
fn a_sub_agent_starts_near_its_parent_unless_that_is_hot() {
    let mut pool = Pool::new(3);
    let context = pool.fresh(2000);
    let home = pool.serve(&Turn::of("parent", context.clone()));
    let child = |pool: &mut Pool, name: &str| {
        let tokens = [context.clone(), pool.fresh(50)].concat();
        let placement = pool.place(&Turn { parent: Some("parent"), ..Turn::of(name, tokens) }).unwrap();
        (placement.rank, placement.affinity)
    };
    let (rank, affinity) = child(&mut pool, "child 1");
    assert_eq!((rank.worker.0, affinity), (home, AffinityOutcome::New));
    assert_eq!(pool.core.bound(pool.now, "child 1"), Some(rank), "it is a session of its own");
    let load = pool.fresh(100_000);
    pool.place(&Turn { pin: pin(Some(home), None), ..Turn::plain(load) }).unwrap();
    assert_ne!(child(&mut pool, "child 2").0.worker.0, home);
    assert_eq!(child(&mut pool, "child 1").0.worker.0, home);
}

#[test]
fn a_small_sub_agent_prompt_follows_the_parent_by_its_bonus() {
    let mut pool = Pool::new(3);
    let context = pool.fresh(2000);
    let home = pool.serve(&Turn::of("parent", context));
    for child in 0..6 {
        let tokens = pool.fresh(8);
        let name = format!("child {child}");
        let turn = Turn { parent: Some("parent"), ..Turn::of(&name, tokens) };
        assert_eq!(pool.serve(&turn), home);
        assert!(pool.core.unbind(pool.now, &name));
    }
}

#[test]
fn a_worker_that_joins_empty_is_not_flooded() {
    // C-OVL-03: three workers with ten running requests each; a fourth joins; 100 new sessions at once.
    let mut pool = Pool::new(3);
    for request in 0..30 {
        let tokens = pool.fresh(4000);
        pool.start(&Turn { pin: pin(Some(1 + request % 3), None), ..Turn::plain(tokens) });
    }
    pool.join(4);
    let mut placed = [0; 4];
    for name in names(100) {
        let tokens = pool.fresh(4000);
        placed[worker(&pool.place(&Turn::of(&name, tokens)).unwrap()) as usize - 1] += 1;
    }
    assert!((25..=60).contains(&placed[3]), "{placed:?}");
    assert!(placed[..3].iter().all(|count| *count >= 10), "{placed:?}");
}
