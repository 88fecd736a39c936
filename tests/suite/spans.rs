//! Spans, as a collector gets them, and the trace that workers are told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use roost_telemetry::spans::{Protocol, SpanExport};
use roost_tests::{Cluster, MODEL, Options, Request};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What a collector got of one span.
#[derive(Debug, Clone, Default)]
struct Told {
    name: String,
    kind: u64,
    trace: String,
    id: String,
    parent: String,
    time: (u64, u64),
    attributes: BTreeMap<String, String>,
    failed: bool,
}

/// A collector for OTLP over HTTP.
#[derive(Debug, Clone)]
struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Told>>>,
}

impl Collector {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let collector = Collector { address: listener.local_addr()?, spans: Arc::default() };
        let this = collector.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(this.clone().serve(stream));
            }
        });
        Ok(collector)
    }

    async fn serve(self, mut stream: TcpStream) -> Result<()> {
        let mut bytes = Vec::new();
        loop {
            let head = loop {
                if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                    break end + 4;
                }
                if stream.read_buf(&mut bytes).await? == 0 {
                    return Ok(());
                }
            };
            let text = String::from_utf8(bytes[..head].to_vec())?.to_ascii_lowercase();
            assert!(text.starts_with("post /v1/traces http/1.1"), "{text}");
            assert!(text.contains("content-type: application/x-protobuf"), "{text}");
            assert!(text.contains("x-key: secret"), "{text}");
            let (_, length) = text.split_once("content-length: ").context("a length")?;
            let length: usize = length.split("\r\n").next().context("a number")?.parse()?;
            while bytes.len() < head + length {
                stream.read_buf(&mut bytes).await?;
            }
            self.take(&bytes[head..head + length]);
            bytes.drain(..head + length);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        }
    }

    fn take(&self, request: &[u8]) {
        for resource in all(request, 1) {
            let service = all(resource, 1).flat_map(|resource| all(resource, 1)).map(attribute).next();
            assert_eq!(service, Some(("service.name".to_owned(), "a router".to_owned())));
            let spans = all(resource, 2).flat_map(|scope| all(scope, 2)).map(span);
            self.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        }
    }

    fn told(&self) -> Vec<Told> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The fields of a protobuf message: number, and bytes or a number.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8], u64)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let (bytes, number) = match tag & 7 {
            0 => (&message[..0], varint(&mut message)),
            1 => {
                let (fixed, rest) = message.split_at(8);
                message = rest;
                (fixed, u64::from_le_bytes(fixed.try_into().expect("eight bytes")))
            }
            2 => {
                let length = usize::try_from(varint(&mut message)).expect("a length");
                let (bytes, rest) = message.split_at(length);
                message = rest;
                (bytes, 0)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, bytes, number));
    }
    fields
}

/// The messages or texts in a field.
fn all(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter(move |field| field.0 == number).map(|field| field.1)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn attribute(pair: &[u8]) -> (String, String) {
    let value = all(pair, 2).flat_map(fields).next().expect("a value");
    let value = match value.0 {
        1 => text(value.1),
        3 => value.2.to_string(),
        4 => f64::from_bits(value.2).to_string(),
        other => panic!("value of kind {other}"),
    };
    (text(all(pair, 1).next().expect("a key")), value)
}

fn span(message: &[u8]) -> Told {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut told = Told::default();
    for (number, bytes, value) in fields(message) {
        match number {
            1 => told.trace = hex(bytes),
            2 => told.id = hex(bytes),
            4 => told.parent = hex(bytes),
            5 => told.name = text(bytes),
            6 => told.kind = value,
            7 => told.time.0 = value,
            8 => told.time.1 = value,
            9 => told.attributes.extend([attribute(bytes)]),
            15 => told.failed = fields(bytes).iter().any(|field| (field.0, field.2) == (3, 2)),
            other => panic!("field {other}"),
        }
    }
    told
}

async fn cluster(collector: &Collector, ratio: f64) -> Result<Cluster> {
    let mut options = Options::new(2);
    options.spans = Some(Box::new(SpanExport {
        endpoint: format!("http://{}/v1/traces", collector.address),
        protocol: Protocol::Http,
        headers: vec![("x-key".to_owned(), "secret".to_owned())],
        resource: vec![("service.name".to_owned(), "a router".to_owned())],
        ratio,
        delay: Duration::from_millis(5),
    }));
    options.start().await
}

fn chat(cluster: &Cluster, script: &str) -> Request {
    let body = json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": script}]});
    cluster.post("/v1/chat/completions", &body).session("talk")
}

/// Headers of the last request that a worker got.
fn heard(cluster: &Cluster, name: &str) -> Option<String> {
    let requests: Vec<_> = cluster.workers.iter().flat_map(|worker| worker.journal().requests()).collect();
    let last = requests.iter().max_by_key(|request| request.at)?;
    last.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.clone())
}

