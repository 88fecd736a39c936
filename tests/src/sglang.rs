//! A plain SGLang server by hand: it says of itself what a captured one says, streams as captured ones do, notes what it
//! was asked, and dies when told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::fixture;

/// What a server is like.
#[derive(Debug, Clone)]
pub struct SglangOptions {
    /// Members of `/server_info` over those of the captured server.
    pub info: Value,
    /// Whether streams repeat the whole answer in each event, as servers do unless told otherwise.
    pub cumulative: bool,
    /// Pause before each token.
    pub pause: Duration,
    /// What `/generate` answers instead: a captured body, byte for byte.
    pub captured: Option<Vec<u8>>,
    /// With which status it does.
    pub status: u16,
}

impl Default for SglangOptions {
    fn default() -> Self {
        SglangOptions {
            info: json!({ "kv_events": null }),
            cumulative: true,
            pause: Duration::ZERO,
            captured: None,
            status: 200,
        }
    }
}

/// A running server. Dropping it closes its connections at once, as a killed one does.
#[derive(Debug)]
pub struct Sglang {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct State {
    options: Mutex<SglangOptions>,
    requests: Mutex<Vec<Value>>,
    aborts: Mutex<Vec<String>>,
    /// Streams whose client left before their end.
    dropped: Mutex<Vec<String>>,
}

impl Sglang {
    /// Starts a server at a free port.
    pub async fn start(options: SglangOptions) -> Result<Self> {
        Self::start_at("127.0.0.1:0".parse()?, options).await
    }

    /// Starts a server at an address, which may have been another's a moment ago.
    pub async fn start_at(address: SocketAddr, options: SglangOptions) -> Result<Self> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(128)?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            options: Mutex::new(options),
            requests: Mutex::default(),
            aborts: Mutex::default(),
            dropped: Mutex::default(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(
            listener,
            Arc::clone(&state),
            stop.clone(),
        )));
        Ok(Sglang { address, state, stop })
    }

    /// `http://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers otherwise from now on.
    pub fn set(&self, options: SglangOptions) {
        *self.state.options.lock() = options;
    }

    /// The bodies that `/generate` was sent, in order.
    pub fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().clone()
    }

    /// The requests that were aborted by name.
    pub fn aborts(&self) -> Vec<String> {
        self.state.aborts.lock().clone()
    }

    /// The requests whose client left before their end.
    pub fn dropped(&self) -> Vec<String> {
        self.state.dropped.lock().clone()
    }
}

impl Drop for Sglang {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>, stop: CancellationToken) {
    while let Ok((stream, _)) = listener.accept().await {
        let serving = serve(stream, Arc::clone(&state));
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            // A client that leaves is no failure.
            let _ended = serving.await;
        }));
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).context("a request line")?.to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            if header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        match path.as_str() {
            "/generate" => generate(&mut stream, &state, serde_json::from_slice(&body)?).await?,
            _ => {
                let (status, answer) = small(&state, &path, &body);
                reply(stream.get_mut(), status, answer.as_bytes()).await?;
            }
        }
    }
}

fn small(state: &State, path: &str, body: &[u8]) -> (u16, String) {
    let captured = |name: &str| {
        String::from_utf8(std::fs::read(fixture(&format!("sglang/{name}"))).expect("a fixture"))
            .expect("text")
    };
    match path {
        "/ready" => (200, String::new()),
        "/server_info" => {
            let mut info: Value =
                serde_json::from_str(&captured("agg.server_info.excerpt.json")).expect("a valid fixture");
            let files = fixture("cases/fixtures/models/tiny-chatml").display().to_string();
            (info["model_path"], info["tokenizer_path"]) = (json!(files), json!(files));
            for (name, value) in state.options.lock().info.as_object().into_iter().flatten() {
                info[name] = value.clone();
            }
            (200, info.to_string())
        }
        "/model_info" => (200, captured("agg.model_info.http")),
        "/v1/models" => (200, captured("agg.v1_models.http")),
        "/v1/loads" => (200, captured("agg.v1_loads.http")),
        "/abort_request" => {
            let rid = serde_json::from_slice::<Value>(body).unwrap_or_default()["rid"].clone();
            state.aborts.lock().push(rid.as_str().unwrap_or_default().to_owned());
            (200, String::new())
        }
        _ => (404, "{\"detail\":\"Not Found\"}".to_owned()),
    }
}

async fn reply(stream: &mut TcpStream, status: u16, body: &[u8]) -> Result<()> {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    Ok(())
}

async fn chunk(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    let head = format!("{:x}\r\n", bytes.len());
    stream.write_all(&[head.as_bytes(), bytes, b"\r\n"].concat()).await?;
    Ok(())
}

/// Streams `max_new_tokens` tokens to each choice: the prompt's own, in order, again and again.
async fn generate(stream: &mut BufReader<TcpStream>, state: &State, request: Value) -> Result<()> {
    let rid = request["rid"].as_str().unwrap_or_default().to_owned();
    state.requests.lock().push(request.clone());
    let options = state.options.lock().clone();
    if options.status != 200 {
        return reply(stream.get_mut(), options.status, &options.captured.unwrap_or_default()).await;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.get_mut().write_all(head.as_bytes()).await?;
    let streamed = match &options.captured {
        Some(captured) => chunk(stream.get_mut(), captured).await,
        None => tokens(stream, &request, &options).await,
    };
    if streamed.is_err() {
        state.dropped.lock().push(rid);
        return streamed;
    }
    stream.get_mut().write_all(b"0\r\n\r\n").await?;
    Ok(())
}

async fn tokens(stream: &mut BufReader<TcpStream>, request: &Value, options: &SglangOptions) -> Result<()> {
    let prompt: Vec<u64> =
        request["input_ids"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let sampling = &request["sampling_params"];
    let count = sampling["max_new_tokens"].as_u64().unwrap_or(8) as usize;
    let choices = sampling["n"].as_u64().unwrap_or(1);
    let answer: Vec<u64> = prompt.iter().copied().cycle().take(count).collect();
    for at in 1..=count {
        if !options.pause.is_zero() {
            // A client that has left shows when something is read.
            let mut byte = [0];
            tokio::select! {
                read = stream.get_mut().peek(&mut byte) => anyhow::ensure!(read? > 0, "the client has left"),
                () = tokio::time::sleep(options.pause) => {}
            }
        }
        for index in 0..choices {
            let ids = if options.cumulative { &answer[..at] } else { &answer[at - 1..at] };
            let finish = if at == count { json!({"type": "length", "length": count}) } else { Value::Null };
            let mut event = json!({
                "text": "x".repeat(ids.len()),
                "output_ids": ids,
                "meta_info": {
                    "id": request["rid"], "finish_reason": finish, "prompt_tokens": prompt.len(),
                    "completion_tokens": at, "cached_tokens": 16, "cached_tokens_details": {"device": 6, "host": 10},
                },
            });
            if request["return_logprob"] == true {
                let entry = |id: &u64| json!([-0.5, id, null]);
                event["meta_info"]["output_token_logprobs"] = ids.iter().map(entry).collect();
                event["meta_info"]["output_top_logprobs"] = ids.iter().map(|id| json!([entry(id)])).collect();
            }
            if choices > 1 {
                event["index"] = json!(index);
            }
            chunk(stream.get_mut(), format!("data: {event}\n\n").as_bytes()).await?;
        }
    }
    chunk(stream.get_mut(), b"data: [DONE]\n\n").await
}
