//! Several choices and log probabilities: by index, whole, each with its text.

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options};
use serde_json::{Value, json};

/// `content` of `logprobs` and text of a chunk or a choice.
fn shown(choice: &Value) -> (Vec<Value>, String) {
    let logprobs = choice["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    let message = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
    let text = ["reasoning_content", "content"].map(|member| message[member].as_str().unwrap_or_default());
    (logprobs, text.concat())
}

/// Bytes that the tokens of a list stand for.
fn spelled(logprobs: &[Value]) -> Vec<u8> {
    let bytes = logprobs.iter().flat_map(|token| token["bytes"].as_array().expect("bytes are told"));
    bytes.map(|byte| byte.as_u64().expect("a number") as u8).collect()
}

async fn chat(cluster: &Cluster, content: &str, extra: &Value) -> Result<Vec<Value>> {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": content}]});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let reply = cluster.post("/v1/chat/completions", &body).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(if extra["stream"] == true { reply.events() } else { vec![reply.json()?] })
}

/// The chunks of one choice.
fn of(events: &[Value], index: usize) -> Vec<&Value> {
    let choices = events.iter().map(|event| &event["choices"][0]);
    choices.filter(|choice| choice["index"].as_u64() == Some(index as u64)).collect()
}

#[tokio::test]
async fn two_choices_of_one_request_are_told_apart() -> Result<()> {
    let mut options = Options::new(1);
    options.scripts = options.scripts.with_directives();
    let cluster = options.start().await?;
    let prompt = "@@{\"out\": \"Hi yo\", \"nidx\": 2}@@";
    let extra = json!({"n": 2, "temperature": 1, "seed": 7});
    let unary = &chat(&cluster, prompt, &extra).await?[0];
    let texts: Vec<&Value> = (0..2).map(|at| &unary["choices"][at]["message"]["content"]).collect();
    assert_eq!(texts, ["Hi yo", "Hi yo"], "{unary}");
    let prompt_tokens = cluster.workers[0].journal().requests()[0].request.token_ids.len();
    assert_eq!(unary["usage"]["prompt_tokens"], prompt_tokens, "the prompt counts once");
    assert_eq!(unary["usage"]["completion_tokens"], 10, "the answers are summed");

    let on = json!({"n": 2, "stream": true, "stream_options": {"include_usage": true}});
    let events = chat(&cluster, prompt, &on).await?;
    for index in 0..2 {
        let chunks = of(&events, index);
        assert_eq!(chunks.iter().map(|chunk| shown(chunk).1).collect::<String>(), "Hi yo");
        let roles = chunks.iter().filter(|chunk| chunk["delta"]["role"] == "assistant").count();
        assert_eq!((roles, &chunks[0]["delta"]["role"]), (1, &json!("assistant")));
        let ends: Vec<&Value> = chunks.iter().map(|c| &c["finish_reason"]).filter(|r| !r.is_null()).collect();
        assert_eq!(ends, ["stop"]);
    }
    assert_eq!(events[events.len() - 2]["usage"]["completion_tokens"], 10);
    let seen = cluster.workers[0].journal().requests();
    assert_eq!(seen.len(), 2, "one request for all choices");
    assert_eq!(
        (seen[0].request.sampling_options.n, seen[0].request.sampling_options.seed),
        (Some(2), Some(7))
    );

    let body = json!({"model": MODEL, "prompt": prompt, "n": 2});
    let reply = cluster.post("/v1/completions", &body).send().await?.json()?;
    assert_eq!((&reply["choices"][1]["text"], &reply["choices"][1]["index"]), (&json!("Hi yo"), &json!(1)));
    Ok(())
}

/// A choice that meets its stop string is over while the other goes on; the worker is stopped when both are.
#[tokio::test]
async fn a_choice_that_ends_leaves_the_others_alone() -> Result<()> {
    let mut options = Options::new(1);
    let say = |index: u32, text: &str| json!({"raw": {"index": index, "token_ids": text.as_bytes()}});
    let steps = json!([
        say(0, "one#"), say(1, "two "), say(0, "ignored"), say(1, "three#"), {"sleep_s": 30.0}, {"finish": "stop"}
    ]);
    options.scripts.insert("apart", serde_json::from_value(steps)?);
    let cluster = options.start().await?;
    for stream in [true, false] {
        let extra = json!({"n": 2, "stop": "#", "stream": stream});
        let events = chat(&cluster, "@@apart@@", &extra).await?;
        for (index, text) in [(0, "one"), (1, "two three")] {
            let joined: String = if stream {
                of(&events, index).iter().map(|chunk| shown(chunk).1).collect()
            } else {
                shown(&events[0]["choices"][index]).1
            };
            assert_eq!(joined, text);
        }
    }
    cluster
        .until("the worker was stopped twice", async || {
            Ok(cluster.workers[0].journal().cancellations().len() == 2)
        })
        .await
}

/// As with the peer: a worker that does not know `n` gives one choice, and that one is whole.
#[tokio::test]
async fn fewer_choices_than_asked_are_all_there_is() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let unary = &chat(&cluster, "@@hello@@", &json!({"n": 3})).await?[0];
    assert_eq!(unary["choices"].as_array().map(Vec::len), Some(1), "{unary}");
    let cut = json!({"model": MODEL, "n": 2, "messages": [{"role": "user", "content": "@@noterm@@"}]});
    assert_eq!(cluster.post("/v1/chat/completions", &cut).send().await?.status, 500);
    Ok(())
}

