//! Completions of several prompts: one answer, choices numbered through, usage summed.

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options};
use serde_json::{Value, json};

async fn cluster() -> Result<Cluster> {
    let mut options = Options::new(2);
    options.scripts = options.scripts.with_directives();
    options.start().await
}

fn say(text: &str) -> String {
    json!({"out": text}).to_string().replace('{', "@@{").replace('}', "}@@")
}

/// What each choice says, and why it ends, by index: of a unary answer or of a stream's chunks.
fn choices(events: &[Value], count: usize) -> Vec<(String, Value)> {
    let mut said = vec![(String::new(), Value::Null); count];
    for choice in events.iter().filter_map(|event| event["choices"].as_array()).flatten() {
        let (text, finish) = &mut said[choice["index"].as_u64().expect("an index") as usize];
        text.push_str(choice["text"].as_str().expect("a text"));
        if !choice["finish_reason"].is_null() {
            assert!(finish.is_null(), "a choice ends once");
            *finish = choice["finish_reason"].clone();
        }
    }
    said
}

#[tokio::test]
async fn every_prompt_has_its_choices() -> Result<()> {
    let cluster = cluster().await?;
    let texts = ["one", "two and more", "three"];
    let prompts: Vec<String> = texts.iter().map(|text| say(text)).collect();
    let ids: Vec<Vec<u32>> = prompts.iter().map(|text| text.bytes().map(u32::from).collect()).collect();
    for prompt in [json!(prompts), json!(ids)] {
        for stream in [false, true] {
            let mut body = json!({"model": MODEL, "prompt": prompt, "stream": stream});
            if stream {
                body["stream_options"] = json!({"include_usage": true});
            }
            let reply = cluster.post("/v1/completions", &body).send().await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let events = if stream { reply.events() } else { vec![reply.json()?] };
            for ((text, finish), expected) in choices(&events, 3).into_iter().zip(texts) {
                assert_eq!((text.as_str(), finish), (expected, json!("stop")));
            }
            let usage = &events.iter().rfind(|event| event["usage"].is_object()).expect("usage")["usage"];
            assert_eq!(usage["prompt_tokens"], prompts.iter().map(String::len).sum::<usize>());
            assert_eq!(usage["completion_tokens"], texts.iter().map(|text| text.len()).sum::<usize>());
            let names: Vec<&Value> =
                events.iter().map(|event| &event["id"]).filter(|id| !id.is_null()).collect();
            assert!(names.iter().all(|id| *id == names[0]), "one answer: {names:?}");
        }
    }
    let requests: Vec<_> = cluster.workers.iter().flat_map(|worker| worker.journal().requests()).collect();
    assert_eq!(requests.len(), 4 * 3, "a request of its own for each prompt");
    Ok(())
}

/// `index` runs over prompts times `n`.
#[tokio::test]
async fn choices_of_several_prompts_are_numbered_through() -> Result<()> {
    let cluster = cluster().await?;
    let prompt = |text: &str| format!("@@{}@@", json!({"out": text, "nidx": 2}));
    for stream in [false, true] {
        let body = json!({"model": MODEL, "prompt": [prompt("a"), prompt("b")], "n": 2, "temperature": 1, "stream": stream});
        let reply = cluster.post("/v1/completions", &body).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let events = if stream { reply.events() } else { vec![reply.json()?] };
        let said: Vec<String> = choices(&events, 4).into_iter().map(|(text, _)| text).collect();
        assert_eq!(said, ["a", "a", "b", "b"]);
    }
    Ok(())
}

/// A stop string ends the answer to one prompt; its worker is told, the others go on.
#[tokio::test]
async fn an_answer_that_ends_leaves_the_others_alone() -> Result<()> {
    let mut options = Options::new(1);
    options.scripts = options.scripts.with_directives();
    let raw = |text: &str| json!({"raw": {"token_ids": text.as_bytes()}});
    options.scripts.insert("long", serde_json::from_value(json!([raw("here#"), {"sleep_s": 60.0}]))?);
    let cluster = options.start().await?;
    for stream in [false, true] {
        let body =
            json!({"model": MODEL, "prompt": ["@@long@@", say("whole")], "stop": "#", "stream": stream});
        let reply = cluster.post("/v1/completions", &body).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let events = if stream { reply.events() } else { vec![reply.json()?] };
        let said: Vec<String> = choices(&events, 2).into_iter().map(|(text, _)| text).collect();
        assert_eq!(said, ["here", "whole"]);
    }
    cluster
        .until("the worker was stopped twice", async || {
            Ok(cluster.workers[0].journal().cancellations().len() == 2)
        })
        .await
}

/// One prompt that fails takes the whole answer with it, and the other prompts are withdrawn.
#[tokio::test]
async fn an_error_of_one_prompt_ends_the_request() -> Result<()> {
    let mut options = Options::new(1);
    options.context_length = 8192;
    options.scripts = options.scripts.with_directives();
    let raw = |text: &str| json!({"raw": {"token_ids": text.as_bytes()}});
    options.scripts.insert("long", serde_json::from_value(json!([raw("begun"), {"sleep_s": 60.0}]))?);
    let cluster = options.start().await?;
    // The stream of this script ends without a reason.
    let mut body = json!({"model": MODEL, "prompt": ["@@long@@", "@@noterm@@"]});
    assert_eq!(cluster.post("/v1/completions", &body).send().await?.status, 500);
    body["stream"] = true.into();
    let events = cluster.post("/v1/completions", &body).send().await?.events();
    assert!(events.iter().any(|event| event["error"].is_object()), "{events:?}");
    assert!(choices(&events, 2).iter().all(|(_, finish)| finish.is_null()), "{events:?}");
    cluster
        .until("the others were withdrawn", async || {
            Ok(cluster.workers[0].journal().cancellations().len() == 2)
        })
        .await?;
    for (prompt, told) in [
        (json!(["a", ""]), "empty"),
        (json!([[1], [4_000_000]]), "4000000"),
        (json!(vec!["a"; 129]), "129 entries"),
        (json!(["a", "b".repeat(9000)]), "context"),
    ] {
        let reply =
            cluster.post("/v1/completions", &json!({"model": MODEL, "prompt": prompt})).send().await?;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().contains(told), "{}", reply.text());
    }
    Ok(())
}
