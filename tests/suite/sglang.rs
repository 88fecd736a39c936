//! Plain SGLang servers as workers: in the frontend's process, and behind the plane.

mod names;
mod sidecar;

use std::time::Duration;

use anyhow::Result;
use roost_hosted::{Config, Named, Part};
use roost_tests::{Cluster, MODEL, Options, Sglang, SglangOptions, worker_of};
use serde_json::{Value, json};

/// A prompt of more than one block.
const LONG: &str = "the quick brown fox jumps over the lazy dog and runs away from the very angry old bear";

fn named(server: &Sglang, part: Part) -> Named {
    Named { url: server.url().parse().expect("an address"), part }
}

fn config(named: Vec<Named>) -> Config {
    Config {
        named,
        file: None,
        api_key: Some("secret".into()),
        model_path: None,
        kv_events: true,
        probe_interval: Duration::from_millis(100),
        resolve_interval: Duration::from_millis(100),
    }
}

async fn start(config: Config) -> Result<Cluster> {
    Options { sglang: Some(Box::new(config)), ..Options::new(0) }.start().await
}

/// Waits until so many servers of a role are in use.
async fn until_workers(cluster: &Cluster, role: &str, count: u64) -> Result<()> {
    cluster
        .until(&format!("{count} {role} servers"), async || {
            let ready = cluster.get("/v1/models/tiny/ready").send().await?;
            let workers = &ready.json()?["namespaces"]["sglang"]["worker_types"][role]["workers"];
            Ok(workers.as_u64().unwrap_or(0) == count && (count == 0 || ready.status == 200))
        })
        .await
}

async fn one(options: SglangOptions) -> Result<(Sglang, Cluster)> {
    let server = Sglang::start(options).await?;
    let cluster = start(config(vec![named(&server, Part::Aggregated)])).await?;
    until_workers(&cluster, "aggregated", 1).await?;
    Ok((server, cluster))
}

