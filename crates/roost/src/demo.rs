//! `roost demo`: frontend and mock workers in one process, and two turns of one session to look at.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use roost_cluster::{Discovery, MemoryDiscovery};
use roost_config::{Command, Demo, Environment, MockWorker, ProcessOptions, Serve};
use serde_json::{Value, json};

use crate::store::Store;
use crate::{exchange, fleet, output, serve, settings, signals};

/// Served name of the demo's model.
const MODEL: &str = "tiny-chat";
/// Longest wait for anything in the demo.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts everything, shows it, and stays until a signal (or ends at once with `--once`).
pub(crate) fn run(options: Demo) -> Result<ExitCode> {
    roost_telemetry::logging::init(&options.log.filter, settings::log_format(&options.log))?;
    let process = ProcessOptions { worker_threads: None, max_blocking_threads: None, fd_limit_target: None };
    serve::runtime(&process)?.block_on(async {
        let shutdown = signals::shutdown()?;
        let discovery: Arc<dyn Discovery> = MemoryDiscovery::new();
        let scratch = tempfile::tempdir().context("cannot make a folder for the model")?;
        let workers = mock_options(&options)?;
        let store = Store::Shared(Arc::clone(&discovery));
        let fleet = fleet::start(&workers, scratch.path(), &store, &shutdown).await?;
        let serve_options = serve_options(&options)?;
        let (address, running) = serve::start(&serve_options, discovery, shutdown.clone()).await?;
        let running = tokio::spawn(running);
        tokio::time::timeout(PATIENCE, show(address)).await.context("the demo did not answer in time")??;
        if options.once {
            shutdown.cancel();
        } else {
            output::result(&format_args!(
                "\nServing on http://{address} until Ctrl-C. Try:\n\n{}",
                curl(address)
            ));
        }
        let drained = running.await.context("the frontend panicked")?;
        fleet.drain().await;
        Ok(if drained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// The demo's workers, in the words of `roost mock-worker`.
fn mock_options(options: &Demo) -> Result<MockWorker> {
    let workers = options.workers.to_string();
    let line = [
        "mock-worker",
        "--model-name",
        MODEL,
        "--workers",
        &workers,
        "--block-size",
        "16",
        "--host",
        "127.0.0.1",
    ];
    match roost_config::parse(line, &Environment::default()) {
        Ok(Command::MockWorker(parsed)) => Ok(*parsed),
        Ok(_) => bail!("the demo's own command line means something else"),
        Err(problems) => bail!("the demo's own command line is wrong: {problems}"),
    }
}

/// The demo's frontend, in the words of `roost serve`.
fn serve_options(options: &Demo) -> Result<Serve> {
    let (host, port) = (options.host.to_string(), options.port.to_string());
    let line = [
        "serve",
        "--http-host",
        &host,
        "--http-port",
        &port,
        "--router-mode",
        "kv",
        "--router-session-affinity-ttl-secs",
        "3600",
    ];
    let environment = Environment::from_iter([("DYN_TCP_RESPONSE_STREAM_HOST", "127.0.0.1")]);
    match roost_config::parse(line, &environment) {
        Ok(Command::Serve(parsed)) => Ok(*parsed),
        Ok(_) => bail!("the demo's own command line means something else"),
        Err(problems) => bail!("the demo's own command line is wrong: {problems}"),
    }
}

/// Two turns of one session: the second comes home to a warm cache.
async fn show(address: SocketAddr) -> Result<()> {
    while get(address, "/health").await?.0 != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut messages = vec![
        json!({"role": "system", "content": "You are a helpful agent. ".repeat(16)}),
        json!({"role": "user", "content": "What did I ask for?"}),
    ];
    let mut home = None;
    for turn in 1..=2 {
        let (status, answer) = chat(address, &messages).await?;
        ensure!(status == 200, "turn {turn} was answered {status}: {answer}");
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
        let usage = &answer["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        let worker = answer["nvext"]["worker_id"]["decode_worker_id"].as_u64();
        output::result(&format_args!(
            "turn {turn}: worker {:016x}, {} prompt tokens, {cached} of them cached: {text}",
            worker.unwrap_or_default(),
            usage["prompt_tokens"],
        ));
        ensure!(home.is_none_or(|home| Some(home) == worker), "the session did not come home");
        ensure!(turn == 1 || cached > 0, "the second turn found a cold cache");
        home = worker;
        messages.push(json!({"role": "assistant", "content": text}));
        messages.push(json!({"role": "user", "content": "And now?"}));
    }
    output::result(&"The session came home: same worker, warm cache.");
    Ok(())
}

fn curl(address: SocketAddr) -> String {
    format!(
        "curl -N http://{address}/v1/chat/completions -H 'content-type: application/json' -H 'x-dynamo-session-id: s-1' \\\n  \
         -d '{{\"model\":\"{MODEL}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
    )
}

async fn chat(address: SocketAddr, messages: &[Value]) -> Result<(u16, Value)> {
    let body = json!({
        "model": MODEL, "messages": messages, "max_tokens": 200, "nvext": {"extra_fields": ["worker_id"]},
    })
    .to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\nx-dynamo-session-id: demo\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    exchange::exchange(&address.to_string(), head + &body).await
}

async fn get(address: SocketAddr, path: &str) -> Result<(u16, Value)> {
    exchange::get(&address.to_string(), path).await
}
