//! The task that sends spans: batches, by HTTP or gRPC, each tried once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};

use super::{Counters, Protocol, Span, SpanExport, messages};

/// Most spans of one call.
const BATCH: usize = 512;
/// Longest wait for a collector.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for the last batch.
pub(super) const FAREWELL: Duration = Duration::from_secs(3);
/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 10;
/// Path of the call in gRPC.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// What is wrong with the way to a collector.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is not `http://HOST:PORT`.
    #[error(
        "`{0}` is not `http://HOST:PORT`: spans go to a collector nearby, which may speak TLS with others"
    )]
    Endpoint(String),
    /// A header cannot be sent.
    #[error("`{0}` cannot be a header")]
    Header(String),
}

/// A collector.
pub(super) struct Exporter {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    export: SpanExport,
    anchor: (Instant, Duration),
}

impl Exporter {
    pub(super) fn new(export: SpanExport, anchor: (Instant, Duration)) -> Result<Self, EndpointError> {
        let wrong = || EndpointError::Endpoint(export.endpoint.clone());
        let base: Uri = export.endpoint.parse().map_err(|_| wrong())?;
        if base.scheme_str() != Some("http") || base.host().is_none() {
            return Err(wrong());
        }
        let uri = match export.protocol {
            Protocol::Http => base,
            Protocol::Grpc => {
                let authority = base.authority().ok_or_else(wrong)?;
                format!("http://{authority}{METHOD}").parse().map_err(|_| wrong())?
            }
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &export.headers {
            let bad = || EndpointError::Header(name.clone());
            let name = HeaderName::try_from(name).map_err(|_| bad())?;
            headers.insert(name, HeaderValue::try_from(value).map_err(|_| bad())?);
        }
        let content = match export.protocol {
            Protocol::Http => "application/x-protobuf",
            Protocol::Grpc => "application/grpc",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
        if export.protocol == Protocol::Grpc {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        let client = Client::builder(TokioExecutor::new())
            .http2_only(export.protocol == Protocol::Grpc)
            .build(HttpConnector::new());
        Ok(Exporter { client, uri, headers, export, anchor })
    }

    /// Sends a batch.
    async fn send(&self, spans: &[Span]) -> Result<(), String> {
        let message = messages::request(&self.export.resource, spans, self.anchor);
        let mut body = BytesMut::new();
        if self.export.protocol == Protocol::Grpc {
            // Not compressed, and the length.
            body.put_u8(0);
            body.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
        }
        message.encode(&mut body).map_err(|error| error.to_string())?;
        let mut request = Request::post(self.uri.clone());
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&self.headers);
        }
        let request = request.body(Full::new(body.freeze())).map_err(|error| error.to_string())?;
        tokio::time::timeout(PATIENCE, self.call(request))
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Result<(), String> {
        let answer = self.client.request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let told = |headers: &HeaderMap| headers.get("grpc-status").cloned();
        let early = told(answer.headers());
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| error.to_string())?;
        if !status.is_success() {
            return Err(format!("status {status}"));
        }
        match early.or_else(|| body.trailers().and_then(told)) {
            Some(code) if code != "0" => Err(format!("gRPC status {}", code.to_str().unwrap_or("?"))),
            None if self.export.protocol == Protocol::Grpc => Err("no gRPC status".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Sends what comes until it is stopped or nobody can send any more; what waits then is sent, too.
pub(super) async fn run(
    exporter: Exporter,
    (mut received, mut stop): (mpsc::Receiver<Span>, oneshot::Receiver<()>),
    counters: Arc<Counters>,
    delay: Duration,
) {
    let mut complained = false;
    let mut batch = Vec::with_capacity(BATCH);
    let mut stopping = false;
    loop {
        tokio::select! {
            more = gather(&mut received, &mut batch, delay) => if !more { return },
            _ = &mut stop, if !stopping => {
                stopping = true;
                received.close();
                continue;
            }
        }
        let count = batch.len() as u64;
        match exporter.send(&batch).await {
            Ok(()) => {
                complained = false;
                counters.exported.fetch_add(count, Relaxed);
            }
            Err(error) => {
                counters.failed.fetch_add(count, Relaxed);
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(collector = %exporter.uri, error, "spans are lost");
                }
            }
        }
        batch.clear();
    }
}

/// Waits for a batch that is full or late. False when there will be none. Cancel safe: what has come stays in `batch`.
async fn gather(received: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>, delay: Duration) -> bool {
    if received.recv_many(batch, BATCH).await == 0 {
        return !batch.is_empty();
    }
    let deadline = tokio::time::Instant::now() + delay;
    while batch.len() < BATCH {
        let room = BATCH - batch.len();
        match tokio::time::timeout_at(deadline, received.recv_many(batch, room)).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    true
}
