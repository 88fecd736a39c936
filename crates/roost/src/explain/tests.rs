use serde_json::json;

use super::*;

#[test]
fn a_decision_is_a_table() {
    let worker = |id: u64| json!({"id": id, "hex": format!("{id:x}"), "dp_rank": 1});
    let candidate = |id: u64, chosen: bool, cost: f64| {
        json!({
            "worker": worker(id), "chosen": chosen,
            "overlap_blocks": {"device": 12, "host": 3, "disk": 1, "external": 1},
            "load": {"prefill_tokens": 640, "active_blocks": 7, "active_requests": 2, "additional_blocks": 1},
            "cost": {"prefill": 30.5, "decode": 8.0, "requests": 0.0, "future": 1.0, "bonus": 2.0, "total": cost},
        })
    };
    let answer = json!({
        "bound": [{"model": "m", "role": "decode", "worker": worker(171)}],
        "decisions": [{
            "model": "m", "role": "decode", "number": 7, "age_ms": 1500, "request": "r", "session": "s",
            "isl_tokens": 700, "block_size": 16, "outcome": "placed", "worker": worker(171), "reason": "cost",
            "affinity": {"outcome": "rebound", "moved_because": "draining", "bound_before": worker(2)},
            "considered": 2, "candidates": [candidate(171, true, 37.5), candidate(3, false, 99.0)],
        }, {
            "model": "m", "role": "decode", "number": 6, "age_ms": 1600, "outcome": "rejected", "worker": null,
            "error": "no endpoints available to route work", "affinity": {"outcome": "none"}, "considered": 0,
            "isl_tokens": 1, "block_size": 16, "candidates": [],
        }],
    });
    let shown = table(&answer, 2);
    for part in [
        "bound to ab/1 (m, decode)",
        "#7 placed on ab/1 by cost, 1.5 s ago",
        "request r, session s, 700 prompt tokens in blocks of 16",
        "affinity rebound, was bound to 2/1, moved because draining",
        "#6 rejected: no endpoints available to route work",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let chosen: Vec<&str> = shown.lines().filter(|line| line.starts_with(" *")).collect();
    assert_eq!(chosen.len(), 1, "{shown}");
    let cells: Vec<&str> = chosen[0].split_whitespace().collect();
    let expected = "* ab/1 12 3 2 640 7 2 30.5 8.0 0.0 1.0 2.0 37.5";
    assert_eq!(cells.join(" "), expected);
    // Every number ends below the end of its title.
    let titles = shown.lines().find(|line| line.contains("worker/rank")).unwrap();
    let ends = |line: &str| -> Vec<usize> {
        let is_end = |at: &usize| line[*at..].starts_with(' ') && !line[..*at].ends_with(' ');
        (1..line.len()).filter(is_end).chain([line.len()]).collect()
    };
    assert_eq!(ends(chosen[0])[2..], ends(titles)[1..], "{shown}");
    assert!(!table(&answer, 1).contains("#6"));
}