/// Every chunk brings the log probabilities of exactly the bytes it shows: across characters in pieces, text held back
/// for a stop string, and text cut off by one. The tokens of this model are bytes.
#[tokio::test]
async fn log_probabilities_come_with_their_text() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let stops = [
        ("@@emoji@@", json!([]), "ok 😀 é你"),
        ("@@stopchars@@", json!(["° Δ"]), " 3 × 4 "),
        ("@@stopchars@@", json!([" ×!", "Δ d!"]), " 3 × 4 ° Δ done"),
        ("@@stopsplit@@", json!([" zeta eta theta"]), " delta epsilon"),
        ("@@eosin@@", json!([]), "answer"),
    ];
    for (script, stop, text) in stops {
        let mut extra = json!({"logprobs": true, "top_logprobs": 2, "stop": stop});
        let whole = &chat(&cluster, script, &extra).await?[0];
        let (tokens, content) = shown(&whole["choices"][0]);
        assert_eq!((content.as_str(), spelled(&tokens)), (text, text.as_bytes().to_vec()), "{script}");
        extra["stream"] = json!(true);
        let events = chat(&cluster, script, &extra).await?;
        let chunks = of(&events, 0);
        let mut streamed = Vec::new();
        for chunk in &chunks {
            let (tokens, text) = shown(chunk);
            assert_eq!(spelled(&tokens), text.as_bytes(), "{script}: {chunk}");
            streamed.extend(tokens);
        }
        assert_eq!(streamed, tokens, "{script}: streamed and whole answer agree");
    }
    Ok(())
}

#[tokio::test]
async fn what_a_line_of_log_probabilities_says() -> Result<()> {
    let mut options = Options::new(1);
    options.scripts = options.scripts.with_directives();
    let cluster = options.start().await?;
    let prompt = "@@{\"out\": \"Hi\"}@@";
    let ask = async |extra: Value| -> Result<Value> {
        Ok(chat(&cluster, prompt, &extra).await?[0]["choices"][0]["logprobs"].clone())
    };
    let two = ask(json!({"logprobs": true, "top_logprobs": 2})).await?;
    assert_eq!(
        two["content"][0],
        json!({"token": "H", "logprob": -0.5, "token_id": 72, "bytes": [72], "top_logprobs": [
            {"token": "H", "logprob": -0.5, "bytes": [72]}, {"token": "I", "logprob": -1.5, "bytes": [73]}]})
    );
    let none = ask(json!({"logprobs": true, "top_logprobs": 0})).await?;
    assert_eq!(
        (&none["content"][1]["token"], &none["content"][1]["top_logprobs"]),
        (&json!("i"), &json!([]))
    );
    let ids = ask(json!({"logprobs": true, "return_tokens_as_token_ids": true})).await?;
    assert_eq!(ids["content"][0]["token"], "token_id:72");
    assert_eq!(ask(json!({"top_logprobs": 2})).await?, Value::Null);
    let seen: Vec<Option<u32>> = cluster.workers[0]
        .journal()
        .requests()
        .iter()
        .map(|seen| seen.request.output_options.logprobs)
        .collect();
    assert_eq!(seen, [Some(2), Some(0), Some(1), None]);

    let body = json!({"model": MODEL, "prompt": prompt, "logprobs": 1, "logit_bias": {"72": -3}});
    let answer = cluster.post("/v1/completions", &body).send().await?.json()?;
    assert_eq!(
        answer["choices"][0]["logprobs"],
        json!({"tokens": ["H", "i"], "token_logprobs": [-0.5, -0.5], "top_logprobs": [{"H": -0.5}, {"i": -0.5}], "text_offset": []})
    );
    let seen = &cluster.workers[0].journal().requests()[4].request;
    assert_eq!(seen.sampling_options.logit_bias, Some([("72".to_owned(), -3.0)].into()));
    Ok(())
}

/// With reasoning parsed, all tokens are told, those of marks that no delta shows as well.
#[tokio::test]
async fn log_probabilities_of_parsed_answers_lose_no_token() -> Result<()> {
    let mut options = Options::new(1);
    options.model = "tiny-think";
    options.parsers = (Some("hermes"), Some("qwen3"));
    let cluster = options.start().await?;
    for stream in [true, false] {
        let events = chat(&cluster, "@@thinkok@@", &json!({"logprobs": true, "stream": stream})).await?;
        let chunks: Vec<&Value> = events.iter().map(|event| &event["choices"][0]).collect();
        let tokens: Vec<Value> = chunks.iter().flat_map(|chunk| shown(chunk).0).collect();
        assert_eq!(String::from_utf8(spelled(&tokens))?, "step one\nstep two</think>\n\nFinal answer.");
    }
    Ok(())
}
