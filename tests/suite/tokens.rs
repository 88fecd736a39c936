//! Routes beside the generating ones: tokens, readiness, what is absent, the document.

use anyhow::Result;
use roost_tests::{MODEL, Options};
use serde_json::{Value, json};

#[tokio::test]
async fn texts_and_chats_to_ids_and_back() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let text = "héllo";
    let ids: Vec<u32> = text.bytes().map(u32::from).collect();
    for path in ["/tokenize", "/v1/tokenize"] {
        for body in [json!({"model": MODEL, "prompt": text}), json!({"prompt": text})] {
            let reply = cluster.post(path, &body).send().await?;
            assert_eq!(
                reply.json()?,
                json!({"tokens": ids, "count": ids.len(), "max_model_len": 262_144}),
                "{path}"
            );
        }
    }
    let two =
        cluster.post("/tokenize", &json!({"model": MODEL, "prompt": ["a", "bc"]})).send().await?.json()?;
    assert_eq!((&two["tokens"], &two["count"]), (&json!([[97], [98, 99]]), &json!([1, 2])));
    for path in ["/detokenize", "/v1/detokenize"] {
        let back = cluster.post(path, &json!({"model": MODEL, "tokens": ids})).send().await?.json()?;
        assert_eq!(back, json!({"text": text, "prompt": text}), "{path}");
    }
    let lists = cluster.post("/detokenize", &json!({"tokens": [[97], [98, 99]]})).send().await?.json()?;
    assert_eq!(lists["text"], json!(["a", "bc"]));
    // The ids of a chat are those that its worker gets.
    let chat = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}]});
    let counted = cluster.post("/tokenize", &chat).send().await?.json()?;
    assert_eq!(cluster.post("/v1/chat/completions", &chat).send().await?.status, 200);
    let sent = cluster.workers[0].journal().requests()[0].request.token_ids.to_vec();
    assert_eq!(counted["tokens"], json!(sent));
    for (path, body, status) in [
        ("/tokenize", json!({"model": "nope", "prompt": "x"}), 404),
        ("/tokenize", json!({"model": MODEL}), 400),
        ("/detokenize", json!({"model": MODEL, "tokens": [999_999]}), 400),
        ("/detokenize", json!({"model": MODEL, "tokens": ["x"]}), 400),
        ("/detokenize", json!({"model": MODEL, "tokens": [1, [2]]}), 400),
    ] {
        let reply = cluster.post(path, &body).send().await?;
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
        assert!(reply.json()?["error"]["message"].is_string());
    }
    Ok(())
}

#[tokio::test]
async fn what_is_absent_says_so() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    for (method, path) in [
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/rerank"),
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/audio/speech"),
        ("GET", "/v1/files"),
        ("GET", "/v1/files/f1/content"),
        ("POST", "/v1/batches"),
    ] {
        let reply = cluster.get(path).method(method).send().await?;
        let error = reply.json()?["error"].clone();
        assert_eq!((reply.status, &error["type"]), (404, &json!("not_found_error")), "{path}");
        let text = error["message"].as_str().unwrap();
        assert!(text.contains("here") && text.contains(path), "{text}");
    }
    let reply = cluster.get("/v1/chat/completions").send().await?;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(reply.json()?["error"]["type"], "invalid_request_error");
    Ok(())
}

#[tokio::test]
async fn readiness_follows_the_workers() -> Result<()> {
    let cluster = Options::new(0).start().await?;
    let before = cluster.get("/ready").send().await?;
    assert_eq!((before.status, before.json()?), (503, json!({"ready": false, "models": []})));
    let ready = Options::new(1).start().await?;
    let after = ready.get("/ready").send().await?;
    assert_eq!((after.status, after.json()?), (200, json!({"ready": true, "models": [MODEL]})));
    ready.signal_frontend();
    ready
        .until("not ready any more", async || {
            Ok(ready.get("/ready").send().await.map_or(true, |r| r.status == 503))
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_model_in_anthropics_shape() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let request = cluster.get("/v1/models/tiny").header("anthropic-version", "2023-06-01");
    let model = request.send().await?.json()?;
    assert_eq!(
        (&model["type"], &model["id"], &model["max_input_tokens"]),
        (&json!("model"), &json!(MODEL), &json!(262_144))
    );
    Ok(())
}

/// Every route of the document exists, with its methods.
#[tokio::test]
async fn the_document_tells_of_routes_that_exist() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let document = cluster.get("/openapi.json").send().await?.json()?;
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 15, "{paths:?}");
    for (path, item) in paths {
        for method in item.as_object().unwrap().keys() {
            let method: &'static str = if method == "post" { "POST" } else { "GET" };
            let path = path.replace("{model}", MODEL);
            let mut request = cluster.get(&path).method(method);
            if method == "POST" {
                request = request.header("content-type", "application/json").raw_body("{}");
            }
            let reply = request.send().await?;
            let known = if method == "POST" { reply.status == 400 } else { reply.status == 200 };
            assert!(known, "{method} {path}: {} {}", reply.status, reply.text());
        }
    }
    let answers = |value: &Value| value.as_object().is_some_and(|answers| !answers.is_empty());
    assert!(
        paths
            .values()
            .flat_map(|item| item.as_object().unwrap().values())
            .all(|op| answers(&op["responses"]))
    );
    Ok(())
}
