//! The frontend's view: discovery and the event plane of all workers, merged into one ordered stream.

mod driver;
mod handle;
mod recovery;
mod state;
mod stats;
mod watchdog;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use handle::ClusterHandle;
pub use recovery::{RecoveryError, RecoverySource};
pub use stats::ClusterStats;

use crate::discovery::Discovery;
use crate::nats::NatsClient;
use crate::update::Update;
use driver::Driver;
use roost_zmtp::EventSockets;

/// Which namespaces a frontend serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamespaceFilter {
    /// All of them.
    #[default]
    All,
    /// One.
    Exact(String),
    /// Those that begin with a text.
    Prefix(String),
}

impl NamespaceFilter {
    /// True for a namespace that is served.
    pub fn admits(&self, namespace: &str) -> bool {
        match self {
            NamespaceFilter::All => true,
            NamespaceFilter::Exact(name) => namespace == name,
            NamespaceFilter::Prefix(prefix) => namespace.starts_with(prefix),
        }
    }
}

/// Settings of [`Cluster::start`].
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Which workers to see.
    pub namespaces: NamespaceFilter,
    /// Whether to follow KV events.
    pub kv_events: bool,
    /// Whether to follow what other frontends and workers tell about running requests.
    pub sequences: bool,
    /// Whether to follow the session bindings of other frontends.
    pub bindings: bool,
    /// Publisher id of this frontend's own channels, which it does not follow.
    pub own_publisher: Option<u64>,
    /// Connection over which publishers on NATS are heard; without one they are not.
    pub nats: Option<NatsClient>,
    /// On what other publishers are heard.
    pub sockets: EventSockets,
    /// Updates that may wait for the reader. A full stream slows the event sockets down, which then lose messages and
    /// recover; it never loses an update.
    pub update_capacity: usize,
    /// Longest wait for one answer to a recovery query.
    pub recovery_timeout: Duration,
    /// Tries of one recovery, with growing pauses from 200 ms.
    pub recovery_attempts: u32,
    /// Pause after a recovery was given up; doubles each time, up to ten times as long.
    pub recovery_rest: Duration,
    /// Recovery queries at one time.
    pub recovery_concurrency: usize,
    /// How long a worker may be without a KV event source before a warning names it.
    pub silence_before_warning: Duration,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            namespaces: NamespaceFilter::All,
            kv_events: true,
            sequences: false,
            bindings: false,
            own_publisher: None,
            nats: None,
            sockets: EventSockets::default(),
            update_capacity: 1024,
            recovery_timeout: Duration::from_secs(30),
            recovery_attempts: 8,
            recovery_rest: Duration::from_secs(30),
            recovery_concurrency: 8,
            silence_before_warning: Duration::from_secs(10),
        }
    }
}

/// Starts the frontend's view of the cluster.
#[derive(Debug)]
pub struct Cluster;

impl Cluster {
    /// Follows `discovery` and the event plane until `cancel` is cancelled or the receiver is dropped.
    ///
    /// All updates go into the one receiver; the handle is for looking. Must be called inside a tokio runtime.
    pub fn start(
        config: ClusterConfig,
        discovery: Arc<dyn Discovery>,
        recovery: Arc<dyn RecoverySource>,
        cancel: CancellationToken,
    ) -> (ClusterHandle, mpsc::Receiver<Update>) {
        let (out, updates) = mpsc::channel(config.update_capacity);
        let handle = ClusterHandle::default();
        let driver = Driver::new(config, discovery.watch(), recovery, out, handle.shared.clone());
        let tasks = &handle.shared.tasks;
        tasks.spawn(async move {
            // Dropping the driver ends all its subscriptions and queries. The store is kept as long as it is watched.
            cancel.run_until_cancelled_owned(driver.run()).await;
            drop(discovery);
        });
        tasks.close();
        (handle, updates)
    }
}
