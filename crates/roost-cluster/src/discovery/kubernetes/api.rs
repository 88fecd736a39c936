//! HTTP to the API server: one connection per request, since requests are few and watches hold theirs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::objects::Status;
use crate::discovery::endpoint::Endpoint;

/// Longest wait for a connection, and for the head of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for a whole answer.
const WHOLE: Duration = Duration::from_secs(30);
/// Longest answer, and longest line of a watch. A resource has two megabytes at most, a page 500 of them.
const MAX_ANSWER: usize = 256 << 20;
const MAX_LINE: usize = 16 << 20;
/// A peer that does not answer for this long is lost: 15 s of silence, then three probes.
const SILENCE: Duration = Duration::from_secs(15);

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No connection, or it broke.
    #[error("{0}")]
    Transport(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server refused.
    #[error("{request} is refused: {message} ({code} {reason})")]
    Status {
        /// What was asked for.
        request: String,
        /// HTTP status.
        code: u16,
        /// One word of the API for it.
        reason: String,
        /// What the server says.
        message: String,
        /// It asks for a pause.
        retry_after: Option<Duration>,
    },
}

impl Failure {
    /// True when the history that was asked for is not kept any more.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self, Failure::Status { code: 410, .. })
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Failure::Status { code: 404, .. })
    }

    /// True when the server has understood the request and will not grant it, however often it is asked.
    pub(super) fn is_final(&self) -> bool {
        // A token that has run out is renewed by the kubelet, a conflict and a rush pass.
        matches!(self, Failure::Status { code, .. }
            if (400..500).contains(code) && !matches!(code, 401 | 408 | 409 | 410 | 429))
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        if let Failure::Status { retry_after, .. } = self { *retry_after } else { None }
    }

    pub(super) fn transport(error: impl std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        Failure::Transport(text)
    }
}

/// Where the API server is and as whom it is asked.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) server: Endpoint,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    pub(super) token: Option<PathBuf>,
    pub(super) namespace: String,
}

/// An answer whose body is still to be read, with the connection that it arrives on.
#[derive(Debug)]
pub(super) struct Answer {
    response: Response<Incoming>,
    _driver: AbortOnDropHandle<()>,
}

impl Api {
    /// Reads something.
    pub(super) async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Failure> {
        let answer = self.send(Method::GET, target, None).await?;
        let whole = answer.whole().await?;
        serde_json::from_slice(&whole).map_err(|error| {
            Failure::Transport(format!("{target}: an answer that is not understood: {error}"))
        })
    }

    /// Starts a watch.
    pub(super) async fn watch(&self, target: &str) -> Result<Lines, Failure> {
        let Answer { response, _driver } = self.send(Method::GET, target, None).await?;
        Ok(Lines { body: response.into_body(), buffer: BytesMut::new(), searched: 0, _driver })
    }

    /// Writes something by a server-side apply.
    pub(super) async fn apply(&self, target: &str, body: Vec<u8>) -> Result<(), Failure> {
        let answer = self.send(Method::PATCH, target, Some(("application/apply-patch+yaml", body))).await?;
        answer.whole().await.map(drop)
    }

    /// Deletes something.
    pub(super) async fn delete(&self, target: &str) -> Result<(), Failure> {
        let answer = self.send(Method::DELETE, target, None).await?;
        answer.whole().await.map(drop)
    }

    /// Sends a request and returns an answer that is not a refusal.
    async fn send(
        &self,
        method: Method,
        target: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Answer, Failure> {
        let asked = format!("{method} {}", target.split('?').next().unwrap_or(target));
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, self.server.authority())
            .header(USER_AGENT, concat!("roost/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if let Some(path) = &self.token {
            request = request.header(AUTHORIZATION, bearer(path).await?);
        }
        let content = match body {
            None => Bytes::new(),
            Some((kind, content)) => {
                request = request.header(CONTENT_TYPE, kind);
                content.into()
            }
        };
        let request = request.body(Full::new(content)).map_err(Failure::transport)?;
        let answer = within(PATIENCE, self.exchange(request)).await??;
        let status = answer.response.status();
        if status.is_success() {
            return Ok(answer);
        }
        let retry_after = answer.response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|after| after.to_str().ok()?.parse().ok());
        let told: Status = serde_json::from_slice(&answer.whole().await?).unwrap_or_default();
        Err(Failure::Status {
            request: asked,
            code: status.as_u16(),
            reason: told.reason,
            message: told.message,
            retry_after: retry_after.map(Duration::from_secs),
        })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let connected = TcpStream::connect((self.server.host.as_str(), self.server.port)).await;
        let stream =
            connected.map_err(|error| Failure::Transport(format!("{}: {error}", self.server.origin())))?;
        let probes = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 3).with_retries(3);
        // Without probes a lost peer is noticed when the watch is over, later but no less surely.
        let _ignored = SockRef::from(&stream).set_tcp_keepalive(&probes);
        let _ignored = stream.set_nodelay(true);
        let (mut sender, driver) = match self.tls.as_ref().filter(|_| self.server.tls) {
            None => {
                let (sender, connection) =
                    http1::handshake(TokioIo::new(stream)).await.map_err(Failure::transport)?;
                (sender, tokio::spawn(drive(connection)))
            }
            Some(tls) => {
                let name = ServerName::try_from(self.server.host.clone()).map_err(Failure::transport)?;
                let secure = TlsConnector::from(tls.clone()).connect(name, stream).await;
                let stream = secure.map_err(Failure::transport)?;
                let (sender, connection) =
                    http1::handshake(TokioIo::new(stream)).await.map_err(Failure::transport)?;
                (sender, tokio::spawn(drive(connection)))
            }
        };
        let driver = AbortOnDropHandle::new(driver);
        let response = sender.send_request(request).await.map_err(Failure::transport)?;
        Ok(Answer { response, _driver: driver })
    }
}

impl Answer {
    async fn whole(self) -> Result<Bytes, Failure> {
        let body = Limited::new(self.response.into_body(), MAX_ANSWER);
        let read = within(WHOLE, body.collect()).await?;
        Ok(read.map_err(|error| Failure::Transport(error.to_string()))?.to_bytes())
    }
}

/// The lines of a watch.
#[derive(Debug)]
pub(super) struct Lines {
    body: Incoming,
    buffer: BytesMut,
    /// So many bytes of the buffer hold no end of a line.
    searched: usize,
    _driver: AbortOnDropHandle<()>,
}

impl Lines {
    /// The next line, without its end; `None` when the server has ended the watch. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = found {
                let line = self.buffer.split_to(self.searched + end).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                if line.is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                return Err(Failure::Transport(format!("a line of more than {MAX_LINE} bytes")));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(Failure::transport)?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// The token is read anew for every request: it is replaced about every hour.
async fn bearer(path: &PathBuf) -> Result<HeaderValue, Failure> {
    let fail = |reason: String| Failure::Transport(format!("the token in {}: {reason}", path.display()));
    let token = tokio::fs::read_to_string(path).await.map_err(|error| fail(error.to_string()))?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|error| fail(error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn within<T>(limit: Duration, step: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(limit, step).await.map_err(|_| Failure::Timeout(limit))
}

async fn drive(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        // Whoever waits for the answer learns of it from the body.
        tracing::debug!(%error, "connection to the API server ended");
    }
}
