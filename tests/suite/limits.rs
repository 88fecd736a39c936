//! What a client may cost: times, sizes and numbers, each driven over a real socket. C-SEC-01 and C-SEC-03.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_tests::{Cluster, MODEL, Options, PATIENCE, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(300);

fn chat(content: &str) -> String {
    json!({"model": MODEL, "messages": [{"role": "user", "content": content}]}).to_string()
}

/// A request whose body is `announced` bytes long, of which `body` follows.
fn post(announced: usize, body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {announced}\r\n\r\n{body}"
    )
}

async fn connect(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes.as_ref()).await?;
    Ok(stream)
}

/// Everything until the other side closes.
async fn to_end(stream: &mut TcpStream) -> Result<String> {
    let mut all = Vec::new();
    // A reset after an answer is as good as an end.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut all)).await.context("still open")?;
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// One answer of a connection that stays open.
async fn answer(stream: &mut TcpStream) -> Result<String> {
    let mut all = Vec::new();
    let whole = async {
        loop {
            let text = String::from_utf8_lossy(&all).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if length == Some(body.len()) {
                    return anyhow::Ok(text);
                }
            }
            anyhow::ensure!(stream.read_buf(&mut all).await? > 0, "closed: {text}");
        }
    };
    timeout(PATIENCE, whole).await.context("no answer")?
}

async fn severed(cluster: &Cluster, reason: &str) -> Result<Option<f64>> {
    cluster.metric(&format!("roost_http_connections_severed_total{{reason=\"{reason}\"}}")).await
}

#[tokio::test]
async fn a_head_that_does_not_come_closes_the_connection() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.head = Some(SHORT)).start().await?;
    for said in ["", "P", "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n", "PRI * HTTP/2.0\r\n\r\n"] {
        let mut stuck = connect(cluster.address, said).await?;
        assert_eq!(to_end(&mut stuck).await?, "", "{said:?}");
    }
    // A byte now and then buys no time.
    let mut slow = connect(cluster.address, "GET /live HTTP/1.1\r\nhost: x\r\nx-padding: ").await?;
    let dripped = async {
        while slow.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dripped).await.context("still open")?;
    assert_eq!(severed(&cluster, "header_timeout").await?, Some(5.0));
    Ok(())
}

/// A connection that has served a request waits for the next one under another limit than for the rest of a head.
#[tokio::test]
async fn idle_time_and_head_time_are_apart() -> Result<()> {
    let long = Duration::from_secs(3600);
    let cluster =
        Options::new(1).with(|c| (c.http.head, c.http.idle) = (Some(SHORT), Some(long))).start().await?;
    let body = chat("@@hello@@");
    let mut kept = connect(cluster.address, post(body.len(), &body)).await?;
    assert!(answer(&mut kept).await?.contains("\"hello\""));
    tokio::time::sleep(SHORT * 3).await;
    kept.write_all(post(body.len(), &body).as_bytes()).await?;
    assert!(answer(&mut kept).await?.contains("\"hello\""), "idle for longer than a head may take");
    kept.write_all(b"POST /v1").await?;
    assert_eq!(to_end(&mut kept).await?, "");

    let cluster =
        Options::new(1).with(|c| (c.http.head, c.http.idle) = (Some(long), Some(SHORT))).start().await?;
    let mut kept = connect(cluster.address, post(body.len(), &body)).await?;
    answer(&mut kept).await?;
    assert_eq!(to_end(&mut kept).await?, "", "closed without a word");
    assert_eq!(severed(&cluster, "idle_timeout").await?, Some(1.0));
    // A request that takes longer than either is not idle.
    let body = chat("@@slow3@@");
    let mut busy = connect(cluster.address, post(body.len(), &body)).await?;
    assert!(answer(&mut busy).await?.contains("late"));
    Ok(())
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_with_408() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.body_stall = Some(SHORT)).start().await?;
    for (announced, said) in [(100, ""), (100, "{\"mo"), (40 << 20, "{\"mo")] {
        let mut stuck = connect(cluster.address, post(announced, said)).await?;
        let text = to_end(&mut stuck).await?;
        assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("\"error\""), "{text}");
    }
    let mut slow = connect(cluster.address, post(100, "")).await?;
    let dripped = async {
        while slow.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dripped).await.context("a byte now and then buys no time")?;
    Ok(())
}

