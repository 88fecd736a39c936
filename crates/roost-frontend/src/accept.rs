//! Sockets in: connection limit, `TCP_NODELAY`, HTTP/1 and /2, graceful end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Http;

/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `stop`, then lets running requests end; returns when the last connection has.
pub(crate) async fn serve(listener: TcpListener, routes: Router, http: &Http, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let slots = Arc::new(Semaphore::new(http.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(http.idle);
    builder.http2().timer(TokioTimer::new());
    let builder = Arc::new(builder);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let (stream, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (builder, routes, stop) = (Arc::clone(&builder), routes.clone(), stop.clone());
        connections.spawn(async move {
            connection(&builder, stream, routes, stop).await;
            drop(slot);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
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
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        // The client went away or spoke something else; its requests have been told by their own drop.
        tracing::debug!(error, "connection ended");
    }
}
