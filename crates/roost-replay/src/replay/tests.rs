use roost_router::{AffinityConfig, Mode};

use super::*;
use crate::{Content, Generator, Origin, Session, Turn};

fn turn(prompt_tokens: u32, kept: u32, pause: u64) -> Turn {
    let content = Content::Fresh(prompt_tokens / 10 - kept);
    Turn { start: Start::After(Duration::from_secs(pause)), prompt_tokens, output_tokens: 11, kept, content }
}

fn session(id: &str, turns: Vec<Turn>) -> Session {
    Session { id: id.to_owned(), parent: None, origin: None, turns }
}

fn trace(sessions: Vec<Session>) -> Trace {
    Trace { block_size: 10, sessions }
}

fn fleet(workers: u32, cache_tokens: u64) -> FleetConfig {
    FleetConfig {
        workers,
        cache_tokens,
        prefill_speed: 100.0,
        decode_step: Duration::from_millis(100),
        decode_step_each: Duration::ZERO,
        ..FleetConfig::default()
    }
}

fn pace() -> Pace {
    Pace { ramp: Duration::ZERO, ..Pace::default() }
}

fn config(mode: Mode) -> Config {
    Config { mode, ..Config::default() }
}

fn run(trace: &Trace, mode: Mode, fleet: &FleetConfig) -> Outcome {
    replay(trace, "test", config(mode), fleet, &pace(), 7).unwrap()
}

#[test]
fn a_second_turn_pays_for_what_is_new() {
    // 1000 tokens, 10 s; 1 s for the answer; 5 s of pause; then 1000 of 1205 cached.
    let trace = trace(vec![session("a", vec![turn(1000, 0, 0), turn(1205, 100, 5)])]);
    let outcome = run(&trace, Mode::Kv, &fleet(1, 100_000));
    assert_eq!((outcome.requests, outcome.prompt_tokens, outcome.cached_tokens), (2, 2205, 1000));
    assert_eq!((outcome.best_tokens, outcome.possible_tokens), (1000, 1000));
    assert_eq!((outcome.first_token.p99, outcome.first_token.mean), (10.0, (10.0 + 2.05) / 2.0));
    assert_eq!(outcome.seconds, 10.0 + 1.0 + 5.0 + 2.05 + 1.0);
}

#[test]
fn a_turn_on_the_wrong_worker_is_regretted() {
    let trace = trace(vec![session("a", vec![turn(1000, 0, 0), turn(1200, 100, 5)])]);
    let wrong = run(&trace, Mode::RoundRobin, &fleet(2, 100_000));
    assert_eq!((wrong.cached_tokens, wrong.best_tokens, wrong.possible_tokens), (0, 1000, 1000));
    assert_eq!((wrong.regret(), wrong.lost_to_placement()), (1000.0 / 2200.0, 1000.0 / 2200.0));
    let right = run(&trace, Mode::Kv, &fleet(2, 100_000));
    assert_eq!((right.cached_tokens, right.regret()), (1000, 0.0));
}

#[test]
fn what_was_evicted_is_possible_but_on_no_rank() {
    // The second session's prompt leaves room for the first 20 blocks of the first one's.
    let first = session("a", vec![turn(1000, 0, 0), turn(1000, 100, 100)]);
    let second = session("b", vec![turn(800, 0, 50)]);
    let outcome = run(&trace(vec![first, second]), Mode::Kv, &fleet(1, 1020));
    // Each has 11 tokens of answer, two blocks, reserved while it runs.
    assert_eq!((outcome.cached_tokens, outcome.best_tokens), (200, 200));
    assert_eq!(outcome.possible_tokens, 1000);
}

#[test]
fn a_parent_waits_for_its_sub_agents_and_they_begin_like_it() {
    let parent = session("a", vec![turn(1000, 0, 0), turn(1000, 100, 0)]);
    let child = |id: &str| Session {
        parent: Some("a".to_owned()),
        origin: Some(Origin { session: 0, turn: 0, inherited: 50 }),
        ..session(id, vec![turn(600, 50, 0)])
    };
    let outcome = run(&trace(vec![parent, child("b"), child("c")]), Mode::Kv, &fleet(1, 100_000));
    assert_eq!((outcome.requests, outcome.cached_tokens), (4, 500 + 500 + 1000));
    // 11 s for the first turn, 1 s each for what the sub-agents add, the second one's answer, one token and an answer.
    assert_eq!(outcome.seconds, 11.0 + 2.0 + 1.0 + 0.01 + 1.0);
}

#[test]
fn requests_wait_in_the_router_when_asked_to_and_all_come_back() {
    let sessions = (0..6).map(|n| session(&n.to_string(), vec![turn(1000, 0, 0)])).collect();
    let trace = trace(sessions);
    let mut config = config(Mode::Kv);
    config.queue.threshold = Some(0.0);
    let outcome = replay(&trace, "test", config, &fleet(2, 100_000), &pace(), 7).unwrap();
    assert_eq!((outcome.requests, outcome.refused), (6, 0));
    assert_eq!(outcome.wait.p99, 20.0, "two prefills of 10 s are before the last");
    assert_eq!(outcome.computed.max_over_mean, 1.0);
}

#[test]
fn lanes_bound_what_runs_and_the_same_input_gives_the_same_result() {
    let trace = Generator { sessions: 30, turns: 0.2, ..Generator::default() }.trace();
    let affinity = AffinityConfig { ttl: Some(Duration::from_secs(3600)), ..AffinityConfig::default() };
    let run = |lanes| {
        let config = Config { affinity, ..config(Mode::Kv) };
        let pace = Pace { lanes, ramp: Duration::from_secs(10), ..Pace::default() };
        replay(&trace, "test", config, &FleetConfig { workers: 4, ..FleetConfig::default() }, &pace, 7)
            .unwrap()
    };
    let few = run(3);
    assert_eq!(few, run(3));
    assert!(few.requests < run(0).requests, "it ends when the last session has begun");
    assert!(few.hit_rate() > 0.5 && few.hit_rate() <= few.possible_rate());
}
