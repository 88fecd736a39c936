use roost_config::{Frontend, TopOrder};
use serde_json::json;

use super::view::{Style, quantile, screen};
use super::*;
use crate::exits;

fn options() -> Top {
    let frontend = Frontend { url: "http://r:1".into(), api_key: None, ca: None, certificate: None };
    let interval = Duration::from_secs(2);
    Top { frontend, once: true, interval, order: TopOrder::Requests, filter: String::new(), limit: 20 }
}

const WIDE: Style = Style { size: (usize::MAX, usize::MAX), is_coloured: false };

fn rank(worker: &str, running: u64, state: &str) -> Value {
    json!({
        "worker": worker, "dp_rank": 1, "address": "10.0.0.1:9", "sessions": 3, "active_requests": running,
        "prefill_tokens": 12_345, "active_blocks": 40, "used_blocks": null, "total_blocks": 160, "placed": 70,
        "asked_tokens": 1000, "cached_tokens": 250, "state": state, "events": true,
    })
}

fn state(at_ms: u64, succeeded: u64) -> Value {
    let seen =
        json!({"bounds": [0.1, 0.2, 0.4], "cumulative": [0, succeeded, succeeded], "count": succeeded});
    json!({
        "at_ms": at_ms, "state": "ready",
        "alarms": [{"level": "warning", "code": "queue", "text": "m: 2 requests wait for room."}],
        "curves": {"active": 6, "succeeded": succeeded, "failed": 1, "output_tokens": 100 * succeeded, "ttft_s": seen, "itl_s": seen},
        "pools": [{
            "model": "m", "role": "decode", "active_requests": 6, "queued_requests": 2, "bindings": 6,
            "ranks": [rank("aa", 1, "ready"), rank("bb", 5, "quarantined")],
            "sessions": {"found": 70, "longest": [{
                "session": "s\u{1b}[2J", "worker": "bb", "dp_rank": 1, "running": 0, "turns": 9, "rebinds": 1,
                "context_tokens": 104_000, "hit_rate": 0.963, "bound_for_s": 7200, "idle_s": 4,
            }]},
        }],
    })
}

#[test]
fn all_of_a_state_is_in_its_place() {
    let shown = screen(&options(), None, &state(0, 40), WIDE);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "roost ready  running 6  succeeded 40  failed 1");
    assert_eq!(lines[1], "warning: m: 2 requests wait for room.");
    assert_eq!(lines[3], "m decode: 2 ranks, 6 running, 2 waiting, 6 sessions, hit rate 25%");
    assert_eq!(
        lines[5],
        "bb/1                  quarantined       5     12.3k    25%        3   25%       70  10.0.0.1:9"
    );
    assert!(lines[6].starts_with("aa/1 "), "the most loaded first: {shown}");
    let session = lines[9];
    assert!(session.starts_with("s?[2J "), "no names of control: {session}");
    assert!(
        session.contains("104.0k") && session.contains("96%") && session.ends_with("2.0h  idle 4.0s"),
        "{session}"
    );
    assert_eq!(lines[10], "… 69 more sessions");
    assert!(!shown.contains('\x1b'));
}

#[test]
fn two_states_tell_what_happened_between_them() {
    let shown = screen(&options(), Some(&state(0, 40)), &state(2000, 60), WIDE);
    let head = shown.lines().next().unwrap();
    assert!(head.contains("requests/s 10 (failed 0)  tokens/s 1.0k  ttft p50 150ms p99 199ms"), "{head}");
    assert_eq!(quantile(&state(0, 1)["curves"]["ttft_s"], &state(0, 1)["curves"]["ttft_s"], 0.5), None);
}

#[test]
fn it_fits_the_terminal_and_follows_the_options() {
    let small = Style { size: (20, 5), is_coloured: true };
    let shown = screen(&options(), None, &state(0, 40), small);
    assert_eq!(shown.lines().count(), 5);
    assert!(shown.contains("\x1b[33mwarning: m: 2 reque…\x1b[0m"), "{shown:?}");
    let chosen = Top { filter: "aa".into(), limit: 1, ..options() };
    let shown = screen(&chosen, None, &state(0, 40), WIDE);
    assert!(shown.contains("aa/1") && !shown.contains("quarantined"), "{shown}");
    let first = Top { limit: 1, ..options() };
    assert!(screen(&first, None, &state(0, 40), WIDE).contains("… 1 more ranks"));
}

#[test]
fn what_is_no_state_harms_nobody() {
    for odd in [json!(null), json!([]), json!({"pools": [{"ranks": [null]}], "alarms": 3})] {
        assert!(screen(&options(), Some(&odd), &odd, WIDE).starts_with("roost -"));
    }
}

/// The whole way: a worker, a frontend, a running session, and the program itself.
#[test]
fn once_of_a_live_frontend() {
    let store = tempfile::TempDir::new().unwrap();
    let options = ["--router-mode", "kv", "--router-session-affinity-ttl-secs", "600"];
    let (_worker, frontend, address) = exits::deployment(&store, &options);
    let answer = exits::begin(address, 100_000);
    let url = format!("http://{address}");
    let (status, text) = exits::said(&["top", "--once", "--url", &url]);
    assert_eq!(status, 0, "{text}");
    let shown: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("roost ")).collect();
    assert_eq!(shown[0], "roost ready  running 1  succeeded 0  failed 0");
    assert_eq!(shown[2], "mock-model aggregated: 1 ranks, 1 running, 0 waiting, 1 sessions, hit rate 0%");
    let session = shown.iter().find(|line| line.starts_with("s  ")).unwrap_or_else(|| panic!("{text}"));
    assert!(session.ends_with("1 running"), "{session}");
    assert!(!text.contains('\x1b'), "no colours and no other screen where there is no terminal: {text:?}");
    let (status, text) = exits::said(&["top", "--once", "--url", &url, "nobody"]);
    assert!(status == 0 && !text.contains("\ns  "), "{text}");
    drop(answer);
    drop(frontend);
    assert_eq!(exits::said(&["top", "--once", "--url", &url]).0, 1, "nobody there");
}
