//! The worker's side of the plane: takes requests, calls home with answers.

mod answer;
mod cancellation;
mod config;
mod connection;
mod handler;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{sync::Semaphore, time};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    cancellation::Cancellation,
    config::WorkerConfig,
    handler::{Admission, BoxFuture, Handler, Item, ItemStream, Misbehaviour, RequestContext},
};
use crate::{
    stats::{WorkerCounters, WorkerStats},
    transport::Listener,
};

/// Pause after the listening socket failed, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves endpoints: reads request frames, acknowledges them in order, and sends each answer over a connection of
/// its own to the frontend that asked.
///
/// Owns the table of endpoints. Its tasks end when the token given to [`WorkerListener::bind`] is cancelled.
#[derive(Debug)]
pub struct WorkerListener {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What the tasks of a listener share.
#[derive(Debug)]
struct Shared {
    config: WorkerConfig,
    endpoints: RwLock<HashMap<String, Arc<dyn Handler>>>,
    /// Requests admitted and not answered yet, queued ones included.
    admitted: AtomicUsize,
    slots: Semaphore,
    draining: AtomicBool,
    answers: TaskTracker,
    connections: TaskTracker,
    shutdown: CancellationToken,
    counters: WorkerCounters,
}

impl WorkerListener {
    /// Starts listening. Must be called on a runtime. Cancelling the token closes every socket at once.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(config: WorkerConfig, shutdown: CancellationToken) -> io::Result<Arc<Self>> {
        let listener = config.transport.bind(config.bind, config.backlog, None)?;
        let bound = listener.address()?;
        let address = SocketAddr::new(config.advertise.unwrap_or(bound.ip()), bound.port());
        let shared = Arc::new(Shared {
            endpoints: RwLock::default(),
            admitted: AtomicUsize::new(0),
            slots: Semaphore::new(config.max_active.clamp(1, Semaphore::MAX_PERMITS)),
            draining: AtomicBool::new(false),
            answers: TaskTracker::new(),
            connections: TaskTracker::new(),
            shutdown,
            counters: WorkerCounters::default(),
            config,
        });
        shared.connections.spawn(accept(Arc::clone(&shared), listener));
        Ok(Arc::new(Self { address, shared }))
    }

    /// The address to register for the endpoints, before the path.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves an endpoint under this path, replacing what was served there.
    pub fn register(&self, path: impl Into<String>, handler: Arc<dyn Handler>) {
        self.shared.endpoints.write().insert(path.into(), handler);
    }

    /// Serves an endpoint no longer; answers in progress go on.
    pub fn unregister(&self, path: &str) {
        self.shared.endpoints.write().remove(path);
    }

    /// Refuses new requests from now on and waits until all answers have ended.
    ///
    /// Cancel safe; what was refused stays refused. Put a deadline around it.
    pub async fn drain(&self) {
        self.shared.draining.store(true, Ordering::Release);
        self.shared.answers.close();
        self.shared.answers.wait().await;
    }

    /// Waits until every task has ended, which they do soon after the shutdown token was cancelled.
    pub async fn closed(&self) {
        self.shared.connections.close();
        self.shared.connections.wait().await;
        self.shared.answers.close();
        self.shared.answers.wait().await;
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.shared.counters.values()
    }
}

async fn accept(shared: Arc<Shared>, listener: Listener) {
    let room = Arc::new(Semaphore::new(shared.config.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let shutdown = shared.shutdown.clone();
    let accepting = async {
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((incoming, peer)) => {
                    shared.counters.connections.increment();
                    let serving = connection::serve(Arc::clone(&shared), incoming, peer);
                    let shutdown = shared.shutdown.clone();
                    shared.connections.spawn(async move {
                        shutdown.run_until_cancelled(serving).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "request listener could not accept");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(accepting).await;
}

/// The place of one admitted request.
#[derive(Debug)]
struct Admitted(Arc<Shared>);

impl Shared {
    /// Finds room for one more request.
    fn admit(self: &Arc<Self>) -> Option<Admitted> {
        let limit = self.config.max_active.saturating_add(self.config.max_queued);
        self.admitted
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < limit).then_some(count + 1))
            .ok()
            .map(|_| Admitted(Arc::clone(self)))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.admitted.fetch_sub(1, Ordering::AcqRel);
    }
}
