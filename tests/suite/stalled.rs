//! Clients that do not read their answers (C-STR-05).

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_tests::{Cluster, MODEL, Options};
use roost_worker::Finish;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

const CLIENTS: usize = 50;
/// Items of an answer, and tokens of an item: many times what the system keeps of a connection on its way.
const ITEMS: u64 = 50_000;
const PER_ITEM: u64 = 30;

/// Asks for an endless answer with a tiny window, and reads nothing.
async fn stuck(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut stream = socket.connect(address).await?;
    let body =
        json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@flood@@"}]})
            .to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(stream)
}

/// Resident set, KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

async fn until_running(cluster: &Cluster, count: usize) -> Result<()> {
    let running = async || Ok(cluster.workers[0].journal().requests().len() >= count);
    cluster.until("the worker has the requests", running).await
}

fn options() -> Options {
    let mut options = Options::new(1);
    options.context_length = 2_000_000;
    let flood = json!([{"text_repeat": ["z", ITEMS * PER_ITEM], "per": PER_ITEM}, {"finish": "stop"}]);
    options.scripts.insert("flood", serde_json::from_value(flood).expect("steps"));
    options
}

/// Waits until the answers have got as far as they can; returns how many tokens that is.
async fn until_held_back(cluster: &Cluster) -> Result<f64> {
    let mut before = -1.0;
    for _ in 0..600 {
        let now = cluster.metric_sum("dynamo_frontend_output_tokens_total", "").await?;
        if now > 0.0 && now == before {
            return Ok(now);
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    anyhow::bail!("the answers do not stop: {before} tokens")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_str_05_clients_that_do_not_read_hold_their_own_answers_back() -> Result<()> {
    let cluster = options().start().await?;
    let before = resident()?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(stuck(cluster.address).await?);
    }
    until_running(&cluster, CLIENTS).await?;
    let tokens = until_held_back(&cluster).await?;
    let whole = (CLIENTS as u64 * ITEMS * PER_ITEM) as f64;
    assert!(tokens < whole / 2.0, "{tokens} of {whole} tokens were taken from the worker");
    assert_eq!(cluster.workers[0].journal().finished().len(), 0, "no answer has come to its end");
    // Of this process, so the worker's part is in it.
    let each = resident()?.saturating_sub(before) / CLIENTS as u64;
    assert!(each < 2048, "{each} KiB more for each client");
    for _ in 0..20 {
        let reply = cluster.chat("@@hello@@").send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    drop(clients);
    let journal = cluster.workers[0].journal();
    let dropped =
        || journal.finished().into_iter().filter(|end| end.how == Finish::Dropped).collect::<Vec<_>>();
    cluster.until("the worker is told of all", async || Ok(dropped().len() == CLIENTS)).await?;
    for end in dropped() {
        assert!(end.items < ITEMS * 2 / 3, "{} items were sent to a client that read none", end.items);
    }
    cluster.until_idle().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_str_05_a_stuck_client_is_cut_after_a_while() -> Result<()> {
    let options = options().with(|config| config.http.write_stall = Some(Duration::from_millis(300)));
    let cluster = options.start().await?;
    let client = stuck(cluster.address).await?;
    until_running(&cluster, 1).await?;
    let cut =
        async || Ok(cluster.workers[0].journal().finished().iter().any(|end| end.how == Finish::Dropped));
    cluster.until("the worker is told to stop", cut).await?;
    cluster.until_idle().await?;
    drop(client);
    Ok(())
}