#[tokio::test]
async fn a_request_in_its_callers_trace() -> Result<()> {
    let collector = Collector::start().await?;
    let mut cluster = cluster(&collector, 0.0).await?;
    let request = chat(&cluster, "@@hello@@").header("traceparent", CALLER).header("tracestate", "vendor=1");
    assert_eq!(request.send().await?.status, 200);
    cluster.until("all is told", async || Ok(collector.told().len() == 5)).await?;
    let told: BTreeMap<String, Told> =
        collector.told().into_iter().map(|span| (span.name.clone(), span)).collect();
    let [root, prepare, route, dispatch, stream] =
        ["chat_completions", "prepare", "route", "dispatch", "stream"].map(|name| &told[name]);
    assert_eq!((root.trace.as_str(), root.parent.as_str()), (&CALLER[3..35], &CALLER[36..52]));
    assert_eq!((root.kind, dispatch.kind), (2, 3), "server and client");
    for part in [prepare, route, dispatch, stream] {
        assert_eq!((&part.trace, &part.parent), (&root.trace, &root.id), "{part:?}");
        assert!(root.time.0 <= part.time.0 && part.time.0 <= part.time.1 && part.time.1 <= root.time.1);
        assert!(!part.failed, "{part:?}");
    }
    assert!(prepare.time.1 <= route.time.1 && route.time.1 <= dispatch.time.1);
    assert!(dispatch.time.1 <= stream.time.1);
    assert_eq!(root.attributes["session.id"], "talk");
    assert_eq!(root.attributes["gen_ai.request.model"], MODEL);
    assert_eq!(root.attributes["roost.worker"], dispatch.attributes["roost.worker"]);
    // The worker goes on from the call.
    let parent = format!("00-{}-{}-01", root.trace, dispatch.id);
    assert_eq!(heard(&cluster, "traceparent"), Some(parent));
    assert_eq!(heard(&cluster, "tracestate"), Some("vendor=1".to_owned()));

    // Without a caller's decision none is told of, as the ratio says; the worker is told that.
    assert_eq!(chat(&cluster, "@@hello@@").send().await?.status, 200);
    let silent = heard(&cluster, "traceparent").context("a trace all the same")?;
    assert!(silent.ends_with("-00"), "{silent}");
    cluster.stop_frontend().await?;
    assert_eq!(collector.told().len(), 5);
    Ok(())
}

#[tokio::test]
async fn attempts_that_fail_are_told_too() -> Result<()> {
    let collector = Collector::start().await?;
    let mut cluster = cluster(&collector, 1.0).await?;
    // A request that the engines refuse, and one that no model is for.
    assert_eq!(chat(&cluster, "@@refuse@@").send().await?.status, 400);
    let mut nobody = json!({"model": "nobody", "messages": []});
    nobody["messages"] = json!([{"role": "user", "content": "x"}]);
    assert_eq!(cluster.post("/v1/chat/completions", &nobody).send().await?.status, 404);
    cluster.stop_frontend().await?;
    let told = collector.told();
    let failed = |name: &str| told.iter().filter(|span| span.name == name && span.failed).count();
    assert_eq!((failed("chat_completions"), failed("dispatch")), (2, 1), "{told:?}");
    assert_eq!(failed("route"), 0);
    Ok(())
}

#[tokio::test]
async fn without_a_collector_workers_hear_of_no_trace() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    assert_eq!(chat(&cluster, "@@hello@@").header("traceparent", CALLER).send().await?.status, 200);
    assert_eq!(heard(&cluster, "traceparent"), None);
    Ok(())
}
