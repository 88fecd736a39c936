//! Sockets in: connection limit, `TCP_NODELAY`, HTTP/1 and /2, graceful end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Http;

/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// When to leave, in this order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leaving {
    /// Take no further connections; what comes on open ones is still served.
    pub(crate) close: CancellationToken,
    /// Let running requests end, and close the connections that have none.
    pub(crate) stop: CancellationToken,
}

/// Accepts connections until told to leave; returns when the last connection has ended.
pub(crate) async fn serve(listener: TcpListener, routes: Router, http: &Http, leaving: Leaving) {
    let Leaving { close, stop } = leaving;
    let connections = TaskTracker::new();
    let slots = Arc::new(Semaphore::new(http.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(http.idle);
    builder.http2().timer(TokioTimer::new());
    let builder = Arc::new(builder);
    let spawn = |stream: TcpStream, slot: OwnedSemaphorePermit| {
        let (builder, routes, stop) = (Arc::clone(&builder), routes.clone(), stop.clone());
        connections.spawn(async move {
            connection(&builder, stream, routes, stop).await;
            drop(slot);
        });
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = close.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => spawn(stream, slot),
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    for (stream, slot) in backlog(listener, &slots) {
        spawn(stream, slot);
    }
    connections.close();
    connections.wait().await;
}

/// Closes a listener without resetting the connections that the system has accepted for it already.
fn backlog(listener: TcpListener, slots: &Arc<Semaphore>) -> Vec<(TcpStream, OwnedSemaphorePermit)> {
    let mut waiting = Vec::new();
    let Ok(listener) = listener.into_std() else { return waiting };
    while let Ok(slot) = Arc::clone(slots).try_acquire_owned()
        && let Ok((stream, _)) = listener.accept()
    {
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        if let Ok(stream) = ready.and_then(|()| TcpStream::from_std(stream)) {
            waiting.push((stream, slot));
        }
    }
    waiting
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    // A stream of small events must not wait for the client's delayed acknowledgements.
    stream.set_nodelay(true)?;
    Ok((stream, slot))
}

async fn connection(
    builder: &auto::Builder<TokioExecutor>,
    stream: TcpStream,
    routes: Router,
    stop: CancellationToken,
) {
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut serving = std::pin::pin!(serving);
    let result = tokio::select! {
        result = serving.as_mut() => result,
        () = stop.cancelled() => {
            // A request that lies in the socket unread must not be taken for none: the runtime learns of it while this
            // task yields.
            tokio::select! {
                biased;
                result = serving.as_mut() => result,
                () = tokio::task::yield_now() => {
                    serving.as_mut().graceful_shutdown();
                    serving.await
                }
            }
        }
    };
    if let Err(error) = result {
        // The client went away or spoke something else; its requests have been told by their own drop.
        tracing::debug!(error, "connection ended");
    }
}
