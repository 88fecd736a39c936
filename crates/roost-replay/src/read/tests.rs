use std::time::Duration;

use super::*;
use crate::{Origin, Prompts, Start};

fn prompts(trace: &Trace) -> Vec<Vec<Vec<u64>>> {
    let session = |(number, session): (usize, &Session)| {
        let mut prompts = Prompts::new(number);
        let turn = |turn| prompts.next(turn).iter().map(|block| block.0).collect();
        session.turns.iter().map(turn).collect()
    };
    trace.sessions.iter().enumerate().map(session).collect()
}

fn common(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[test]
fn mooncake_lines_become_requests_of_complete_blocks() {
    let text = r#"{"timestamp": 0, "input_length": 1600, "output_length": 52, "hash_ids": [46, 47, 48, 49]}
{"timestamp": 2500, "input_length": 1100, "output_length": 26, "hash_ids": [46, 47, 50]}

{"session_id": "a", "delay": 750, "input_length": 512, "output_length": 4, "hash_ids": [46]}"#;
    let trace = read([text], 512).unwrap();
    assert_eq!(trace.block_size, 512);
    let prompts = prompts(&trace);
    assert_eq!(prompts.iter().map(|session| session[0].len()).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(common(&prompts[0][0], &prompts[1][0]), 2);
    let turns: Vec<_> = trace.sessions.iter().map(|session| &session.turns[0]).collect();
    assert_eq!(turns[1].start, Start::At(Duration::from_millis(2500)));
    assert_eq!(turns[2].start, Start::After(Duration::from_millis(750)));
    assert_eq!((turns[0].prompt_tokens, turns[0].output_tokens), (1600, 52));
    assert_eq!((trace.sessions[0].id.as_str(), trace.sessions[2].id.as_str()), ("", "a"));
}

/// The record is that of the peer's documentation, shortened.
#[test]
fn dynamo_records_become_sessions_with_their_pauses() {
    let record = |session: &str, received: u64, took: u64, hashes: &str, length: u32| {
        format!(
            r#"{{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":{},"event_source":"dynamo","agent_context":{{"session_id":"{session}","parent_session_id":null}},"request":{{"request_id":"r","model":"m","output_tokens":9,"request_received_ms":{received},"total_time_ms":{took}.5,"replay":{{"trace_block_size":64,"input_length":{length},"input_sequence_hashes":{hashes}}}}}}}"#,
            received + took
        )
    };
    let tool = r#"{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1,"tool":{"tool_call_id":"c","tool_class":"x"}}"#;
    let text = [
        record("s", 1_000_000, 2000, "[18446744073709551615,2,3]", 140),
        tool.to_owned(),
        record("t", 1_000_500, 100, "[18446744073709551615,7]", 128),
        record("s", 1_012_000, 50, "[18446744073709551615,2,4,5]", 256),
    ]
    .join("\n");
    let trace = read([text.as_str()], 512).unwrap();
    let starts: Vec<Vec<Start>> =
        trace.sessions.iter().map(|session| session.turns.iter().map(|turn| turn.start).collect()).collect();
    let after = Duration::from_secs_f64((12_000.0 - 2000.5) / 1e3);
    assert_eq!(starts[0], [Start::At(Duration::ZERO), Start::After(after)]);
    assert_eq!(starts[1], [Start::At(Duration::from_millis(500))]);
    let prompts = prompts(&trace);
    assert_eq!(common(&prompts[0][0], &prompts[0][1]), 2);
    assert_eq!(
        (prompts[0][0].len(), prompts[0][1].len()),
        (2, 4),
        "the third hash of 140 tokens is no block"
    );
    assert_eq!(common(&prompts[0][0], &prompts[1][0]), 1);
    assert_eq!(trace.sessions[0].turns[1].kept, 2);
}

#[test]
fn weka_files_nest_sub_agents_and_share_only_what_is_common() {
    let file = |id: &str| {
        format!(
            r#"{{"id":"{id}","models":["m"],"block_size":64,"hash_id_scope":"local","tool_tokens":64,"system_tokens":70,
"requests":[
 {{"t":0.0,"type":"s","in":256,"out":10,"hash_ids":[1,2,3,4],"api_time":1.0,"think_time":0.0}},
 {{"t":1.2,"type":"subagent","agent_id":"agent_1","tool_tokens":64,"system_tokens":0,"requests":[
   {{"t":1.3,"type":"s","in":128,"out":5,"hash_ids":[9,10],"api_time":0.5}},
   {{"t":2.8,"type":"s","in":192,"out":5,"hash_ids":[9,10,11],"api_time":0.5}}]}},
 {{"t":5.0,"type":"s","in":330,"out":12,"hash_ids":[1,2,3,4,5,6],"api_time":1.0,"think_time":3.5}}]}}"#
        )
    };
    let (a, b) = (file("a"), file("b"));
    let trace = read([a.as_str(), b.as_str()], 512).unwrap();
    let ids: Vec<&str> = trace.sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["a", "a.1.agent_1", "b", "b.1.agent_1"]);
    assert_eq!(trace.sessions[3].origin, Some(Origin { session: 2, turn: 0, inherited: 0 }));
    let turns = &trace.sessions[0].turns;
    assert_eq!((turns[1].kept, turns[1].start), (4, Start::After(Duration::from_millis(3500))));
    assert_eq!(trace.sessions[1].turns[1].start, Start::After(Duration::from_secs(1)), "from the times");
    let prompts = prompts(&trace);
    assert_eq!(prompts[0][1].len(), 5);
    assert_eq!(common(&prompts[0][0], &prompts[2][0]), 2, "two complete blocks of tools and system prompt");
    assert_eq!(common(&prompts[0][0], &prompts[1][0]), 0);
}

#[test]
fn what_cannot_be_read_is_said() {
    let error = |text: &str| read([text], 512).unwrap_err().to_string();
    assert!(error(r#"{"a": 1}"#).contains("neither"));
    assert!(error("{\"a\": 1}\n{").starts_with("line 2"));
    assert!(error(r#"{"schema":"dynamo.request.trace.v1","request":{}}"#).contains("replay"));
    let lines = r#"{"input_length": 9, "hash_ids": [1], "timestamp": 0}"#;
    let other = r#"{"requests":[{"in":64,"out":1,"hash_ids":[1]}],"block_size":64}"#;
    assert!(read([lines, other], 512).unwrap_err().to_string().contains("512 and of 64"));
}
