//! Whole answers: JSON bodies and errors, and a body that holds something until it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use roost_openai::{ApiError, ErrorShape};

/// Seconds after which a client may try again what was refused for the moment. Marks of overload last one second, and
/// so does the notice of a frontend that goes down.
const RETRY_AFTER: &str = "1";

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: BytesMut) -> Response {
    let mut response = Response::new(Body::from(body.freeze()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON answer from plain data.
pub(crate) fn serialized(status: StatusCode, body: &impl serde::Serialize) -> Response {
    let bytes = serde_json::to_vec(body).expect("plain data with text as keys");
    json(status, BytesMut::from(Bytes::from(bytes)))
}

/// An error answer.
pub(crate) fn error(error: &ApiError, shape: ErrorShape) -> Response {
    let mut body = BytesMut::with_capacity(256);
    error.write_body(&mut body, shape);
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, body);
    if matches!(error.status(), 429 | 503 | 529) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    response
}

/// `created` of an answer: Unix seconds.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A body that keeps `held` until it has been sent or dropped.
#[derive(Debug)]
pub(crate) struct Held<T> {
    body: Body,
    _held: T,
}

impl<T> Held<T> {
    pub(crate) fn new(body: Body, held: T) -> Self {
        Held { body, _held: held }
    }
}

impl<T: Unpin> http_body::Body for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
