//! What clients send, field by field: C-API-01, and what of it a worker gets. The values are those that the peer's
//! frontend sends for the same request (`wire_parsers.json`) but for the differences that docs name.

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, fixture};
use serde_json::{Value, json};

fn body(extra: &Value) -> Value {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}]});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

/// What the worker got last, as JSON with nothing left out.
fn seen(cluster: &Cluster) -> Result<Value> {
    let requests = cluster.workers[0].journal().requests();
    Ok(serde_json::to_value(&requests.last().expect("a request").request)?)
}

/// C-API-01: explicit nulls, OpenAI's newer fields, SGLang's fields and one that nobody knows.
#[tokio::test]
async fn c_api_01_nulls_and_foreign_fields() -> Result<()> {
    let case: Value = serde_json::from_slice(&std::fs::read(fixture("cases/C-API-01.json"))?)?;
    let cluster = Options::new(1).start().await?;
    for step in case["input"].as_array().into_iter().flatten() {
        let Some(body) = step["http"]["body"].as_object() else { continue };
        let reply = cluster.post("/v1/chat/completions", &json!(body)).send().await?;
        assert_eq!(reply.status, 200, "{body:?}: {}", reply.text());
        assert_eq!(reply.json()?["choices"][0]["message"]["content"], "hello");
    }
    assert_eq!(cluster.metric("roost_ignored_fields_total").await?, Some(1.0), "foo is counted");
    for (field, value) in [
        ("verbosity", json!("low")),
        ("safety_identifier", json!("x")),
        ("prompt_cache_key", json!("k")),
        ("prompt_cache_retention", json!("24h")),
        ("store", json!(false)),
        ("service_tier", json!("auto")),
        ("web_search_options", json!({})),
        ("modalities", json!(["text"])),
        ("prediction", json!({"type": "content", "content": "x"})),
        ("separate_reasoning", json!(true)),
        ("stream_reasoning", json!(true)),
        ("no_stop_trim", json!(true)),
        ("skip_special_tokens", json!(false)),
        ("rid", json!("abc")),
        ("top_k", json!(5)),
        ("min_p", json!(0.1)),
        ("repetition_penalty", json!(1.1)),
        ("ignore_eos", json!(true)),
        ("min_tokens", json!(3)),
        ("lora_path", json!(null)),
        ("session_params", json!(null)),
        ("custom_params", json!(null)),
        ("return_hidden_states", json!(false)),
        ("continue_final_message", json!(false)),
    ] {
        let reply = cluster.post("/v1/chat/completions", &body(&json!({field: value}))).send().await?;
        assert_eq!(reply.status, 200, "{field}: {}", reply.text());
    }
    // Every field that is known takes a null, also of nvext.
    for field in [
        "stream",
        "nvext",
        "thinking",
        "chat_template_kwargs",
        "chat_template_args",
        "min_tokens",
        "ignore_eos",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "top_k",
        "min_p",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "add_generation_prompt",
        "continue_final_message",
        "thinking_token_budget",
        "detokenize",
        "allowed_token_ids",
        "bad_words_token_ids",
        "logprob_token_ids",
        "return_tokens_as_token_ids",
        "mm_processor_kwargs",
        "service_tier",
        "store",
        "prediction",
        "modalities",
        "functions",
        "function_call",
    ] {
        let reply = cluster.post("/v1/chat/completions", &body(&json!({field: null}))).send().await?;
        assert_eq!(reply.status, 200, "{field}: {}", reply.text());
    }
    for field in [
        "annotations",
        "extra_fields",
        "backend_instance_id",
        "decode_worker_id",
        "prefill_worker_id",
        "dp_rank",
        "prefill_dp_rank",
        "token_data",
        "max_thinking_tokens",
        "cache_salt",
        "agent_hints",
        "greed_sampling",
        "use_raw_prompt",
        "metadata_upload",
        "request_timestamp_ms",
        "routing_constraints",
        "router",
        "session_control",
    ] {
        let reply =
            cluster.post("/v1/chat/completions", &body(&json!({"nvext": {field: null}}))).send().await?;
        assert_eq!(reply.status, 200, "nvext.{field}: {}", reply.text());
    }
    assert_eq!(
        cluster.metric("roost_ignored_fields_total").await?,
        Some(9.0),
        "of the others only SGLang's own: separate_reasoning, stream_reasoning, no_stop_trim, rid, lora_path, \
         session_params, custom_params, return_hidden_states; and foo"
    );
    Ok(())
}

