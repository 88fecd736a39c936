//! Spans of requests, told to an OpenTelemetry collector: made anywhere, sent by a task of their own.

mod context;
mod export;
mod messages;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use context::{SpanContext, TraceParent};
pub use export::EndpointError;
use export::Exporter;

/// Spans that may wait for the task; further ones are dropped.
const QUEUE: usize = 2048;

/// Where spans go.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanExport {
    /// The collector, `http://HOST:PORT`, with the path for [`Protocol::Http`].
    pub endpoint: String,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Headers of every call.
    pub headers: Vec<(String, String)>,
    /// Attributes of the process, `service.name` among them.
    pub resource: Vec<(String, String)>,
    /// Part of the requests without a caller's decision that are told of, 0 to 1.
    pub ratio: f64,
    /// Longest time that a span waits for others.
    pub delay: Duration,
}

/// How a collector is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Protobuf in HTTP posts.
    Http,
    /// gRPC.
    Grpc,
}

/// The way to the task. Clones share it.
#[derive(Debug, Clone)]
pub struct Spans {
    queue: mpsc::Sender<Span>,
    counters: Arc<Counters>,
    ratio: f64,
}

/// Ends the task.
#[derive(Debug)]
pub struct SpanKeeper {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What has become of spans so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SpanStats {
    /// Taken by the collector.
    pub exported: u64,
    /// Dropped because too many waited.
    pub dropped: u64,
    /// Refused by the collector, or it was not reached.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Part of the time of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The request's trace.
    pub trace: u128,
    /// Its own name in it.
    pub id: u64,
    /// The span that it is part of.
    pub parent: Option<u64>,
    /// What is done.
    pub name: &'static str,
    /// Its side of a call.
    pub kind: Kind,
    /// Begin and end.
    pub time: (Instant, Instant),
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// A span's side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// None.
    Internal = 1,
    /// A caller waits for it.
    Server = 2,
    /// It waits for another process.
    Client = 3,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A fraction.
    Fraction(f64),
}

/// A span that has not ended. Dropped, it counts as withdrawn.
#[derive(Debug)]
pub struct OpenSpan {
    spans: Spans,
    span: Option<Span>,
}

impl Spans {
    /// Starts the task on the present runtime.
    ///
    /// # Errors
    /// The endpoint or a header cannot be used.
    pub fn start(export: SpanExport) -> Result<(Self, SpanKeeper), EndpointError> {
        let (queue, received) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let anchor = (Instant::now(), unix);
        let (ratio, delay) = (export.ratio, export.delay);
        let exporter = Exporter::new(export, anchor)?;
        let spans = Spans { queue, counters: Arc::clone(&counters), ratio };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(export::run(exporter, (received, stopped), counters, delay));
        Ok((spans, SpanKeeper { stop, task }))
    }

    /// The place of a request in a trace: its caller's, or a new one.
    pub fn context(&self, caller: Option<&str>) -> SpanContext {
        SpanContext::new(caller.and_then(TraceParent::parse), self.ratio)
    }

    /// Hands a span to the task; it is dropped and counted if too many wait. Never blocks.
    pub fn put(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counters.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Begins a part of a request, if that is told of.
    pub fn open(&self, context: SpanContext, name: &'static str, kind: Kind) -> Option<OpenSpan> {
        let now = Instant::now();
        let span = context.sampled.then(|| context.child(name, kind, (now, now)))?;
        Some(OpenSpan { spans: self.clone(), span: Some(span) })
    }

    /// What has become of spans so far.
    pub fn stats(&self) -> SpanStats {
        SpanStats {
            exported: self.counters.exported.load(Relaxed),
            dropped: self.counters.dropped.load(Relaxed),
            failed: self.counters.failed.load(Relaxed),
        }
    }
}

impl SpanKeeper {
    /// Sends what waits and ends, within a few seconds.
    pub async fn stop(self) {
        let SpanKeeper { stop, mut task } = self;
        drop(stop);
        if tokio::time::timeout(export::FAREWELL, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl OpenSpan {
    /// Its name in the trace.
    pub fn id(&self) -> u64 {
        self.span.as_ref().map_or(0, |span| span.id)
    }

    /// Adds what is known.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.span {
            span.attributes.push((name, value.into()));
        }
    }

    /// It has ended well.
    pub fn end(mut self) {
        self.close(None);
    }

    /// It has failed.
    pub fn fail(mut self, why: String) {
        self.close(Some(why));
    }

    fn close(&mut self, error: Option<String>) {
        if let Some(mut span) = self.span.take() {
            span.time.1 = Instant::now();
            span.error = error;
            self.spans.put(span);
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        self.close(Some("withdrawn".to_owned()));
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Fraction(number)
    }
}
