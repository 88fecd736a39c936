//! The frontend's way to a worker: pooled connections for requests, one call-home connection per answer.

mod config;
mod connection;
mod error;
mod pool;
mod target;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::SystemTime};

use bytes::Bytes;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

pub use self::{
    config::ClientConfig,
    error::CallError,
    target::{Target, TargetError},
};
use self::{connection::AckFailure, pool::Pool};
use crate::{
    frame::{Ack, RequestHead},
    line::Line,
    listener::{News, ResponseListener, Waiting},
    message::{ControlMessage, Prologue},
    stats::{ClientCounters, ClientStats, ListenerStats},
    stream::{RawStream, ResponseStream, StreamError},
};

/// Sends requests to workers.
///
/// Keeps a pool of connections per worker address; frames are pipelined on them and acknowledged in order.
/// Cheap to share by reference; must be used on a runtime.
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    listener: Arc<ResponseListener>,
    pool: Pool,
    counters: Arc<ClientCounters>,
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// Request id, a UUID by convention; shows up in the worker's log.
    pub id: &'a str,
    /// The request in the codec of the target.
    pub body: Bytes,
    /// Further headers, such as `traceparent`.
    pub headers: &'a [(&'a str, &'a str)],
    /// What the client wants the worker to know.
    pub metadata: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Call<'a> {
    /// A request without further headers.
    #[must_use]
    pub fn new(id: &'a str, body: Bytes) -> Self {
        Self { id, body, headers: &[], metadata: None }
    }
}

impl Client {
    /// A client whose answers come in at `listener`.
    #[must_use]
    pub fn new(config: ClientConfig, listener: Arc<ResponseListener>) -> Self {
        let config = Arc::new(config);
        let counters = Arc::new(ClientCounters::default());
        let pool = Pool::new(Arc::clone(&config), Arc::clone(&counters));
        Self { config, listener, pool, counters }
    }

    /// Sends a request and waits until the worker's handler has accepted it.
    ///
    /// Cancel safe: dropping the future withdraws the request. A frame that is on its way already is
    /// acknowledged in its turn, and the worker is told when it calls home.
    ///
    /// # Errors
    /// The worker could not be reached, refused, or did not answer in time.
    pub async fn call(&self, target: &Target, call: Call<'_>) -> Result<ResponseStream, CallError> {
        let line = self.open(target, call).await?;
        Ok(ResponseStream::new(line, target.codec))
    }