#[tokio::test]
async fn the_strict_switch_names_what_it_refuses() -> Result<()> {
    let cluster =
        Options::new(1).with(|c| c.http.fields = roost_frontend::FieldPolicy::Refuse).start().await?;
    let reply = cluster.post("/v1/chat/completions", &body(&json!({"foo": 1, "bar": 2}))).send().await?;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("Unsupported parameter(s): `foo`, `bar`"), "{}", reply.text());
    let reply = cluster.post("/v1/chat/completions", &body(&json!({"nvext": {"zzz": 1}}))).send().await?;
    assert!(reply.status == 400 && reply.text().contains("nvext.zzz"), "{}", reply.text());
    Ok(())
}

/// A field, and what of it the worker gets.
#[tokio::test]
async fn the_worker_gets_what_the_client_asked_for() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let cases = [
        (json!({"max_tokens": 7, "max_completion_tokens": 9}), "/stop_conditions/max_tokens", json!(9)),
        (json!({"max_tokens": 7}), "/stop_conditions/max_tokens", json!(7)),
        (json!({}), "/stop_conditions/max_tokens", json!(null)),
        (json!({"min_tokens": 2}), "/stop_conditions/min_tokens", json!(2)),
        (json!({"stop": "x"}), "/stop_conditions/stop", json!(["x"])),
        (json!({"stop": ["x", "y"]}), "/stop_conditions/stop", json!(["x", "y"])),
        (json!({"stop": ["x"], "ignore_eos": true}), "/stop_conditions/stop", json!(null)),
        (json!({"ignore_eos": true}), "/stop_conditions/ignore_eos", json!(true)),
        (json!({"stop_token_ids": [7, 8]}), "/stop_conditions/stop_token_ids", json!([7, 8])),
        (json!({"thinking_token_budget": 11}), "/stop_conditions/max_thinking_tokens", json!(11)),
        (json!({"nvext": {"max_thinking_tokens": 12}}), "/stop_conditions/max_thinking_tokens", json!(12)),
        (json!({"temperature": 0.3}), "/sampling_options/temperature", json!(0.3)),
        (json!({"top_p": 0.9}), "/sampling_options/top_p", json!(0.9)),
        (json!({"top_k": 5}), "/sampling_options/top_k", json!(5)),
        (json!({"min_p": 0.1}), "/sampling_options/min_p", json!(0.1)),
        (json!({"frequency_penalty": 0.2}), "/sampling_options/frequency_penalty", json!(0.2)),
        (json!({"presence_penalty": 0.3}), "/sampling_options/presence_penalty", json!(0.3)),
        (json!({"repetition_penalty": 1.1}), "/sampling_options/repetition_penalty", json!(1.1)),
        (json!({"seed": 7}), "/sampling_options/seed", json!(7)),
        (json!({"n": 2}), "/sampling_options/n", json!(2)),
        (json!({"logit_bias": {"5": 1.5}}), "/sampling_options/logit_bias", json!({"5": 1.5})),
        (
            json!({"temperature": 1, "nvext": {"greed_sampling": true}}),
            "/sampling_options/temperature",
            json!(0.0),
        ),
        (
            json!({"include_stop_str_in_output": true}),
            "/sampling_options/include_stop_str_in_output",
            json!(true),
        ),
        (json!({"guided_regex": "a+"}), "/sampling_options/guided_decoding/regex", json!("a+")),
        (json!({"guided_choice": ["a", "b"]}), "/sampling_options/guided_decoding/choice", json!(["a", "b"])),
        (json!({"guided_grammar": "g"}), "/sampling_options/guided_decoding/grammar", json!("g")),
        (
            json!({"response_format": {"type": "json_object"}}),
            "/sampling_options/guided_decoding/json",
            json!({"type": "object"}),
        ),
        (json!({"logprobs": true, "top_logprobs": 3}), "/output_options/logprobs", json!(3)),
        (json!({"skip_special_tokens": false}), "/output_options/skip_special_tokens", json!(false)),
        (
            json!({"return_tokens_as_token_ids": true}),
            "/output_options/return_tokens_as_token_ids",
            json!(true),
        ),
        (json!({"cache_salt": "salt"}), "/routing/cache_salt", json!("salt")),
        (json!({"cache_salt": "salt"}), "/extra_args/nvext/cache_salt", json!("salt")),
        (
            json!({"nvext": {"cache_salt": "inner"}, "cache_salt": "outer"}),
            "/routing/cache_salt",
            json!("inner"),
        ),
        (json!({"nvext": {"annotations": ["a:b"]}}), "/annotations", json!(["a:b"])),
        (json!({"nvext": {"extra_fields": ["timing"]}}), "/extra_args/nvext/extra_fields", json!(["timing"])),
        (json!({"nvext": {"agent_hints": {"osl": 100}}}), "/routing/expected_output_tokens", json!(100)),
        (json!({"nvext": {"agent_hints": {"priority": 3}}}), "/routing/priority", json!(3)),
        (json!({"nvext": {"agent_hints": {"priority": 3}}}), "/routing/priority_jump", json!(3.0)),
        (json!({"nvext": {"agent_hints": {"strict_priority": 1}}}), "/routing/strict_priority", json!(1)),
        (json!({"nvext": {"request_timestamp_ms": 12.5}}), "/request_timestamp_ms", json!(12.5)),
        (json!({"nvext": {"router": {"ttft_target": 200.0}}}), "/router/ttft_target", json!(200.0)),
        (json!({"nvext": {"token_data": [104, 105]}}), "/token_ids", json!([104, 105])),
        (json!({"nvext": {"token_data": [104, 105]}}), "/extra_args/nvext/token_in", json!(true)),
        (
            json!({"allowed_token_ids": [1, 2]}),
            "/extra_args/sampling_options/allowed_token_ids",
            json!([1, 2]),
        ),
        (
            json!({"bad_words_token_ids": [[1]]}),
            "/extra_args/sampling_options/bad_words_token_ids",
            json!([[1]]),
        ),
        (json!({"detokenize": false}), "/extra_args/sampling_options/detokenize", json!(false)),
        (json!({"logprob_token_ids": [3]}), "/extra_args/sampling_options/logprob_token_ids", json!([3])),
    ];
    for (extra, at, expected) in cases {
        let reply = cluster.post("/v1/chat/completions", &body(&extra)).send().await?;
        assert_eq!(reply.status, 200, "{extra}: {}", reply.text());
        let seen = seen(&cluster)?;
        assert_eq!(seen.pointer(at).unwrap_or(&Value::Null), &expected, "{extra} at {at} of {seen}");
    }
    Ok(())
}

