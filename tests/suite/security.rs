//! Text of clients that must do no harm: C-SEC-02 (ids) and C-MET-02 (labels).

use std::io;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use roost_telemetry::logging::{Format, subscriber};
use roost_tests::{Cluster, MODEL, Options};
use serde_json::json;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics here").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Captured {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody panics here")).into_owned()
    }
}

#[tokio::test]
async fn c_sec_02_ids_are_echoed_only_when_harmless() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let echo = async |id: &str| -> Result<String> {
        let reply = cluster.chat("@@hello@@").header("x-request-id", id).send().await?;
        assert_eq!(reply.status, 200, "{id:?}: {}", reply.text());
        let answer = reply.json()?["id"].as_str().unwrap_or_default().to_owned();
        let echoed = reply.header("x-request-id").unwrap_or_default().to_owned();
        assert!(
            echoed == id || answer == format!("chatcmpl-{echoed}"),
            "a fresh id is that of the answer: {echoed}"
        );
        Ok(echoed)
    };
    for good in ["r-1", "0af7651916cd43dd8448eb211c80319c", "team/a:b.c_d~e", &"a".repeat(128)] {
        assert_eq!(echo(good).await?, good);
    }
    for bad in ["a".repeat(9000).as_str(), "<script>alert(1)</script>", "a\tb", "a b", "é", "a\"b", "a;b"] {
        assert_ne!(echo(bad).await?, bad);
    }
    let none = cluster.chat("@@hello@@").send().await?;
    let answer = none.json()?["id"].clone();
    assert_eq!(answer, format!("chatcmpl-{}", none.header("x-request-id").unwrap_or_default()));
    let refused =
        cluster.post("/v1/chat/completions", &json!({})).header("x-request-id", "r-2").send().await?;
    assert_eq!((refused.status, refused.header("x-request-id")), (400, Some("r-2")));
    Ok(())
}

/// The server's name for a request can be asked for, and two at once may not have the same one... nor does a shared
/// `x-request-id` tie two requests together.
#[tokio::test]
async fn c_sec_02_requests_of_one_name_are_apart() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let body =
        json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@slow3@@"}]});
    let ask = || cluster.post("/v1/chat/completions", &body).header("x-request-id", "same");
    let first = ask();
    let leaving = tokio::spawn(async move { first.send().await });
    cluster
        .until("the worker has it", async || Ok(cluster.workers[0].journal().requests().len() == 1))
        .await?;
    let second = ask();
    let staying = tokio::spawn(async move { second.send().await });
    cluster
        .until("the worker has both", async || Ok(cluster.workers[0].journal().requests().len() == 2))
        .await?;
    leaving.abort();
    let answer = staying.await??;
    assert!(answer.text().contains("late") && answer.text().contains("[DONE]"), "{}", answer.text());
    assert_eq!(answer.header("x-request-id"), Some("same"));
    let journal = cluster.workers[0].journal();
    let ids: Vec<_> = journal.requests().iter().map(|request| request.id.clone()).collect();
    assert_ne!(ids[0], ids[1], "the worker tells them apart");
    assert_eq!(journal.cancellations().len(), 1);
    Ok(())
}

#[tokio::test]
async fn c_sec_02_log_records_stay_one_line() -> Result<()> {
    for format in [Format::Console { ansi: false }, Format::Json] {
        let captured = Captured::default();
        let writer = captured.clone();
        let logs = subscriber("debug", format, move || writer.clone())?;
        let _guard = tracing::subscriber::set_default(logs);
        let cluster = Options::new(1).start().await?;
        let hostile = "\u{1b}[31m\nINFO roost::access: forged\r\u{7}";
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}],
            "nvext": {"session_control": {"session_id": hostile}, "annotations": [hostile]}, "user": hostile});
        assert_eq!(cluster.post("/v1/chat/completions", &body).send().await?.status, 200);
        let unknown = json!({"model": hostile, "messages": [{"role": "user", "content": "x"}]});
        assert_eq!(cluster.post("/v1/chat/completions", &unknown).send().await?.status, 404);
        let quoted = cluster.chat("@@hello@@").session("a\"b'c}{").send().await?;
        assert_eq!(quoted.status, 200);
        let text = captured.text();
        assert!(text.contains("forged"), "the session is in the access log: {text}");
        assert!(!text.chars().any(|c| c.is_ascii_control() && c != '\n'), "{text:?}");
        for line in text.lines() {
            match format {
                Format::Json => drop(serde_json::from_str::<serde_json::Value>(line)?),
                Format::Console { .. } => assert!(!line.starts_with("INFO"), "{line}"),
            }
        }
    }
    Ok(())
}

/// What is refused is in the access log under the name that the client was told.
#[tokio::test]
async fn refused_requests_have_their_name_in_the_access_log() -> Result<()> {
    let captured = Captured::default();
    let writer = captured.clone();
    let logs = subscriber("info", Format::Json, move || writer.clone())?;
    let _guard = tracing::subscriber::set_default(logs);
    let mut options = Options::new(1);
    options.context_length = 100;
    let cluster = options.start().await?;
    let beyond = json!({"model": MODEL, "messages": [{"role": "user", "content": "x".repeat(300)}]});
    let foreign = json!({"model": MODEL, "prompt": [[1_000_000]]});
    for (path, body, named) in [
        ("/v1/chat/completions", &beyond, Some("mine-1")),
        ("/v1/chat/completions", &beyond, None),
        ("/v1/completions", &foreign, Some("mine-2")),
    ] {
        let mut request = cluster.post(path, body).session("its session");
        if let Some(name) = named {
            request = request.header("x-request-id", name);
        }
        let reply = request.send().await?;
        assert_eq!(reply.status, 400, "{}", reply.text());
        let told = reply.header("x-request-id").unwrap_or_default().to_owned();
        assert!(!told.is_empty() && named.is_none_or(|named| named == told), "{told}");
        let text = captured.text();
        let line = text.lines().rev().find(|line| line.contains(&told));
        let Some(line) = line else { panic!("{told} is not in the log: {text}") };
        assert!(line.contains("roost::access") && line.contains("its session"), "{line}");
    }
    Ok(())
}