/// C-SEC-01: ordinary agent turns pass, more than the limit is 413 with the rest unread.
#[tokio::test]
async fn c_sec_01_bodies_up_to_the_limit() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.body_limit = 4 << 20).start().await?;
    let large = |bytes: usize| chat(&format!("@@hello@@{}", "word ".repeat(bytes / 5)));
    // The tokenizer of the test model makes a token of each byte: the prompt may be refused, but not its size.
    let reply = cluster.post("/v1/chat/completions", &json!(null)).raw_body(large(3 << 20)).send().await?;
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("maximum context length"), "{}", reply.text());

    let body = large(5 << 20);
    let announced =
        Request::post(cluster.address, "/v1/chat/completions", &json!(null)).raw_body(body.clone());
    let reply = announced.send().await?;
    assert_eq!(reply.status, 413);
    let error = reply.json()?;
    let text = error["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("4 MB") && text.contains("DYN_HTTP_BODY_LIMIT_MB"), "{error}");

    // Without a length: in chunks, all of which the client sends before it reads.
    let mut chunked = connect(
        cluster.address,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n",
    )
    .await?;
    for piece in body.as_bytes().chunks(100_000) {
        let head = format!("{:x}\r\n", piece.len());
        chunked.write_all(&[head.as_bytes(), piece, b"\r\n"].concat()).await?;
    }
    let text = to_end(&mut chunked).await?;
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");

    let zipped = cluster.chat("@@hello@@").header("content-encoding", "gzip").send().await?;
    assert_eq!(zipped.status, 415, "{}", zipped.text());
    Ok(())
}

/// A client that has sent nothing yet is told before it sends anything.
#[tokio::test]
async fn a_body_too_large_is_refused_before_it_is_sent() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let head = post(46 << 20, "").replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    let mut waiting = connect(cluster.address, head).await?;
    let text = to_end(&mut waiting).await?;
    assert!(text.starts_with("HTTP/1.1 413 ") && text.contains("45 MB"), "{text}");
    Ok(())
}

#[tokio::test]
async fn heads_of_too_many_or_too_large_lines_are_431() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let large = format!("x-large: {}\r\n", "a".repeat(64 << 10));
    for (what, lines) in [("many", many), ("large", large)] {
        let mut stream =
            connect(cluster.address, format!("GET /live HTTP/1.1\r\nhost: x\r\n{lines}\r\n")).await?;
        let text = to_end(&mut stream).await?;
        assert!(text.starts_with("HTTP/1.1 431 "), "{what}: {text}");
    }
    let usual: String = (0..90).map(|n| format!("x-{n}: {}\r\n", "a".repeat(500))).collect();
    let text = format!("GET /live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{usual}\r\n");
    let mut stream = connect(cluster.address, text).await?;
    assert!(to_end(&mut stream).await?.starts_with("HTTP/1.1 200 "));
    Ok(())
}

/// Beyond the limit a connection learns what is the matter, and probes still get their answers.
#[tokio::test]
async fn connections_beyond_the_limit_are_told_to_come_back() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.max_connections = 2).start().await?;
    let body = chat("@@hello@@");
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(cluster.address, post(body.len(), &body)).await?;
        answer(&mut stream).await?;
        kept.push(stream);
    }
    let refused = cluster.chat("@@hello@@").send().await?;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert_eq!(cluster.get("/live").send().await?.status, 200);
    assert!(severed(&cluster, "surplus").await?.is_some_and(|count| count >= 2.0));
    // Those that are in stay in.
    kept[0].write_all(post(body.len(), &body).as_bytes()).await?;
    assert!(answer(&mut kept[0]).await?.contains("\"hello\""));
    drop(kept);
    cluster
        .until("there is room again", async || Ok(cluster.chat("@@hello@@").send().await?.status == 200))
        .await
}

