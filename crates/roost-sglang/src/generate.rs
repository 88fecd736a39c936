//! One request at `/generate`: the body, the stream of answers, and how it ends.

mod answer;
mod errors;
mod events;
mod request;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use roost_wire::message::{EngineOutput, EngineRequest};
use roost_worker::{Cancel, EngineContext, EngineError, OutputStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::Server;
use answer::Answers;
use events::{Events, MAX_EVENT};

pub(crate) use request::Limits;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Largest body of a refusal that is read.
const MAX_REFUSAL: usize = 64 << 10;
/// Longest wait for the server to take note of an abort.
const ABORT: std::time::Duration = std::time::Duration::from_secs(5);

/// Starts a request. `gone` is cancelled when the server is given up: nothing more will come from it then.
pub(crate) fn start(
    server: &Server,
    limits: &Limits,
    gone: &CancellationToken,
    request: &EngineRequest,
    context: EngineContext,
) -> OutputStream {
    // Unique on the server whatever clients call their requests; the beginning is for those who read its log.
    let rid = format!("{}-{:016x}", context.id, fastrand::u64(..));
    let body = match request::body(request, &rid, limits) {
        Ok(body) => Bytes::from(body),
        Err(error) => return Box::pin(Failed(Some(error))),
    };
    let sending = {
        let server = server.clone();
        async move { server.send(Method::POST, "/generate", body).await.map_err(errors::unreachable) }
    };
    Box::pin(Generation {
        state: State::Sending(Box::pin(sending)),
        answers: Answers::new(request),
        abort: Abort { server: server.clone(), rid, armed: true },
        gone: Box::pin(gone.clone().cancelled_owned()),
        cancelled: cancelled(&context.cancel),
    })
}

fn cancelled(cancel: &Cancel) -> BoxFuture<()> {
    let cancel = cancel.clone();
    Box::pin(async move {
        cancel.cancelled().await;
    })
}

/// A request that is not sent.
struct Failed(Option<EngineError>);

impl Stream for Failed {
    type Item = Result<EngineOutput, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Err))
    }
}

/// A request under way. Read as it is polled: a slow consumer makes the server wait. Dropping it ends the connection,
/// which aborts the request, and says so in a request of its own as well.
struct Generation {
    state: State,
    answers: Answers,
    abort: Abort,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    cancelled: BoxFuture<()>,
}

enum State {
    Sending(BoxFuture<Result<http::Response<Incoming>, EngineError>>),
    Refused(BoxFuture<EngineError>),
    Streaming { body: Incoming, events: Events },
    Done,
}

impl Stream for Generation {
    type Item = Result<EngineOutput, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if matches!(this.state, State::Done) {
            return Poll::Ready(None);
        }
        let next = match this.poll(cx) {
            Poll::Pending if this.cancelled.as_mut().poll(cx).is_ready() => None,
            Poll::Pending if this.gone.as_mut().poll(cx).is_ready() => {
                Some(Err(EngineError::Unavailable("the server has gone".into())))
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(next) => next,
        };
        if !matches!(next, Some(Ok(_))) {
            this.state = State::Done;
        }
        Poll::Ready(next)
    }
}

impl Generation {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<EngineOutput, EngineError>>> {
        loop {
            match &mut self.state {
                State::Sending(sending) => {
                    let answer = match ready!(sending.as_mut().poll(cx)) {
                        Ok(answer) => answer,
                        Err(error) => {
                            self.abort.armed = false;
                            return Poll::Ready(Some(Err(error)));
                        }
                    };
                    let (head, body) = answer.into_parts();
                    self.state = if head.status.is_success() {
                        State::Streaming { body, events: Events::default() }
                    } else {
                        self.abort.armed = false;
                        State::Refused(Box::pin(refusal(head.status.as_u16(), body)))
                    };
                }
                State::Refused(reading) => {
                    let error = ready!(reading.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(error)));
                }
                State::Streaming { body, events } => {
                    while let Some(event) = events.next() {
                        match self.answers.take(&event) {
                            Ok(None) => {}
                            Ok(Some(output)) => {
                                self.abort.armed = !self.answers.is_complete();
                                return Poll::Ready(Some(Ok(output)));
                            }
                            Err(error) => return Poll::Ready(Some(Err(error))),
                        }
                    }
                    match ready!(Pin::new(body).poll_frame(cx)) {
                        Some(Ok(frame)) => {
                            if let Ok(bytes) = frame.into_data()
                                && !events.push(bytes)
                            {
                                let text = format!("an event of more than {MAX_EVENT} bytes");
                                return Poll::Ready(Some(Err(EngineError::Failed(text))));
                            }
                        }
                        Some(Err(error)) => {
                            self.abort.armed = false;
                            return Poll::Ready(Some(Err(errors::broken(&error))));
                        }
                        None => {
                            self.abort.armed = false;
                            return Poll::Ready(self.answers.end().map(Err));
                        }
                    }
                }
                State::Done => return Poll::Ready(None),
            }
        }
    }
}

async fn refusal(status: u16, body: Incoming) -> EngineError {
    let body = http_body_util::Limited::new(body, MAX_REFUSAL).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    errors::refused(status, &body)
}

/// Tells the server of an end that it does not know of. Closing the connection ought to be enough, and is not where a
/// proxy holds its own.
struct Abort {
    server: Server,
    rid: String,
    armed: bool,
}

impl Drop for Abort {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.armed {
            return;
        }
        let server = self.server.clone();
        let body = serde_json::json!({ "rid": self.rid }).to_string();
        runtime.spawn(async move {
            let told = server.small(Method::POST, "/abort_request", Bytes::from(body), ABORT).await;
            if let Err(error) = told {
                tracing::debug!(%error, "the server was not told of an abort");
            }
        });
    }
}
