//! gRPC to one etcd member: an HTTP/2 connection, unary calls and one-way streams on it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::EtcdConfig;
use super::messages::{AuthenticateRequest, AuthenticateResponse, method};
use crate::discovery::endpoint::Endpoint;
use crate::record::percent_decode;

/// Longest wait for a connection, and for the answer of a unary call.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest message that is taken. A page of a listing has some megabytes at most.
const MAX_MESSAGE: usize = 64 << 20;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No connection, or it broke.
    #[error("{0}")]
    Transport(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The store refused.
    #[error("{message} (code {code})")]
    Status {
        /// gRPC status code.
        code: u32,
        /// What the store says.
        message: String,
    },
}

impl Failure {
    pub(super) const NOT_FOUND: u32 = 5;
    pub(super) const FAILED_PRECONDITION: u32 = 9;
    pub(super) const OUT_OF_RANGE: u32 = 11;

    /// True when the call might succeed on another connection, false when the store understood and refused it.
    pub(super) fn is_of_connection(&self) -> bool {
        match self {
            Failure::Transport(_) | Failure::Timeout(_) => true,
            // Cancelled, unknown, deadline exceeded, unavailable, unauthenticated (a token ends with its member).
            Failure::Status { code, .. } => matches!(code, 1 | 2 | 4 | 14 | 16),
        }
    }

    pub(super) fn has_code(&self, wanted: u32) -> bool {
        matches!(self, Failure::Status { code, .. } if *code == wanted)
    }

    fn transport(error: impl std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        Failure::Transport(text)
    }
}

/// A connection to one member. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Outgoing>,
    origin: String,
    token: Option<HeaderValue>,
    /// Why the connection has ended.
    ended: watch::Receiver<Option<String>>,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    /// Connects and, when the configuration has a user, authenticates.
    pub(super) async fn open(
        endpoint: &Endpoint,
        config: &EtcdConfig,
        tls: Option<&Arc<rustls::ClientConfig>>,
    ) -> Result<Self, Failure> {
        let connect = TcpStream::connect((endpoint.host.as_str(), endpoint.port));
        let stream = within(PATIENCE, connect).await?.map_err(Failure::transport)?;
        // A lost Nagle optimisation is no reason to give the connection up.
        let _ignored = stream.set_nodelay(true);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(config.ping_interval)
            .keep_alive_timeout(config.ping_timeout);
        let (end, ended) = watch::channel(None);
        let (sender, driver) = match tls.filter(|_| endpoint.tls) {
            None => {
                let begun = within(PATIENCE, builder.handshake(TokioIo::new(stream))).await?;
                let (sender, connection) = begun.map_err(Failure::transport)?;
                (sender, tokio::spawn(drive(connection, end)))
            }
            Some(tls) => {
                let name = ServerName::try_from(endpoint.host.clone()).map_err(Failure::transport)?;
                let secure = TlsConnector::from(tls.clone()).connect(name, stream);
                let stream = within(PATIENCE, secure).await?.map_err(Failure::transport)?;
                let begun = within(PATIENCE, builder.handshake(TokioIo::new(stream))).await?;
                let (sender, connection) = begun.map_err(Failure::transport)?;
                (sender, tokio::spawn(drive(connection, end)))
            }
        };
        let mut connection = Self {
            sender,
            origin: endpoint.origin(),
            token: None,
            ended,
            _driver: AbortOnDropHandle::new(driver),
        };
        if let Some((name, password)) = &config.user {
            let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
            let answer: AuthenticateResponse = connection.unary(method::AUTHENTICATE, &request).await?;
            let mut token = HeaderValue::from_str(&answer.token).map_err(Failure::transport)?;
            token.set_sensitive(true);
            connection.token = Some(token);
        }
        Ok(connection)
    }

    /// One request, one answer.
    pub(super) async fn unary<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        request: &Q,
    ) -> Result<A, Failure> {
        let call = async {
            let mut answers = self.call(path, request, false).await?;
            answers.next().await?.ok_or_else(|| Failure::Transport("an empty answer".to_owned()))
        };
        within(PATIENCE, call).await?
    }

    /// One request, answers until one side ends; the request side stays open, as a watch needs it.
    pub(super) async fn stream<Q: Message>(
        &self,
        path: &'static str,
        request: &Q,
    ) -> Result<Answers, Failure> {
        within(PATIENCE, self.call(path, request, true)).await?
    }

    async fn call<Q: Message>(
        &self,
        path: &'static str,
        request: &Q,
        open: bool,
    ) -> Result<Answers, Failure> {
        let mut framed = BytesMut::with_capacity(5 + request.encoded_len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(request.encoded_len()).unwrap_or(u32::MAX));
        request.encode(&mut framed).map_err(Failure::transport)?;
        let mut http = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("{}{path}", self.origin))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers");
        if let Some(token) = &self.token {
            http = http.header("token", token);
        }
        let http = http.body(Outgoing { data: Some(framed.freeze()), open }).map_err(Failure::transport)?;
        let response = match self.send(http).await {
            Ok(response) => response,
            Err(error) => return Err(self.reason(error).await),
        };
        if response.status() != StatusCode::OK {
            return Err(Failure::Transport(format!(
                "the server answers {}: not an etcd?",
                response.status()
            )));
        }
        // A refusal without any message has its status among the headers.
        status(response.headers())?;
        Ok(Answers { body: response.into_body(), buffer: BytesMut::new() })
    }

    async fn send(&self, request: Request<Outgoing>) -> hyper::Result<Response<Incoming>> {
        let mut sender = self.sender.clone();
        sender.ready().await?;
        sender.send_request(request).await
    }

    /// A request only learns that the connection has ended, for instance that a certificate was refused after the
    /// handshake; the connection itself knows why.
    async fn reason(&self, error: hyper::Error) -> Failure {
        let mut ended = self.ended.clone();
        let known = timeout(Duration::from_millis(100), ended.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(reason)) => Failure::Transport(reason.clone().unwrap_or_default()),
            _ => Failure::transport(error),
        }
    }
}

