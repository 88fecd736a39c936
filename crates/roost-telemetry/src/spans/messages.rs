//! The messages of OTLP that spans need, as in `opentelemetry/proto/{collector/trace,trace,common,resource}/v1`.

use std::time::{Duration, Instant};

use prost::{Message, Oneof};

use super::{Span, Value};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<WireSpan>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Held", tags = "1, 3, 4")]
    held: Option<Held>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Held {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Whole(i64),
    #[prost(double, tag = "4")]
    Fraction(f64),
}

/// Spans of one process; `anchor` is one moment on both clocks.
pub(super) fn request(
    resource: &[(String, String)],
    spans: &[Span],
    anchor: (Instant, Duration),
) -> ExportRequest {
    let attributes = resource.iter().map(|(key, value)| attribute(key, &Value::Text(value.clone())));
    let scope = Scope { name: "roost".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let spans = spans.iter().map(|span| wire(span, anchor)).collect();
    ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes: attributes.collect() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
        }],
    }
}

fn wire(span: &Span, anchor: (Instant, Duration)) -> WireSpan {
    WireSpan {
        trace_id: span.trace.to_be_bytes().to_vec(),
        span_id: span.id.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: span.kind as i32,
        start_time_unix_nano: nanos(span.time.0, anchor),
        end_time_unix_nano: nanos(span.time.1, anchor),
        attributes: span.attributes.iter().map(|(key, value)| attribute(key, value)).collect(),
        status: span.error.clone().map(|message| Status { message, code: ERROR }),
    }
}

fn attribute(key: &str, value: &Value) -> KeyValue {
    let held = match value {
        Value::Text(text) => Held::Text(text.clone()),
        Value::Whole(number) => Held::Whole(*number),
        Value::Fraction(number) => Held::Fraction(*number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { held: Some(held) }) }
}

fn nanos(at: Instant, (instant, unix): (Instant, Duration)) -> u64 {
    let time = match at.checked_duration_since(instant) {
        Some(later) => unix + later,
        None => unix.saturating_sub(instant.duration_since(at)),
    };
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