/// What an answer says beside its text, in the peer's form (`extra_fields_unary`, `extra_fields_stream`, `stop_reason`
/// and `annotations` of `wire_parsers.json`).
#[tokio::test]
async fn nvext_of_answers() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let names = |value: &Value| -> Vec<String> {
        let mut names: Vec<_> =
            value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    };
    let asked = json!([
        "worker_id",
        "timing",
        "stop_reason",
        "detailed_finish_reason",
        "completion_token_ids",
        "prompt_token_ids",
        "engine_data"
    ]);
    let ids = |text: &str| -> Value { text.bytes().map(u32::from).collect::<Vec<_>>().into() };
    let reply = cluster
        .post("/v1/chat/completions", &body(&json!({"nvext": {"extra_fields": asked}})))
        .send()
        .await?;
    let nvext = reply.json()?["nvext"].clone();
    assert_eq!(
        names(&nvext),
        ["completion_token_ids", "detailed_finish_reason", "prompt_token_ids", "timing", "worker_id"]
    );
    assert_eq!(
        (&nvext["completion_token_ids"], &nvext["detailed_finish_reason"]),
        (&ids("hello"), &json!("stop"))
    );
    assert_eq!(nvext["prompt_token_ids"], json!(seen(&cluster)?["token_ids"]));
    assert_eq!(
        names(&nvext["timing"]),
        [
            "kv_hit_rate",
            "prefill_time_ms",
            "prefill_wait_time_ms",
            "request_received_ms",
            "router_queue_depth",
            "total_time_ms",
            "ttft_ms"
        ]
    );
    assert_eq!(nvext["worker_id"]["decode_worker_id"], cluster.workers[0].id());

    let stopped =
        body(&json!({"stop": ["ll"], "nvext": {"extra_fields": ["stop_reason", "detailed_finish_reason"]}}));
    let answer = cluster.post("/v1/chat/completions", &stopped).send().await?.json()?;
    assert_eq!(answer["nvext"], json!({"stop_reason": "ll", "detailed_finish_reason": "stop"}));
    assert_eq!(answer["choices"][0]["message"]["content"], "he");

    let streamed = body(&json!({"stream": true, "nvext": {
        "extra_fields": ["worker_id", "timing", "completion_token_ids", "prompt_token_ids"],
        "annotations": ["request_id", "formatted_prompt", "token_ids", "unknown"],
    }}));
    let reply = cluster.post("/v1/chat/completions", &streamed).send().await?;
    let events = reply.events();
    let (last, chunks) = events[..events.len() - 1].split_last().expect("chunks");
    let mut generated = Vec::new();
    for chunk in chunks {
        assert_eq!(names(&chunk["nvext"]), ["completion_token_ids", "worker_id"], "{chunk}");
        generated.extend(chunk["nvext"]["completion_token_ids"].as_array().cloned().unwrap_or_default());
    }
    assert_eq!(Value::from(generated), ids("hello"));
    assert_eq!(
        names(&last["nvext"]),
        ["completion_token_ids", "prompt_token_ids", "timing", "worker_id"],
        "{last}"
    );
    assert_eq!(last["nvext"]["completion_token_ids"], json!([]));
    // Annotations stand in front, in comments, which readers of events skip.
    let text = reply.text();
    let head: Vec<&str> = text.split("\n\n").take(3).collect();
    let id = events[0]["id"].as_str().and_then(|id| id.strip_prefix("chatcmpl-")).unwrap_or_default();
    assert_eq!(head[0], format!("event: request_id\n: \"{id}\""));
    let prompt =
        cluster.workers[0].journal().requests().last().and_then(|seen| seen.text.clone()).unwrap_or_default();
    assert_eq!(head[1], format!("event: formatted_prompt\n: {}", Value::from(prompt)));
    assert_eq!(head[2], format!("event: token_ids\n: \"{}\"", seen(&cluster)?["token_ids"]));
    // Who asks for nothing gets nothing.
    let plain = cluster.post("/v1/chat/completions", &body(&json!({}))).send().await?.json()?;
    assert!(plain.get("nvext").is_none(), "{plain}");
    Ok(())
}