    /// Sends a request like [`Client::call`]; the items are not decoded.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_raw(&self, target: &Target, call: Call<'_>) -> Result<RawStream, CallError> {
        let line = self.open(target, call).await?;
        Ok(RawStream::new(line, target.codec))
    }

    /// Sends a request and collects the whole answer, undecoded; meant for KV queries.
    ///
    /// Bounded in time, items and bytes by the configuration.
    ///
    /// # Errors
    /// As [`Client::call`], or the answer failed or exceeded a bound.
    pub async fn query(&self, target: &Target, call: Call<'_>) -> Result<Vec<Bytes>, CallError> {
        let collect = async {
            let mut stream = self.call_raw(target, call).await?;
            let mut items: Vec<Bytes> = Vec::new();
            let mut room = self.config.max_query_bytes;
            while let Some(item) = stream.next().await {
                let item = item.map_err(CallError::Stream)?;
                room = room.checked_sub(item.len()).ok_or(CallError::AnswerTooLarge)?;
                if items.len() == self.config.max_query_items {
                    return Err(CallError::AnswerTooLarge);
                }
                items.push(item);
            }
            Ok(items)
        };
        time::timeout(self.config.query_timeout, collect).await.unwrap_or(Err(CallError::QueryTimeout))
    }

    /// Opens a connection to a worker ahead of the first request, if there is none.
    pub fn warm(&self, address: SocketAddr) {
        self.pool.warm(address);
    }

    /// Forgets a worker that is gone: nothing new is sent on its connections, which close once the frames
    /// on them are acknowledged. Answers in progress go on.
    ///
    /// Requests that it has acknowledged and not called home for are given up soon.
    pub fn forget(&self, target: &Target) {
        self.pool.forget(target.address);
        self.listener.left(target);
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.counters.values()
    }

    /// What has happened on the listener that workers call home to.
    #[must_use]
    pub fn listener_stats(&self) -> ListenerStats {
        self.listener.stats()
    }

    /// Frames on all connections that are not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.pool.unacknowledged()
    }

    /// Sends the frame and returns the worker's connection once the prologue on it is positive.
    async fn open(&self, target: &Target, call: Call<'_>) -> Result<Line, CallError> {
        self.counters.calls.increment();
        let mut waiting = self.listener.register(target);
        let head = self.head(target, &call, &waiting)?;
        let line = self.await_line(target.address, head, call.body, &mut waiting).await?;
        let accepted = time::timeout(self.config.prologue_timeout, read_prologue(line)).await;
        match accepted {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => {
                self.counters.prologue_errors.increment();
                Err(error)
            }
            Err(_) => {
                self.counters.prologue_timeouts.increment();
                Err(CallError::PrologueTimeout)
            }
        }
    }

    fn head(&self, target: &Target, call: &Call<'_>, waiting: &Waiting) -> Result<Bytes, CallError> {
        let subject = waiting.subject().to_string();
        let mut control = ControlMessage::new(call.id, target.codec, self.listener.address(), &subject);
        if let Some(metadata) = call.metadata {
            control.metadata.clone_from(metadata);
        }
        let control = serde_json::to_vec(&control).expect("control messages are JSON");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = now.as_nanos().to_string();
        let mut headers = Vec::with_capacity(3 + call.headers.len());
        headers.extend_from_slice(call.headers);
        headers.extend_from_slice(&[
            ("x-endpoint-path", &target.path),
            ("request-id", call.id),
            ("x-frontend-send-ts-ns", &now),
        ]);
        let head = RequestHead {
            path: &target.path,
            headers: &headers,
            control: &control,
            body_len: call.body.len(),
        };
        head.encode(self.config.max_message_bytes).map_err(CallError::Frame)
    }

    /// Sends the frame and waits for the worker's connection, whichever of it and the acknowledgement is first.
    async fn await_line(
        &self,
        address: SocketAddr,
        head: Bytes,
        body: Bytes,
        waiting: &mut Waiting,
    ) -> Result<Line, CallError> {
        let mut sent_again = false;
        let mut ack = self.pool.send(address, head.clone(), body.clone())?;
        let lost = loop {
            let outcome = tokio::select! {
                biased;
                line = waiting.line() => return line.ok_or(CallError::ListenerGone),
                outcome = &mut ack => outcome.unwrap_or(Err(AckFailure::Disconnected)),
            };
            match outcome {
                Ok((Ack::Accepted, lost)) => break lost,
                Ok((Ack::Overloaded(what), _)) => return Err(CallError::Overloaded(what)),
                Ok((Ack::Unavailable(why), _)) => return Err(CallError::Unavailable(why)),
                Ok((Ack::Refused(text), _)) => return Err(CallError::Refused(text)),
                Err(AckFailure::CannotConnect(error)) => return Err(CallError::CannotConnect(error)),
                // The connection was on its way out, or was given up for another's sake: not the worker's word
                // about this request. Should the worker have it already, the subject lets only one answer through.
                Err(AckFailure::Unsent | AckFailure::Retired) if !sent_again => {
                    sent_again = true;
                    self.counters.sent_again.increment();
                    ack = self.pool.send(address, head.clone(), body.clone())?;
                }
                Err(AckFailure::Unsent | AckFailure::Retired | AckFailure::Disconnected) => {
                    return Err(CallError::Disconnected);
                }
                Err(AckFailure::Timeout) => return Err(CallError::AckTimeout),
            }
        };
        self.await_call_home(waiting, lost).await
    }

    /// Waits for the worker's connection after the acknowledgement: not for ever, and not much longer than the worker
    /// is known to be there.
    async fn await_call_home(
        &self,
        waiting: &mut Waiting,
        lost: CancellationToken,
    ) -> Result<Line, CallError> {
        let deadline = Instant::now() + self.config.call_home_timeout;
        let gone = tokio::select! {
            biased;
            news = waiting.news() => match news {
                News::Line(line) => return Ok(line),
                News::ListenerGone => return Err(CallError::ListenerGone),
                News::Left => CallError::Left,
            },
            () = lost.cancelled() => CallError::Disconnected,
            () = time::sleep_until(deadline) => return Err(self.call_home_timeout()),
        };
        // Its last words may be on another connection.
        let farewell = Instant::now() + self.config.farewell_timeout;
        match time::timeout_at(farewell.min(deadline), waiting.line()).await {
            Ok(line) => line.ok_or(CallError::ListenerGone),
            Err(_) => Err(gone),
        }
    }

    fn call_home_timeout(&self) -> CallError {
        self.counters.call_home_timeouts.increment();
        CallError::CallHomeTimeout
    }
}

/// How a worker says that it answers on another plane.
const PLANE_MISMATCH: &str = "response plane mismatch";

async fn read_prologue(mut line: Line) -> Result<Line, CallError> {
    let len = line.next_frame().await.map_err(CallError::before_prologue)?;
    let header = line.frame(len).header;
    let Ok(prologue) = serde_json::from_slice::<Prologue>(header) else {
        return Err(CallError::Stream(StreamError::Protocol("no prologue where one must be")));
    };
    line.consume(len);
    match prologue {
        Prologue { typed_error: Some(error), .. } => Err(CallError::Rejected(Box::new(error))),
        Prologue { error: Some(text), .. } if text.contains(PLANE_MISMATCH) => {
            Err(CallError::ResponsePlane(text))
        }
        Prologue { error: Some(text), .. } => Err(CallError::Prologue(text)),
        Prologue { error: None, .. } => Ok(line),
    }
}
