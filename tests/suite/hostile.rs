//! Damaged messages and hostile peers: bounded memory, no panic, and nobody else is disturbed.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::path::Path;

use anyhow::Result;
use roost_tests::{MODEL, Options, fixture};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A small deterministic generator (splitmix64), so that a failing round can be repeated by its number.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Everything recorded below a folder of the wire fixtures.
fn recorded(folder: &Path, into: &mut Vec<Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("the fixtures are there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            recorded(&path, into);
        } else {
            into.push(std::fs::read(&path).expect("readable"));
        }
    }
}

/// Flips, cuts, repeats and lengthens.
fn damage(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            1 => bytes.truncate(at),
            2 => {
                let tail = bytes.split_off(at);
                bytes.extend_from_slice(&random.next().to_be_bytes());
                bytes.extend(tail);
            }
            3 => bytes
                .splice(at..at, [[0xdd, 0xff, 0xff, 0xff, 0xff], [0xc6; 5], [0xff; 5]][random.below(3)])
                .for_each(drop),
            _ => {
                let from = random.below(at);
                let piece = bytes[from..at.min(bytes.len())].to_vec();
                bytes.splice(at..at, piece).for_each(drop);
            }
        }
    }
    bytes
}

#[test]
fn damaged_messages_are_refused_without_a_panic() {
    let mut corpus = Vec::new();
    recorded(&fixture("wire"), &mut corpus);
    assert!(corpus.len() > 30);
    // Also from somewhere within: bodies, items and payloads are what is behind a frame's prefix.
    let mut random = Random(1);
    for round in 0..6_000 {
        let mut bytes = corpus[random.below(corpus.len())].clone();
        bytes.drain(..random.below(bytes.len().min(600)) * (round % 3 / 2));
        bytes.truncate(8 * 1024);
        let bytes = damage(&mut random, bytes);
        for target in [targets::frame, targets::envelope, targets::card, targets::event] {
            let outcome = std::panic::catch_unwind(|| target(&bytes));
            assert!(outcome.is_ok(), "round {round}: {bytes:02x?}");
        }
    }
}

/// What a stranger sends, and whether the connection must be closed by the other side at once.
fn garbage() -> Vec<(&'static str, Vec<u8>)> {
    let prefix = |header: u64, body: u64| [header.to_be_bytes(), body.to_be_bytes(), [0; 8]].concat();
    let frame = |header: &[u8]| [prefix(header.len() as u64, 0), header.to_vec()].concat();
    vec![
        ("http", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()),
        ("huge header", prefix(u64::MAX, 0)),
        ("huge body", prefix(0, 1 << 40)),
        ("both huge", prefix(u64::MAX, u64::MAX)),
        ("no subject", frame(b"{\"stream_type\":\"response\"}")),
        (
            "unknown subject",
            frame(b"{\"subject\":\"0e5162b2-dba0-4d7c-9d3f-000000000000\",\"stream_type\":\"response\"}"),
        ),
        (
            "request stream",
            frame(b"{\"subject\":\"0e5162b2-dba0-4d7c-9d3f-000000000000\",\"stream_type\":\"request\"}"),
        ),
        ("no json", frame(b"\xff\xfe")),
        ("empty frame", prefix(0, 0)),
    ]
}

#[tokio::test]
async fn strangers_on_the_response_listener_disturb_nobody() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let home = cluster.response_address();
    let body = json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@drip@@"}]});
    let mut running = cluster.post("/v1/chat/completions", &body).stream().await?;
    assert!(running.next().await?.is_some());
    // Some that say nothing, or a byte now and then, stay connected all the while.
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut stranger = TcpStream::connect(home).await?;
        stranger.write_all(&[0]).await?;
        silent.push(stranger);
    }
    for (what, bytes) in garbage() {
        let mut stranger = TcpStream::connect(home).await?;
        stranger.write_all(&bytes).await?;
        let mut rest = Vec::new();
        // A reset is as good as an end.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(20), stranger.read_to_end(&mut rest))
            .await
            .unwrap_or_else(|_| panic!("{what}: still connected"));
        assert!(rest.len() < 64, "{what}: {rest:?}");
        assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200, "{what}");
    }
    let mut finished = false;
    while let Some(event) = running.next().await? {
        finished |= event["choices"][0]["finish_reason"].is_string();
    }
    assert!(finished, "who was served before is served to the end");
    drop(silent);
    Ok(())
}

#[tokio::test]
async fn strangers_on_a_workers_listener_disturb_nobody() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let address = cluster.workers[0].address();
    let path = cluster.workers[0].path().as_bytes().to_vec();
    let head = |path: &[u8], payload: u32| {
        let len = (path.len() as u16).to_be_bytes();
        [&len[..], path, &[0, 0], &payload.to_be_bytes()].concat()
    };
    let mut silent = TcpStream::connect(address).await?;
    silent.write_all(&head(&path, 1 << 20)).await?;
    for (what, bytes) in [
        ("http", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()),
        ("huge payload", head(&path, u32::MAX)),
        ("no message", head(&path, 0)),
        ("unknown path", head(b"nowhere", 0)),
        ("path of no text", head(&[0xff, 0xfe], 0)),
    ] {
        let mut stranger = TcpStream::connect(address).await?;
        stranger.write_all(&bytes).await?;
        stranger.shutdown().await?;
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(std::time::Duration::from_secs(20), stranger.read_to_end(&mut rest))
            .await
            .unwrap_or_else(|_| panic!("{what}: still connected"));
        assert!(rest.len() < 256, "{what}");
        assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200, "{what}");
    }
    Ok(())
}
