//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio_util::sync::CancellationToken;

use super::answers::Answer;
use super::socket::Incoming;
use super::waits::{Cut, WaitLimits};
use super::watch::{Watch, Watched};
use crate::config::Http;
use crate::metrics::{Metrics, Severed};

/// Streams that one HTTP/2 connection may have open.
const STREAMS: u32 = 256;

/// Bytes of an answer that may wait for a client, per stream of HTTP/2.
const STREAM_BUFFER: usize = 64 << 10;

/// The least that hyper takes for a head.
const MIN_HEAD_BYTES: usize = 8192;

/// What hyper takes without memory of its own for it.
const USUAL_HEADERS: usize = 100;

/// How connections are served.
#[derive(Clone)]
pub(super) struct Serving {
    builder: Arc<auto::Builder<TokioExecutor>>,
    limits: WaitLimits,
    routes: Router,
    metrics: Metrics,
    stop: CancellationToken,
}

impl Serving {
    pub(super) fn new(http: &Http, routes: Router, metrics: Metrics, stop: CancellationToken) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // Its own time limit would count the idle time between two requests as time of the head.
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(http.max_head_bytes.max(MIN_HEAD_BYTES));
        if http.max_headers != USUAL_HEADERS {
            builder.http1().max_headers(http.max_headers);
        }
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(u32::try_from(http.max_head_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(STREAM_BUFFER);
        let limits = WaitLimits { head: http.head, idle: http.idle, write_stall: http.write_stall };
        Serving { builder: Arc::new(builder), limits, routes, metrics, stop }
    }

    /// The same with other routes, for connections that are not to stay.
    pub(super) fn briefly(&self, routes: Router, limits: WaitLimits) -> Self {
        Serving { routes, limits, ..self.clone() }
    }

    /// Serves one connection until it ends, is cut, or is told to stop and has answered what was asked.
    pub(super) async fn serve(self, incoming: Incoming) {
        let socket = match incoming.establish().await {
            Ok(socket) => socket,
            Err(error) => {
                self.metrics.severed(Severed::Tls);
                tracing::debug!(%error, "TLS handshake failed");
                return;
            }
        };
        let watch = Watch::new(self.limits);
        let routes = TowerToHyperService::new(self.routes);
        let requests = Arc::clone(&watch);
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let running = requests.request();
            let upload = Arc::clone(&requests);
            let request = request.map(|body| Body::new(Upload { body, ended: false, watch: upload }));
            let answer = routes.call(request);
            async move {
                let Ok(answer) = answer.await;
                Ok::<Response<Answer>, Infallible>(answer.map(|body| Answer::new(body, running)))
            }
        });
        let io = TokioIo::new(Watched::new(socket, Arc::clone(&watch)));
        let mut connection = std::pin::pin!(self.builder.serve_connection(io, service));
        let mut timer = None;
        let mut cut = std::pin::pin!(poll_fn(|cx| watch.poll_cut(cx, &mut timer)));
        let stopped = tokio::select! {
            biased;
            result = connection.as_mut() => return ended(result),
            reason = cut.as_mut() => return self.metrics.severed(reason.into()),
            () = self.stop.cancelled() => tokio::task::yield_now(),
        };
        // A request that lies in the socket unread must not be taken for none: the runtime learns of it while this
        // task yields.
        tokio::select! {
            biased;
            result = connection.as_mut() => return ended(result),
            () = stopped => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            biased;
            result = connection.as_mut() => ended(result),
            reason = cut.as_mut() => self.metrics.severed(reason.into()),
        }
    }
}

fn ended(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        // The client went away or spoke something else; its requests have been told by their own drop.
        tracing::debug!(error, "connection ended");
    }
}

impl From<Cut> for Severed {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Head => Severed::HeaderTimeout,
            Cut::Idle => Severed::IdleTimeout,
            Cut::WriteStall => Severed::WriteStall,
        }
    }
}

/// A request body that says when it was left before its end.
struct Upload {
    body: hyper::body::Incoming,
    ended: bool,
    watch: Arc<Watch>,
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.ended = matches!(polled, Poll::Ready(None));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.ended && !self.body.is_end_stream() {
            self.watch.left_unread();
        }
    }
}
