use serde_json::json;

use super::*;

#[test]
fn urls_name_a_host_and_a_port() {
    for (url, expected) in [
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://router/", "router:80"),
        ("router:9", "router:9"),
        ("http://[::1]:8000/x", "[::1]:8000"),
        ("http://[::1]", "[::1]:80"),
    ] {
        assert_eq!(authority(url).unwrap(), expected, "{url}");
    }
    assert!(authority("https://router").unwrap_err().to_string().contains("https"));
    assert!(authority("http:///x").is_err());
}

#[test]
fn a_url_may_be_a_socket() {
    for url in ["unix:/run/roost.sock", "unix:///run/roost.sock"] {
        assert_eq!(Frontend::of(url).unwrap(), Frontend::Socket("/run/roost.sock".into()), "{url}");
    }
    assert_eq!(Frontend::of("router:9").unwrap(), Frontend::Network("router:9".to_owned()));
    assert!(Frontend::of("unix:").unwrap_err().to_string().contains("no socket"));
}

#[tokio::test]
async fn a_socket_is_asked_like_a_host() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("roost.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 1024];
        let length = stream.read(&mut request).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"decisions\":[]}";
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request[..length].to_vec()).unwrap()
    });
    let (status, answer) = Frontend::Socket(path).get("/debug/routing").await.unwrap();
    assert_eq!((status, &answer["decisions"]), (200, &json!([])));
    assert!(server.await.unwrap().starts_with("GET /debug/routing HTTP/1.1\r\n"));
}

#[test]
fn ids_are_escaped() {
    assert_eq!(escape("a b/c%ä-1"), "a%20b%2Fc%25%C3%A4-1");
}

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
    assert!(!table(&answer, 1).contains("#6"));
}