/// A header, and what of it the worker gets.
#[tokio::test]
async fn headers_pin_and_hint() -> Result<()> {
    let mut options = Options::new(2);
    options.dp_size = 2;
    let cluster = options.start().await?;
    let worker = |at: usize| cluster.workers[at].id().to_string();
    let last = |at: usize| -> Result<Value> {
        let requests = cluster.workers[at].journal().requests();
        Ok(serde_json::to_value(&requests.last().expect("a request").request)?)
    };
    for (at, name) in ["x-dynamo-worker-instance-id", "x-worker-instance-id"].iter().enumerate() {
        for rank in ["x-dynamo-dp-rank", "x-dp-rank", "x-data-parallel-rank"] {
            let reply = cluster.chat("@@hello@@").header(name, &worker(at)).header(rank, "1").send().await?;
            let answer = reply.json()?;
            let ran = &answer["nvext"]["worker_id"];
            assert_eq!(ran["decode_worker_id"].to_string(), worker(at), "{name}: {answer}");
            assert_eq!(ran["decode_dp_rank"], 1, "{rank}: {answer}");
            assert_eq!(last(at)?["routing"]["dp_rank"], 1);
        }
    }
    let pin = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}],
        "nvext": {"backend_instance_id": cluster.workers[1].id(), "dp_rank": 0, "extra_fields": ["worker_id"]}});
    let answer = cluster.post("/v1/chat/completions", &pin).send().await?.json()?;
    assert_eq!(answer["nvext"]["worker_id"]["decode_worker_id"], cluster.workers[1].id());
    let first = worker(0);
    let to_first = cluster.chat("@@hello@@").header("x-dynamo-worker-instance-id", &first);
    for (name, value, at, expected) in [
        ("x-dynamo-request-priority", "5", "/routing/priority", json!(5)),
        ("x-dynamo-request-priority", "5", "/routing/priority_jump", json!(5.0)),
        ("x-dynamo-request-strict-priority", "2", "/routing/strict_priority", json!(2)),
        ("x-tenant-id", "t1", "/routing/cache_salt", json!("t1")),
        ("x-tenant-id", "t1", "/extra_args/nvext/cache_salt", json!("t1")),
        ("x-dynamo-session-id", "s1", "/agent_context/session_id", json!("s1")),
        ("x-claude-code-session-id", "c1", "/agent_context/session_id", json!("c1")),
        ("thread-id", "t2", "/agent_context/session_id", json!("t2")),
        ("x-session-id", "s2", "/agent_context/session_id", json!("s2")),
        ("x-session-affinity", "a1", "/agent_context/session_id", json!("a1")),
        // What cannot be read is as good as not there.
        ("x-dynamo-request-priority", "many", "/routing/priority", json!(null)),
        ("x-dynamo-dp-rank", "4294967295", "/agent_context", json!(null)),
    ] {
        let reply = to_first.clone().header(name, value).send().await?;
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        let seen = last(0)?;
        assert_eq!(seen.pointer(at).unwrap_or(&Value::Null), &expected, "{name}: {value} at {at} of {seen}");
    }
    let reply =
        to_first.clone().header("X-Dynamo-Meta-Team", "blue").header("x-dynamo-meta-n", "1").send().await?;
    assert_eq!(reply.status, 200);
    let seen = cluster.workers[0].journal().requests().last().expect("a request").metadata.clone();
    let seen: Vec<_> = seen.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(seen, [("n", "1"), ("team", "blue")]);
    let mut many = to_first.clone();
    for n in 0..65 {
        many = many.header(&format!("x-dynamo-meta-{n}"), "v");
    }
    assert_eq!(many.send().await?.status, 431);
    let unknown = cluster.chat("@@hello@@").header("x-dynamo-worker-instance-id", "12").send().await?;
    assert_eq!(unknown.status, 400);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_and_named() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    for (extra, status, param) in [
        (json!({"temperature": 3}), 400, "temperature"),
        (json!({"top_p": 0}), 400, "top_p"),
        (json!({"n": 0}), 400, "n"),
        (json!({"n": 300}), 400, "n"),
        (json!({"max_tokens": 0}), 400, "max_tokens"),
        (json!({"max_tokens": -5}), 400, "max_tokens"),
        (json!({"max_tokens": 1_000_000_000_000_u64}), 400, "max_tokens"),
        (json!({"max_tokens": "abc"}), 400, "max_tokens"),
        (json!({"logit_bias": {"5": 101}}), 400, "logit_bias[5]"),
        (json!({"stop": [""]}), 400, "stop"),
        (json!({"stream_options": {"include_usage": true}}), 400, "stream_options"),
        (json!({"tools": []}), 400, "tools"),
        (json!({"tool_choice": "required"}), 400, "tool_choice"),
        (json!({"functions": [{}]}), 501, "functions"),
        (json!({"allowed_token_ids": "x"}), 400, "allowed_token_ids"),
        (json!({"response_format": {"type": "xml"}}), 400, "response_format.type"),
        (json!({"nvext": {"dp_rank": "x"}}), 400, "nvext.dp_rank"),
        (
            json!({"nvext": {"routing_constraints": {"required_taints": vec!["gold"; 65]}}}),
            400,
            "nvext.routing_constraints",
        ),
        (json!({"messages": []}), 400, "messages"),
        (json!({"messages": "x"}), 400, "messages"),
        (json!({"model": ""}), 400, "model"),
    ] {
        let reply = cluster.post("/v1/chat/completions", &body(&extra)).send().await?;
        let error = &reply.json()?["error"];
        assert_eq!((reply.status, &error["param"]), (status, &json!(param)), "{extra}: {error}");
    }
    for extra in [json!({"echo": true}), json!({"suffix": "x"}), json!({"best_of": 2})] {
        let mut body = json!({"model": MODEL, "prompt": "@@hello@@"});
        for (key, value) in extra.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        assert_eq!(cluster.post("/v1/completions", &body).send().await?.status, 400, "{extra}");
    }
    Ok(())
}