/// The answers of a call.
#[derive(Debug)]
pub(super) struct Answers {
    body: Incoming,
    buffer: BytesMut,
}

impl Answers {
    /// The next message; `None` at a good end. Cancel safe.
    pub(super) async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Failure> {
        loop {
            if let Some(message) = self.take()? {
                return A::decode(message).map(Some).map_err(Failure::transport);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => match frame.map_err(Failure::transport)?.into_data() {
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(frame) => {
                        if let Some(trailers) = frame.trailers_ref() {
                            status(trailers)?;
                        }
                    }
                },
            }
        }
    }

    /// Cuts one message off the buffer, if it is whole.
    fn take(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(&[compressed, a, b, c, d]) = self.buffer.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if compressed != 0 || length > MAX_MESSAGE {
            return Err(Failure::Transport(format!("a message of {length} bytes that cannot be taken")));
        }
        if self.buffer.len() < 5 + length {
            return Ok(None);
        }
        self.buffer.advance(5);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// A request body of one message. An open one never ends: it is dropped with its call.
#[derive(Debug)]
struct Outgoing {
    data: Option<Bytes>,
    open: bool,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.data.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None if self.open => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && !self.open
    }
}

fn status(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(code) = headers.get("grpc-status") else { return Ok(()) };
    let code = code.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(2);
    if code == 0 {
        return Ok(());
    }
    let message =
        headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or("no reason given");
    Err(Failure::Status { code, message: percent_decode(message).unwrap_or_else(|| message.to_owned()) })
}

async fn within<T>(limit: Duration, step: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(limit, step).await.map_err(|_| Failure::Timeout(limit))
}

async fn drive(connection: impl Future<Output = hyper::Result<()>>, end: watch::Sender<Option<String>>) {
    if let Err(error) = connection.await {
        end.send_replace(Some(Failure::transport(error).to_string()));
    }
}
