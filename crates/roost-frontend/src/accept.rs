//! Sockets in: connection limit, `TCP_NODELAY`, TLS, HTTP/1 and /2, time limits for clients, graceful end.

mod answers;
mod connection;
mod socket;
mod waits;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::Serving;
use self::socket::Incoming;
use self::waits::WaitLimits;
use crate::config::Http;
use crate::metrics::{Metrics, Severed};

pub use self::socket::Listener;

/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections beyond the limit that are told so at the same time; further ones wait in the backlog.
const SURPLUS: usize = 64;

/// How long such a connection may take.
const SURPLUS_LIMITS: WaitLimits = WaitLimits {
    head: Some(Duration::from_secs(5)),
    idle: Some(Duration::from_secs(1)),
    write_stall: Some(Duration::from_secs(5)),
};

/// When to leave, in this order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leaving {
    /// Take no further connections; what comes on open ones is still served.
    pub(crate) close: CancellationToken,
    /// Let running requests end, and close the connections that have none.
    pub(crate) stop: CancellationToken,
}

/// What connections are served with.
#[derive(Debug)]
pub(crate) struct Routes {
    /// All routes.
    pub(crate) all: Router,
    /// Those for connections beyond the limit: probes are answered, anything else is refused.
    pub(crate) surplus: Router,
}

/// Accepts connections until told to leave; returns when the last connection has ended.
pub(crate) async fn serve(
    listeners: Vec<Listener>,
    routes: Routes,
    http: &Http,
    metrics: Metrics,
    leaving: Leaving,
) {
    let serving = Serving::new(http, routes.all, metrics.clone(), leaving.stop.clone());
    let door = Door {
        surplus: serving.briefly(routes.surplus, SURPLUS_LIMITS),
        serving,
        metrics,
        slots: Arc::new(Semaphore::new(http.max_connections.clamp(1, Semaphore::MAX_PERMITS))),
        surplus_slots: Arc::new(Semaphore::new(SURPLUS)),
        connections: TaskTracker::new(),
    };
    join_all(listeners.into_iter().map(|listener| door.listen(listener, &leaving.close))).await;
    door.connections.close();
    door.connections.wait().await;
}

/// Where connections of all listeners come in.
struct Door {
    serving: Serving,
    surplus: Serving,
    metrics: Metrics,
    slots: Arc<Semaphore>,
    surplus_slots: Arc<Semaphore>,
    connections: TaskTracker,
}

/// Room for one connection, and whether it may stay.
struct Slot {
    permit: OwnedSemaphorePermit,
    is_surplus: bool,
}

impl Door {
    async fn listen(&self, listener: Listener, close: &CancellationToken) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = close.cancelled() => break,
                accepted = self.accept(&listener) => accepted,
            };
            match accepted {
                Ok((incoming, slot)) => self.spawn(incoming, slot),
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        if let Some(backlog) = listener.backlog() {
            while let Some(slot) = self.slot()
                && let Some(incoming) = backlog.next()
            {
                self.spawn(incoming, slot);
            }
        }
    }

    /// A connection and its slot: one that may stay, if there is one when the connection comes.
    async fn accept(&self, listener: &Listener) -> std::io::Result<(Incoming, Slot)> {
        let surplus = Arc::clone(&self.surplus_slots).acquire_owned().await.expect("never closed");
        let incoming = listener.accept().await?;
        Ok((incoming, self.slot().unwrap_or(Slot { permit: surplus, is_surplus: true })))
    }

    fn slot(&self) -> Option<Slot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(Slot { permit, is_surplus: false })
    }

    fn spawn(&self, incoming: Incoming, slot: Slot) {
        let serving = if slot.is_surplus {
            self.metrics.severed(Severed::Surplus);
            self.surplus.clone()
        } else {
            self.serving.clone()
        };
        let open = self.metrics.connection();
        self.connections.spawn(async move {
            serving.serve(incoming).await;
            drop((open, slot.permit));
        });
    }
}
