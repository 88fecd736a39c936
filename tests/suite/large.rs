//! Bodies of the sizes that the case names (C-SEC-01), with the default limit of 45 MB. By hand: minutes and much memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use roost_tests::{Cluster, MODEL, Options};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const MB: usize = 1_000_000;
/// Bodies beyond the limit, at the same time.
const LARGE: usize = 20;

/// A number of `/proc/self/status`, KiB.
fn status(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
    Ok(line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?)
}

fn body(bytes: usize) -> String {
    let content = format!("@@hello@@{}", "word ".repeat(bytes / 5));
    json!({"model": MODEL, "messages": [{"role": "user", "content": content}]}).to_string()
}

/// Sends as fast as it can and listens at the same time; returns the head of the answer and the bytes it could send.
async fn send(address: SocketAddr, body: Arc<String>, chunked: bool) -> Result<(String, usize)> {
    let (mut from, mut to) = TcpStream::connect(address).await?.into_split();
    let length = match chunked {
        true => "transfer-encoding: chunked".to_owned(),
        false => format!("content-length: {}", body.len()),
    };
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
    );
    let sending = async {
        let mut sent = 0;
        to.write_all(head.as_bytes()).await?;
        for piece in body.as_bytes().chunks(100_000) {
            if chunked {
                to.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
            }
            to.write_all(piece).await?;
            if chunked {
                to.write_all(b"\r\n").await?;
            }
            sent += piece.len();
        }
        if chunked {
            to.write_all(b"0\r\n\r\n").await?;
        }
        std::io::Result::Ok(sent)
    };
    let mut answer = vec![0; 4096];
    let hearing = async {
        let mut len = 0;
        while !String::from_utf8_lossy(&answer[..len]).contains("\r\n\r\n") {
            match from.read(&mut answer[len..]).await? {
                0 => break,
                more => len += more,
            }
        }
        std::io::Result::Ok(len)
    };
    let (sent, len) = tokio::join!(sending, hearing);
    let text = String::from_utf8_lossy(&answer[..len?]).into_owned();
    ensure!(!text.is_empty(), "closed without an answer");
    Ok((text, sent.unwrap_or(0)))
}

async fn twenty(cluster: &Cluster, chunked: bool) -> Result<()> {
    let large = Arc::new(body(50 * MB));
    let mut running = JoinSet::new();
    for _ in 0..LARGE {
        running.spawn(send(cluster.address, Arc::clone(&large), chunked));
    }
    while let Some(answer) = running.join_next().await {
        let (text, _) = answer??;
        ensure!(text.starts_with("HTTP/1.1 413 "), "{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the case's own sizes; prints memory"]
async fn c_sec_01_bodies_of_the_sizes_of_the_case() -> Result<()> {
    let mut options = Options::new(1);
    // A token of the test model is a byte.
    options.context_length = 100_000_000;
    options.block_size = 1 << 15;
    options.client.max_message_bytes = 256 << 20;
    let cluster = options.start().await?;
    for size in [1, 3, 10, 40] {
        let started = Instant::now();
        let (text, _) = send(cluster.address, Arc::new(body(size * MB)), false).await?;
        assert!(text.starts_with("HTTP/1.1 200 "), "{size} MB: {text}");
        println!("{size} MB: 200 after {:?}", started.elapsed());
    }
    for chunked in [false, true] {
        let before = status("VmRSS")?;
        // The peak from here on.
        std::fs::write("/proc/self/clear_refs", "5")?;
        let started = Instant::now();
        twenty(&cluster, chunked).await?;
        let (took, peak) = (started.elapsed(), status("VmHWM")?.saturating_sub(before));
        let after = status("VmRSS")?.saturating_sub(before);
        println!(
            "{LARGE} of 50 MB, chunked {chunked}: {took:?}, {peak} KiB more at the peak, {after} KiB after"
        );
        assert!(peak < LARGE as u64 * 45_000, "{peak} KiB");
        assert!(after < 200_000, "{after} KiB");
    }
    let zipped = cluster.chat("@@hello@@").header("content-encoding", "gzip").send().await?;
    assert_eq!(zipped.status, 415, "{}", zipped.text());
    cluster.until_idle().await
}
