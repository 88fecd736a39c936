use roost_config::{Command, Environment, parse};

use super::*;

fn options(line: &[&str]) -> Replay {
    let line = ["replay-routing"].iter().chain(line);
    match parse(line, &Environment::default()) {
        Ok(Command::Replay(options)) => *options,
        other => panic!("{other:?}"),
    }
}

/// Two requests of 2048 equal tokens, ten seconds apart.
const MOONCAKE: &str = r#"{"timestamp": 0, "input_length": 2048, "output_length": 2, "hash_ids": [1, 2, 3, 4]}
{"timestamp": 10000, "input_length": 2048, "output_length": 2, "hash_ids": [1, 2, 3, 4]}
"#;

#[test]
fn sets_are_compared_side_by_side() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), MOONCAKE).unwrap();
    let line = [
        file.path().to_str().unwrap(),
        "--ramp-secs",
        "0",
        "--workers",
        "2",
        "--with",
        "kv: --router-session-affinity-mode off",
        "--with",
        "in turn: --router-mode round-robin",
        "--json",
    ];
    let json: serde_json::Value = serde_json::from_str(&report(&options(&line)).unwrap()).unwrap();
    let figures: Vec<_> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|o| (&o["name"], &o["cached_tokens"], &o["possible_rate"]))
        .collect();
    assert_eq!(figures[0], (&"kv".into(), &2048.into(), &0.5.into()));
    assert_eq!(figures[1], (&"in turn".into(), &0.into(), &0.5.into()));
    let text = report(&options(&line[..line.len() - 1])).unwrap();
    assert!(
        text.contains("\n| kv | 50.00 | 50.00 | 0.00 |") && text.contains("\n| in turn | 0.00 |"),
        "{text}"
    );
}

#[test]
fn a_generated_trace_needs_no_file() {
    let line = ["--generate", "sessions=4,turns=0.1", "--workers", "2", "--ramp-secs", "0"];
    let text = report(&options(&line)).unwrap();
    assert!(text.starts_with("4 sessions, ") && text.contains("| default |"), "{text}");
}

#[test]
fn mistakes_are_named() {
    let error = |line: &[&str]| {
        let line = ["replay-routing"].iter().chain(line);
        parse(line, &Environment::default()).unwrap_err().to_string()
    };
    assert!(error(&[]).contains("a trace or --generate is needed"));
    assert!(error(&["t", "--with", "strict"]).contains("name: options"));
    assert!(error(&["t", "--with", "x: --router-mod kvv"]).contains("`x`"));
    let missing = report(&options(&["/nowhere/trace.jsonl"])).unwrap_err();
    assert!(format!("{missing:#}").contains("/nowhere/trace.jsonl"));
}