/// A session id of any length keeps its worker and costs the tables no more than a short one.
#[tokio::test]
async fn long_session_ids_are_shortened() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let long = "s".repeat(20_000);
    let other = format!("{long}t");
    let mut homes = Vec::new();
    for session in [&long, &other, &long, &other] {
        let answer = cluster.chat("@@hello@@").session(session).send().await?.json()?;
        homes.push(answer["nvext"]["worker_id"]["decode_worker_id"].clone());
    }
    assert_eq!((&homes[0], &homes[1]), (&homes[2], &homes[3]));
    let seen: Vec<String> = cluster
        .workers
        .iter()
        .flat_map(|worker| worker.journal().requests())
        .filter_map(|seen| Some(seen.request.agent_context.as_ref()?.session_id.clone()))
        .collect();
    assert!(seen.len() == 4 && seen.iter().all(|id| id.len() <= 256), "{seen:?}");
    assert_ne!(seen.iter().min(), seen.iter().max(), "two sessions stay two");
    Ok(())
}

/// Series that name a worker.
async fn series_of(cluster: &Cluster, id: u64) -> Result<usize> {
    let page = cluster.get("/metrics").send().await?.text();
    let (decimal, hex) = (format!("\"{id}\""), format!("\"{id:x}\""));
    Ok(page.lines().filter(|line| line.contains(&decimal) || line.contains(&hex)).count())
}

/// C-MET-02: series of a worker go when it goes.
#[tokio::test]
async fn c_met_02_series_of_workers_go_with_them() -> Result<()> {
    let mut cluster = Options::new(3).start().await?;
    for session in 0..12 {
        let reply = cluster.chat("@@hello@@").session(&session.to_string()).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let ids: Vec<u64> = cluster.workers.iter().map(|worker| worker.id()).collect();
    for id in &ids {
        assert!(series_of(&cluster, *id).await? > 0, "{id} is in the labels");
    }
    cluster.workers.remove(1).shutdown().await;
    cluster.wait_for_workers(MODEL, 2).await?;
    cluster.until("its series are gone", async || Ok(series_of(&cluster, ids[1]).await? == 0)).await?;
    assert!(series_of(&cluster, ids[0]).await? > 0 && series_of(&cluster, ids[2]).await? > 0);
    Ok(())
}

/// C-MET-02: what clients write makes no series.
#[tokio::test]
async fn c_met_02_no_text_of_clients_in_labels() -> Result<()> {
    no_text_of_clients_in_labels(300).await
}

#[tokio::test]
#[ignore = "the case's own 2,000 requests of each kind"]
async fn c_met_02_many_texts_of_clients() -> Result<()> {
    no_text_of_clients_in_labels(2000).await
}

async fn no_text_of_clients_in_labels(requests: u32) -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let names = async || -> Result<std::collections::BTreeSet<String>> {
        let page = cluster.get("/metrics").send().await?.text();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        Ok(lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect())
    };
    let known = cluster.chat("@@hello@@").session("one").send().await?;
    assert_eq!(known.status, 200);
    let unknown = json!({"model": "typo", "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(cluster.post("/v1/chat/completions", &unknown).send().await?.status, 404);
    // The runtime is measured a little after the start.
    let measured =
        async || Ok(names().await?.iter().any(|name| name.starts_with("dynamo_tokio_worker_busy_ratio{")));
    cluster.until("the runtime is measured", measured).await?;
    let before = names().await?;
    for n in 0..requests {
        let name = match n % 4 {
            0 => format!("model-{n}"),
            1 => format!("a\"b\n{n}"),
            2 => format!("{}{n}", "m".repeat(5000)),
            _ => format!("x{{y=\"{n}\"}}"),
        };
        let body = json!({"model": name, "messages": [{"role": "user", "content": "x"}]});
        assert_eq!(cluster.post("/v1/chat/completions", &body).send().await?.status, 404);
        let body = json!({"model": MODEL, "user": format!("u-{n}"), "messages": [{"role": "user", "content": "@@hello@@"}]});
        let reply = cluster
            .post("/v1/chat/completions", &body)
            .session(&format!("s-{n}"))
            .header("x-request-id", &format!("r-{n}"))
            .send()
            .await?;
        assert_eq!(reply.status, 200);
    }
    let after = names().await?;
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty(), "{new:?}");
    let page = cluster.get("/metrics").send().await?.text();
    for text in ["model-0", "s-1", "u-1", "r-1", "mmmm"] {
        assert!(!page.contains(text), "{text}");
    }
    let misses = "dynamo_frontend_requests_total";
    assert_eq!(cluster.metric_sum(misses, "model=\"unknown_model\"").await?, f64::from(requests + 1));
    // The exposition is still what a scraper can read: a name, perhaps labels, a number.
    for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_default();
        assert!(value.parse::<f64>().is_ok() && !name.is_empty(), "{line}");
    }
    Ok(())
}
