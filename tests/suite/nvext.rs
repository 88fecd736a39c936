//! The extension member: where it stands when there are several choices, and a frontend that does not take it.

use anyhow::{Context, Result};
use roost_tests::{MODEL, Options};
use serde_json::{Value, json};

/// A choice that has ended is told of once: the chunks of the others do not repeat its end.
#[tokio::test]
async fn the_end_of_a_choice_is_told_on_its_last_chunk_only() -> Result<()> {
    let mut options = Options::new(1);
    let one = json!({"text": "a"});
    let uneven = json!([
        {"raw": {"index": 0, "token_ids": [97]}}, {"raw": {"index": 1, "token_ids": [98]}},
        {"raw": {"index": 0, "token_ids": [97], "finish_reason": "stop"}},
        {"raw": {"index": 1, "token_ids": [98]}}, {"raw": {"index": 1, "token_ids": [98]}},
        {"raw": {"index": 1, "token_ids": [98], "finish_reason": "length"}},
    ]);
    options.scripts.insert("uneven", serde_json::from_value(uneven)?);
    options.scripts.insert("one", serde_json::from_value(json!([one, {"finish": "stop"}]))?);
    let cluster = options.start().await?;
    for fields in
        [json!(["timing", "worker_id"]), json!(["timing", "completion_token_ids"]), json!(["timing"])]
    {
        let body = json!({"model": MODEL, "stream": true, "n": 2, "nvext": {"extra_fields": fields},
            "messages": [{"role": "user", "content": "@@uneven@@"}]});
        let events = cluster.post("/v1/chat/completions", &body).send().await?.events();
        let chunks: Vec<&Value> = events.iter().filter(|event| event["choices"][0].is_object()).collect();
        let ends = chunks.iter().filter(|chunk| chunk["choices"][0]["finish_reason"].is_string()).count();
        assert_eq!(ends, 2, "{events:?}");
        assert!(chunks.iter().any(|chunk| chunk["choices"][0]["delta"]["content"] == "b"), "{events:?}");
        for chunk in chunks {
            let last = chunk["choices"][0]["finish_reason"].is_string();
            assert_eq!(chunk["nvext"]["timing"].is_object(), last, "{fields}: {chunk}");
            if fields[1] == "worker_id" {
                assert!(chunk["nvext"]["worker_id"].is_object(), "{chunk}");
            }
        }
    }
    Ok(())
}

/// `--disable-frontend-nvext`: only the salt, which keeps caches apart, is taken. Headers still are.
#[tokio::test]
async fn a_frontend_that_does_not_take_it() -> Result<()> {
    let cluster = Options::new(2).with(|config| config.http.nvext = false).start().await?;
    let other = cluster.workers[1].id();
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}], "nvext": {
        "extra_fields": ["worker_id"], "annotations": ["request_id"], "backend_instance_id": 1, "dp_rank": 7,
        "cache_salt": "tenant", "session_control": {"session_id": "s"}}});
    let reply =
        cluster.post("/v1/chat/completions", &body).header("x-worker-instance-id", &other.to_string());
    let reply = reply.send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()?.get("nvext"), None);
    let seen = cluster.workers[1].journal().requests();
    let request = &seen.first().context("the pinned worker has it")?.request;
    let salt = request.routing.as_ref().and_then(|routing| routing.cache_salt.as_deref());
    assert_eq!((salt, request.annotations.len()), (Some("tenant"), 0));
    assert!(request.agent_context.is_none(), "the session of the body is not taken");
    Ok(())
}

/// `DYN_CONTEXT_WINDOW` and `DYN_MAX_OUTPUT_TOKENS`: what lists of models tell.
#[tokio::test]
async fn limits_that_lists_of_models_tell() -> Result<()> {
    let advertised = roost_frontend::Advertised { context_window: Some(99), max_output_tokens: Some(7) };
    let cluster = Options::new(1).with(|config| config.http.advertised = advertised).start().await?;
    let listed = cluster.get("/v1/models").send().await?.json()?["data"][0].clone();
    let named = cluster.get(&format!("/v1/models/{MODEL}")).send().await?.json()?;
    for model in [listed, named] {
        assert_eq!(
            (&model["context_window"], &model["max_output_tokens"]),
            (&json!(99), &json!(7)),
            "{model}"
        );
    }
    let page = cluster.get("/v1/models").header("anthropic-version", "2023-06-01").send().await?.json()?;
    let model = &page["data"][0];
    assert_eq!((&model["max_input_tokens"], &model["max_tokens"]), (&json!(99), &json!(7)), "{page}");
    // It is told, not enforced.
    assert_eq!(cluster.chat(&format!("@@hello@@{}", "x".repeat(200))).send().await?.status, 200);
    Ok(())
}