#[tokio::test]
async fn requests_beyond_the_limit_are_told_to_come_back() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.max_inflight = Some(1)).start().await?;
    let body = json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@drip@@"}]});
    // Whoever only sends slowly takes nobody's place.
    let _stuck = connect(cluster.address, post(100, "{")).await?;
    let mut running = cluster.post("/v1/chat/completions", &body).stream().await?;
    assert!(running.next().await?.is_some());
    let refused = cluster.chat("@@hello@@").send().await?;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert_eq!(refused.json()?["error"]["type"], "service_unavailable");
    assert_eq!(cluster.get("/v1/models").send().await?.status, 200, "only work is limited");
    drop(running);
    cluster
        .until("there is room again", async || Ok(cluster.chat("@@hello@@").send().await?.status == 200))
        .await
}

#[tokio::test]
async fn large_bodies_that_do_not_end_share_their_memory() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.body_memory = Some(1 << 20)).start().await?;
    let body = json!({"model": "nobody", "messages": [{"role": "user", "content": "x"}], "padding": "x".repeat(200_000)}).to_string();
    let probe =
        || Request::post(cluster.address, "/v1/chat/completions", &json!(null)).raw_body(body.clone());
    let mut tries = 0;
    let mut stuck = loop {
        let stuck = connect(cluster.address, post(2 << 20, &"x".repeat(900_000))).await?;
        // Most of it is read by then. If the probe comes first, it may be the stuck one that finds no room.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let reply = probe().send().await?;
        if reply.status == 503 {
            assert!(
                reply.header("retry-after").is_some() && reply.text().contains("large"),
                "{}",
                reply.text()
            );
            break stuck;
        }
        tries += 1;
        assert!(tries < 100, "the stuck body is never counted");
    };
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200, "small ones pass");
    stuck.shutdown().await?;
    drop(stuck);
    cluster.until("the memory is free", async || Ok(probe().send().await?.status != 503)).await
}

/// A client that asks for a long stream and reads nothing of it.
async fn deaf(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut stream = socket.connect(address).await?;
    let body =
        json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@flood@@"}]});
    let body = body.to_string();
    stream.write_all(post(body.len(), &body).as_bytes()).await?;
    Ok(stream)
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.write_stall = Some(SHORT)).start().await?;
    let mut deaf = deaf(cluster.address).await?;
    cluster
        .until("the worker is stopped", async || Ok(!cluster.workers[0].journal().cancellations().is_empty()))
        .await?;
    assert_eq!(severed(&cluster, "write_stall").await?, Some(1.0));
    let rest = to_end(&mut deaf).await?;
    assert!(!rest.contains("[DONE]"), "what was cut does not look whole");
    cluster.until_idle().await
}

/// On HTTP/2 one stream that is not read does not end the others of its connection, but its worker is freed.
#[tokio::test]
async fn a_stream_of_http_2_that_is_not_read_is_cut() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.write_stall = Some(SHORT)).start().await?;
    let socket = TcpStream::connect(cluster.address).await?;
    // Room on the connection for more than the stream that is not read.
    let (mut client, connection): (h2::client::SendRequest<bytes::Bytes>, _) =
        h2::client::Builder::new().initial_connection_window_size(8 << 20).handshake(socket).await?;
    let driving = tokio::spawn(connection);
    let mut ask = async |content: &str| -> Result<h2::client::ResponseFuture> {
        let body =
            json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": content}]});
        let request = http::Request::post(format!("http://{}/v1/chat/completions", cluster.address))
            .header("content-type", "application/json")
            .body(())?;
        client = client.clone().ready().await?;
        let (answer, mut sending) = client.send_request(request, false)?;
        sending.send_data(body.to_string().into(), true)?;
        Ok(answer)
    };
    let deaf = ask("@@flood@@").await?.await?;
    assert_eq!(deaf.status(), 200);
    cluster
        .until("the worker is stopped", async || Ok(!cluster.workers[0].journal().cancellations().is_empty()))
        .await?;
    let mut other = ask("@@hello@@").await?.await?.into_body();
    let mut text = Vec::new();
    while let Some(data) = timeout(PATIENCE, other.data()).await.context("nothing more")? {
        let data = data?;
        other.flow_control().release_capacity(data.len())?;
        text.extend_from_slice(&data);
    }
    assert!(String::from_utf8(text)?.contains("[DONE]"), "the connection goes on");
    // Whoever looks again finds out.
    let mut deaf = deaf.into_body();
    let result = loop {
        match timeout(PATIENCE, deaf.data()).await.context("neither more nor an end")? {
            Some(Ok(data)) => deaf.flow_control().release_capacity(data.len())?,
            Some(Err(error)) => break Err(error),
            None => break Ok(()),
        }
    };
    assert!(result.is_err(), "what was cut does not look whole");
    drop((client, deaf, other));
    driving.abort();
    cluster.until_idle().await
}

