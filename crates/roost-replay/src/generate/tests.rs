use super::*;
use crate::Shape;

fn shape() -> Shape {
    let generator = Generator { sessions: 1500, ..Generator::default() };
    Shape::of(&generator.trace(), true)
}

/// The figures of the measured trace, each with the distance allowed.
#[test]
fn it_looks_like_the_measured_trace() {
    let shape = shape();
    let near = |what: &str, got: u32, measured: f64, allowed: f64| {
        let ratio = f64::from(got) / measured;
        assert!((1.0 / allowed..=allowed).contains(&ratio), "{what}: {got} for {measured}");
    };
    for (share, measured) in [(0.1, 42e3), (0.5, 104e3), (0.9, 234e3), (0.99, 499e3)] {
        near(&format!("prompt p{}", share * 100.0), shape.prompt_tokens(share), measured, 1.1);
    }
    for (share, measured) in [(0.1, 105.0), (0.5, 216.0), (0.9, 898.0), (0.99, 3687.0)] {
        near(&format!("answer p{}", share * 100.0), shape.output_tokens(share), measured, 1.1);
    }
    for (share, measured) in [(0.5, 46.0), (0.9, 160.0)] {
        near(&format!("turns p{}", share * 100.0), shape.turns(share), measured, 1.1);
    }
    for (share, measured) in [(0.5, 704.0), (0.9, 4_800.0), (0.99, 94e3)] {
        near(&format!("new p{}", share * 100.0), shape.new_tokens(share), measured, 1.1);
    }
    let seen = shape.seen_in_session();
    assert!((0.955..0.97).contains(&seen), "{seen} seen in the session");
}

#[test]
fn equal_options_give_equal_traces_and_a_further_session_changes_none() {
    let generator = Generator { sessions: 12, ..Generator::default() };
    let trace = generator.trace();
    assert_eq!(trace, generator.trace());
    assert_ne!(trace, Generator { seed: 2, ..generator.clone() }.trace());
    let more = Generator { sessions: 13, ..generator }.trace();
    assert_eq!(trace.sessions[..], more.sessions[..trace.sessions.len()]);
}

#[test]
fn every_prompt_has_the_blocks_its_length_says() {
    let trace = Generator { sessions: 40, subagents: 0.2, forks: 0.5, ..Generator::default() }.trace();
    let mut last = std::collections::BTreeMap::<_, crate::Prompts>::new();
    let mut forks = 0;
    for (number, session) in trace.sessions.iter().enumerate() {
        let mut prompts = match session.origin {
            Some(origin) => {
                forks += usize::from(origin.inherited > 0);
                last[&(origin.session, origin.turn)].fork(number, origin.inherited)
            }
            None => crate::Prompts::new(number),
        };
        for (index, turn) in session.turns.iter().enumerate() {
            let blocks = prompts.next(turn);
            assert_eq!(blocks.len() as u32, turn.prompt_tokens / trace.block_size, "{} {index}", session.id);
            last.insert((number, index), prompts.clone());
        }
    }
    assert!(forks > 10, "{forks} sub-agents begin like their parent");
    // Sessions of one application share its tools and system prompt, and nothing else.
    let firsts: Vec<_> = (0..trace.sessions.len()).filter(|s| trace.sessions[*s].origin.is_none()).collect();
    let prefix = 15_100 / 64;
    let common = |a: usize, b: usize| {
        let [a, b] = [a, b].map(|session| last[&(firsts[session], 0)].blocks());
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    };
    let lengths: std::collections::BTreeSet<_> = (1..firsts.len()).map(|other| common(0, other)).collect();
    assert_eq!(lengths, [0, prefix].into());
}

#[test]
fn options_are_read_and_mistakes_named() {
    let read: Generator = "sessions=3, seed=9,think=0.5".parse().unwrap();
    assert_eq!(read, Generator { sessions: 3, seed: 9, think: 0.5, ..Generator::default() });
    for (text, part) in [
        ("sessions", "NAME=VALUE"),
        ("session=3", "not known"),
        ("sessions=0", "1 to 1000000"),
        ("forks=2", "0 to 1"),
    ] {
        let error = text.parse::<Generator>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