/// The text of ids, by the frontend's own tokenizer.
async fn text_of(cluster: &Cluster, ids: &[Value]) -> Result<String> {
    let body = json!({"model": MODEL, "tokens": ids});
    let reply = cluster.post("/detokenize", &body).send().await?.json()?;
    Ok(reply["prompt"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn both_kinds_of_streams_give_the_same_answer() -> Result<()> {
    for cumulative in [true, false] {
        let (server, cluster) = one(SglangOptions { cumulative, ..SglangOptions::default() }).await?;
        let nvext = json!({"extra_fields": ["engine_data"]});
        let body = json!({"model": MODEL, "prompt": LONG, "max_tokens": 9, "temperature": 0, "nvext": nvext});
        let reply = cluster.post("/v1/completions", &body).session("s").send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json()?;
        let [request] = &server.requests()[..] else { panic!("one request") };
        let prompt = request["input_ids"].as_array().unwrap();
        assert_eq!(answer["choices"][0]["text"], text_of(&cluster, &prompt[..9]).await?);
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        assert_eq!(answer["usage"]["completion_tokens"], 9);
        assert_eq!(answer["usage"]["prompt_tokens"], prompt.len());
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
        // In which tiers, as the server tells.
        let tiers = json!({"cached_tokens_details": {"device": 6, "host": 10}});
        assert_eq!(answer["nvext"]["engine_data"], tiers);
        for (tier, tokens) in [("device", 6.0), ("host", 10.0), ("storage", 0.0), ("untold", 0.0)] {
            let counted = cluster.metric_sum("roost_engine_cached_tokens_total", tier).await?;
            assert_eq!(counted, tokens, "{tier}");
        }
        assert_eq!((&request["session_id"], &request["stream"]), (&json!("s"), &json!(true)));
        assert!(request["routed_dp_rank"].is_null() && request["bootstrap_room"].is_null(), "{request}");

        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        let events = cluster.post("/v1/completions", &streamed).send().await?.text();
        let pieces: String = events
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
            .filter_map(|event| Some(event["choices"][0]["text"].as_str()?.to_owned()))
            .collect();
        assert_eq!(json!(pieces), answer["choices"][0]["text"]);
        assert!(events.ends_with("data: [DONE]\n\n"));
        let rids: Vec<Value> = server.requests().iter().map(|request| request["rid"].clone()).collect();
        assert_ne!(rids[0], rids[1]);
        assert!(server.aborts().is_empty(), "whole answers are not aborted");
        cluster.until_idle().await?;
    }
    Ok(())
}

#[tokio::test]
async fn equal_request_ids_of_clients_are_no_equal_ids_of_servers() -> Result<()> {
    let (server, cluster) = one(SglangOptions::default()).await?;
    for _ in 0..2 {
        let reply = cluster.chat("hi").header("x-request-id", "mine").send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let rids: Vec<String> =
        server.requests().iter().map(|request| request["rid"].as_str().unwrap().to_owned()).collect();
    assert_ne!(rids[0], rids[1]);
    Ok(())
}

#[tokio::test]
async fn choices_and_logprobs() -> Result<()> {
    let (server, cluster) = one(SglangOptions::default()).await?;
    let body =
        json!({"model": MODEL, "prompt": LONG, "max_tokens": 3, "temperature": 1, "n": 2, "logprobs": 1});
    let answer = cluster.post("/v1/completions", &body).send().await?.json()?;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2, "{answer}");
    for choice in choices {
        assert_eq!(choice["logprobs"]["token_logprobs"], json!([-0.5, -0.5, -0.5]), "{choice}");
        assert_eq!(choice["text"], choices[0]["text"]);
    }
    let request = &server.requests()[0];
    assert_eq!((&request["sampling_params"]["n"], &request["top_logprobs_num"]), (&json!(2), &json!(1)));
    Ok(())
}

#[tokio::test]
async fn a_servers_failures_reach_the_client_as_what_they_are() -> Result<()> {
    let captured = |name: &str| std::fs::read(roost_tests::fixture(&format!("sglang/{name}"))).unwrap();
    let (server, cluster) = one(SglangOptions::default()).await?;
    let says = |name: &str, status: u16| SglangOptions {
        captured: Some(captured(name)),
        status,
        ..SglangOptions::default()
    };
    for (name, status, expected, word) in [
        // An error inside a stream that began with 200.
        ("agg.generate_toolong.http", 200, 400, "maximum context length"),
        ("agg.generate_badparam.http", 400, 400, "temperature"),
        ("agg.generate_lora_off.http", 400, 400, "LoRA"),
        // The other leg is to blame: nobody else is there to do it.
        ("pd.prefill_crash.decode.http", 200, 503, "retry"),
    ] {
        server.set(says(name, status));
        for stream in [false, true] {
            let body =
                json!({"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": "hi"}]});
            let reply = cluster.chat_body(&body).send().await?;
            assert_eq!(reply.status, expected, "{name}: {}", reply.text());
            assert!(reply.text().contains(word), "{name}: {}", reply.text());
        }
        // Of what a server says of itself nothing is shown.
        assert!(!cluster.chat("hi").send().await?.text().contains("127.0.0.1"));
    }
    // Half an answer.
    let whole = captured("agg.generate_stream_cold.http");
    server
        .set(SglangOptions { captured: Some(whole[..whole.len() / 2].to_vec()), ..SglangOptions::default() });
    let body = json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let reply = cluster.chat_body(&body).send().await?;
    assert!(reply.text().contains("\"error\""), "it does not look whole: {}", reply.text());
    cluster.until_idle().await
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request_at_the_server() -> Result<()> {
    let pause = Duration::from_millis(50);
    let (server, cluster) = one(SglangOptions { pause, ..SglangOptions::default() }).await?;
    let body = json!({"model": MODEL, "stream": true, "max_tokens": 2000, "messages": [{"role": "user", "content": "hi"}]});
    let mut events = cluster.chat_body(&body).stream().await?;
    events.next().await?;
    drop(events);
    cluster
        .until("the server hears of it, twice", async || {
            Ok(server.dropped().len() == 1 && server.aborts() == server.dropped())
        })
        .await?;
    assert_eq!(server.requests()[0]["rid"], json!(server.aborts()[0]));
    cluster.until_idle().await
}

#[tokio::test]
async fn both_legs_of_a_split_request() -> Result<()> {
    let role = |role: &str| SglangOptions {
        info: json!({"kv_events": null, "disaggregation_mode": role, "disaggregation_bootstrap_port": 9001, "dp_size": 2}),
        ..SglangOptions::default()
    };
    let prefill = Sglang::start(role("prefill")).await?;
    let decode = Sglang::start(role("decode")).await?;
    let named = vec![named(&prefill, Part::Prefill(None)), named(&decode, Part::Decode)];
    let cluster = start(config(named)).await?;
    until_workers(&cluster, "prefill", 1).await?;
    until_workers(&cluster, "decode", 1).await?;
    let counted = cluster.get("/workers").send().await?.json()?;
    assert_eq!(
        counted["stats"],
        json!({"prefill_count": 1, "decode_count": 1, "regular_count": 0}),
        "{counted}"
    );
    let mut rooms = Vec::new();
    for _ in 0..4 {
        let reply = cluster.chat(LONG).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for (one, other) in prefill.requests().iter().zip(decode.requests()) {
        assert_eq!(one["input_ids"], other["input_ids"]);
        for member in ["bootstrap_host", "bootstrap_port", "bootstrap_room", "disagg_prefill_dp_rank"] {
            assert_eq!(one[member], other[member], "{member}");
        }
        assert_eq!(one["bootstrap_port"], 9001);
        let room = one["bootstrap_room"].as_u64().unwrap();
        assert!(room < 1 << 63 && Some(room % 2) == one["routed_dp_rank"].as_u64(), "{one}");
        rooms.push(room);
    }
    rooms.sort_unstable();
    rooms.dedup();
    assert_eq!(rooms.len(), 4, "no room is used twice");

    // A leg that fails takes the other with it.
    decode.set(SglangOptions { pause: Duration::from_secs(100), ..role("decode") });
    prefill.set(SglangOptions {
        captured: Some(std::fs::read(roost_tests::fixture("sglang/agg.generate_toolong.http"))?),
        ..role("prefill")
    });
    let reply = cluster.chat(LONG).send().await?;
    assert_eq!(reply.status, 400, "{}", reply.text());
    cluster
        .until("decode is told", async || Ok(decode.requests().len() <= 4 || !decode.aborts().is_empty()))
        .await?;
    cluster.until_idle().await
}

#[tokio::test]
async fn servers_die_return_and_come_by_file() -> Result<()> {
    let first = Sglang::start(SglangOptions::default()).await?;
    let second = Sglang::start(SglangOptions::default()).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("servers");
    std::fs::write(&file, format!("# one\n{}\n", first.url()))?;
    let cluster = start(Config { file: Some(file.clone()), ..config(Vec::new()) }).await?;
    until_workers(&cluster, "aggregated", 1).await?;
    let home = worker_of(&cluster.chat("hi").session("s").send().await?.json()?);
    std::fs::write(&file, format!("{}\n{}\n", first.url(), second.url()))?;
    until_workers(&cluster, "aggregated", 2).await?;

    // Killed: the next turn is served by the other one at once.
    let address = first.address;
    drop(first);
    let reply = cluster.chat("hi").session("s").send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_ne!(worker_of(&reply.json()?), home);
    until_workers(&cluster, "aggregated", 1).await?;
    // Back, as the same worker.
    let first = Sglang::start_at(address, SglangOptions::default()).await?;
    until_workers(&cluster, "aggregated", 2).await?;
    // No longer named: what runs there ends in peace.
    std::fs::write(&file, format!("{}\n", first.url()))?;
    until_workers(&cluster, "aggregated", 1).await?;
    for _ in 0..4 {
        assert_eq!(worker_of(&cluster.chat("hi").send().await?.json()?), home);
    }
    // A file that cannot be read changes nothing.
    std::fs::write(&file, "prefill\n")?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    until_workers(&cluster, "aggregated", 1).await
}

#[tokio::test]
async fn a_server_of_another_role_is_not_used() -> Result<()> {
    let info = json!({"kv_events": null, "disaggregation_mode": "decode"});
    let server = Sglang::start(SglangOptions { info, ..SglangOptions::default() }).await?;
    let good = Sglang::start(SglangOptions::default()).await?;
    let cluster =
        start(config(vec![named(&server, Part::Aggregated), named(&good, Part::Aggregated)])).await?;
    until_workers(&cluster, "aggregated", 1).await?;
    for _ in 0..3 {
        assert_eq!(cluster.chat("hi").send().await?.status, 200);
    }
    assert!(server.requests().is_empty());
    Ok(())
}
