//! Files of traces as other tools have them, read and replayed.

use std::time::Duration;

use anyhow::Result;
use roost_replay::{FleetConfig, Outcome, Pace, Start, Trace, read, replay};
use roost_router::{Config, Mode};
use roost_tests::fixture;

fn trace(name: &str) -> Result<Trace> {
    let text = std::fs::read_to_string(fixture("traces").join(name))?;
    Ok(read([text.as_str()], 512)?)
}

/// One rank that forgets nothing.
fn on_one_rank(trace: &Trace) -> Result<Outcome> {
    let fleet = FleetConfig { workers: 1, ..FleetConfig::default() };
    let pace = Pace { ramp: Duration::ZERO, ..Pace::default() };
    Ok(replay(trace, "one", Config { mode: Mode::Kv, ..Config::default() }, &fleet, &pace, 1)?)
}

#[test]
fn mooncake_records_with_and_without_ids() -> Result<()> {
    let trace = trace("aiperf_production.jsonl")?;
    assert_eq!((trace.block_size, trace.sessions.len(), trace.requests()), (512, 10, 10));
    let turns = || trace.sessions.iter().map(|session| &session.turns[0]);
    let prompts: Vec<u32> = turns().map(|turn| turn.prompt_tokens).collect();
    assert_eq!(prompts, [512, 256, 1024, 384, 768, 1536, 256, 512, 2048, 384]);
    assert_eq!(turns().next_back().map(|turn| turn.start), Some(Start::At(Duration::from_millis(1500))));
    let outcome = on_one_rank(&trace)?;
    // 768 tokens are one complete block, `1`; then `1 2` of three; then `1 2` of four. All others are like none.
    assert_eq!((outcome.requests, outcome.prompt_tokens), (10, 7680));
    assert_eq!(outcome.possible_tokens, 512 + 1024 + 1024);
    Ok(())
}

/// What a live frontend counted when AIPerf replayed the file, each with the tokens of the template and of the seams
/// between texts: 8 for a prompt, 10 to 14 for each further turn.
const MEASURED: [u32; 31] = [
    53428, 53703, 53837, 53962, 54110, 54580, 55012, 55237, 55463, 55493, 55671, 55724, 56075, 56490, 56672,
    56797, 56913, 57210, 57365, 57466, 57587, 57687, 57864, 57931, 58247, 58577, 59936, 59962, 59974, 60007,
    60007,
];

#[test]
fn sessions_of_aiperf_grow_by_what_their_records_add() -> Result<()> {
    let trace = trace("aiperf_agentic_code.jsonl")?;
    assert_eq!((trace.sessions.len(), trace.requests()), (12, 31));
    let turns = trace.sessions.iter().flat_map(|session| &session.turns);
    let mut prompts: Vec<u32> = turns.map(|turn| turn.prompt_tokens).collect();
    prompts.sort_unstable();
    for (prompt, measured) in prompts.into_iter().zip(MEASURED) {
        assert!((prompt + 8..prompt + 100).contains(&measured), "{prompt}, measured {measured}");
    }
    for session in &trace.sessions {
        for turns in session.turns.windows(2) {
            assert_eq!(turns[1].kept, turns[0].prompt_tokens / 512, "all complete blocks of the turn before");
            assert!(matches!(turns[1].start, Start::After(pause) if pause > Duration::ZERO));
        }
    }
    // All sessions begin with the same 32,000 tokens, and those of a group with more.
    let outcome = on_one_rank(&trace)?;
    assert!(outcome.possible_tokens > 11 * 32_000 / 512 * 512 + 19 * 50_000, "{outcome:?}");
    Ok(())
}

#[test]
fn a_weka_session_with_a_sub_agent() -> Result<()> {
    let trace = trace("weka_session.json")?;
    let [session, agent] = &trace.sessions[..] else { panic!("two sessions: {trace:?}") };
    assert_eq!((trace.block_size, session.id.as_str()), (64, "trace_0013"));
    assert_eq!(agent.parent.as_deref(), Some("trace_0013"));
    let shape = |session: &roost_replay::Session| -> Vec<(u32, u32, u32)> {
        session.turns.iter().map(|turn| (turn.prompt_tokens, turn.output_tokens, turn.kept)).collect()
    };
    assert_eq!(shape(session), [(15688, 53, 0), (18942, 458, 245), (27289, 301, 295)]);
    assert_eq!(shape(agent), [(6400, 40, 0), (7040, 60, 100)]);
    assert_eq!(session.turns[1].start, Start::After(Duration::from_secs(7)));
    assert_eq!(agent.origin.map(|origin| (origin.session, origin.turn)), Some((0, 1)));
    let outcome = on_one_rank(&trace)?;
    assert_eq!((outcome.requests, outcome.prompt_tokens), (5, 15688 + 18942 + 27289 + 6400 + 7040));
    assert_eq!(
        (outcome.cached_tokens, outcome.possible_tokens),
        ((245 + 295 + 100) * 64, (245 + 295 + 100) * 64)
    );
    Ok(())
}