/// Bytes as some clients send them: control characters in strings, a repeated key, no UTF-8, deep nesting.
#[tokio::test]
async fn bodies_that_are_almost_json() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let send = async |bytes: Vec<u8>| {
        cluster.post("/v1/chat/completions", &json!(null)).raw_body(bytes).send().await
    };
    let chat = |content: &str| {
        format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"@@hello@@{content}"}}]}}"#)
    };
    let reply = send(chat("a\tb\u{1}c\nd").into_bytes()).await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = cluster.workers[0].journal().requests()[0].text.clone().unwrap_or_default();
    assert!(text.contains("a\tb\u{1}c\nd"), "{text:?}");

    // Within a message the last one counts, as in Python.
    let order = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"system","content":"first","role":"user","content":"@@hello@@"}}]}}"#
    );
    let reply = send(order.into_bytes()).await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let prompt = seen(&cluster)?["token_ids"].clone();
    send(chat("").into_bytes()).await?;
    assert_eq!(prompt, seen(&cluster)?["token_ids"], "as if the last had been the only one");
    let twice = chat("").replacen("{", &format!(r#"{{"model":"{MODEL}","#), 1);
    let reply = send(twice.into_bytes()).await?;
    assert!(reply.status == 400 && reply.text().contains("duplicate field `model`"), "{}", reply.text());

    let mut broken = chat("ab").into_bytes();
    let at = broken.len() - 6;
    broken[at] = 0xff;
    let reply = send(broken).await?;
    assert!(reply.status == 400 && reply.text().contains("UTF-8"), "{}", reply.text());

    // Deep nesting costs no stack, wherever it stands.
    let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
    let unknown = chat("").replacen("{", &format!(r#"{{"foo":{},"#, deep(1_000_000)), 1);
    assert_eq!(send(unknown.into_bytes()).await?.status, 200, "what nobody reads is skipped");
    for member in
        ["messages", "tools", "chat_template_kwargs", "response_format", "guided_json", "nvext", "stop"]
    {
        let mut body = body(&json!({}));
        body[member] = json!("@");
        let text = body.to_string().replace("\"@\"", &deep(1_000_000));
        let reply = send(text.into_bytes()).await?;
        assert_eq!(reply.status, 400, "{member}: {}", reply.text());
        assert!(reply.body.len() < 2048, "{member}: what is wrong is not repeated");
    }
    for member in ["temperature", "max_tokens", "stop", "model", "tool_choice", "user", "reasoning_effort"] {
        let reply =
            cluster.post("/v1/chat/completions", &body(&json!({member: "x".repeat(1 << 20)}))).send().await?;
        assert!(reply.body.len() < 4096, "{member}: {} bytes", reply.body.len());
    }
    assert_eq!(send(chat("").into_bytes()).await?.status, 200);
    Ok(())
}