/// Resident memory of this process, bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// C-SEC-03: clients that stop in the middle of a head or a body cost little, disturb nobody, and are closed.
#[tokio::test]
async fn c_sec_03_slow_and_stuck_clients() -> Result<()> {
    const STUCK: usize = 200;
    let wait = Duration::from_secs(3);
    let cluster =
        Options::new(1).with(|c| (c.http.head, c.http.body_stall) = (Some(wait), Some(wait))).start().await?;
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    let before = resident()?;
    let mut heads = Vec::new();
    let mut bodies = Vec::new();
    for _ in 0..STUCK {
        heads.push(connect(cluster.address, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n").await?);
        bodies.push(connect(cluster.address, post(100, "{\"mo")).await?);
    }
    for _ in 0..20 {
        assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    }
    // Both ends of the connections are in this process.
    let each = resident()?.saturating_sub(before) / (2 * STUCK as u64);
    assert!(each < 64 << 10, "{each} bytes for each stuck connection");
    for stream in &mut heads {
        assert_eq!(to_end(stream).await?, "");
    }
    for stream in &mut bodies {
        assert!(to_end(stream).await?.starts_with("HTTP/1.1 408 "));
    }
    cluster
        .until("all are gone", async || Ok(cluster.metric("roost_http_connections").await? <= Some(1.0)))
        .await
}

/// An event leaves in one write: a client that times events by their bytes sees none of them in two parts.
#[tokio::test]
async fn an_event_is_one_write() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let body = json!({"model": MODEL, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "@@drip@@"}]})
    .to_string();
    let mut stream = connect(cluster.address, post(body.len(), &body)).await?;
    let (mut reads, mut all) = (0, String::new());
    while !all.ends_with("0\r\n\r\n") {
        let mut bytes = vec![0; 64 << 10];
        let count = timeout(PATIENCE, stream.read(&mut bytes)).await.context("nothing more")??;
        anyhow::ensure!(count > 0, "closed: {all}");
        let text = std::str::from_utf8(&bytes[..count])?;
        let whole = text.ends_with("\n\n\r\n") || text.ends_with("0\r\n\r\n") || text.starts_with("HTTP/1.1");
        assert!(whole, "a part of an event: {text:?}");
        reads += 1;
        all.push_str(text);
    }
    let events = all.matches("data: ").count();
    assert!(reads > 5 && events >= reads - 2, "{reads} reads for {events} events");
    assert!(all.contains("data: [DONE]"));
    Ok(())
}

/// What is wrong with a body does not matter to the connection: the next request on it is served.
#[tokio::test]
async fn a_wrong_body_leaves_its_connection_open() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let mut stream = connect(cluster.address, post(8, "{\"a\": 1 ")).await?;
    assert!(answer(&mut stream).await?.starts_with("HTTP/1.1 400 "));
    let body = chat("@@hello@@");
    stream.write_all(post(body.len(), &body).as_bytes()).await?;
    let text = answer(&mut stream).await?;
    let (_, body) = text.split_once("\r\n\r\n").context("a body")?;
    let body: Value = serde_json::from_str(body)?;
    assert_eq!(body["choices"][0]["message"]["content"], "hello");
    Ok(())
}
