//! The frontend's response listener: workers connect to it with their answers.

mod registry;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time,
};
use uuid::Uuid;

use self::registry::Registry;
pub(crate) use self::registry::{News, Waiting};
use crate::{
    Target,
    line::Line,
    message::HandshakeMessage,
    stats::{ListenerCounters, ListenerStats},
    transport::{Incoming, Listener, Transport},
};

/// Pause after the listening socket failed, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Largest frame before a connection has named its subject.
const MAX_HANDSHAKE_BYTES: usize = 16 * 1024;

/// What the system keeps of an answer that nobody reads, in bytes, once or twice: the rest stays with the worker. Left to
/// itself it keeps up to 32 MiB for each client that is stuck.
const UNREAD_BYTES: usize = 256 * 1024;

/// Settings of the response listener.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// Address to listen on; port 0 picks a free one.
    pub bind: SocketAddr,
    /// Address that workers are told to connect to; the bound one when unset.
    pub advertise: Option<IpAddr>,
    /// How connections are accepted.
    pub transport: Transport,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// Time for a connection to name its subject.
    pub handshake_timeout: Duration,
    /// Connections that may be without a subject at once; more wait in the backlog.
    pub max_handshakes: usize,
    /// Largest frame of an answer in bytes. A dump of a worker's cache is one frame.
    pub max_frame_bytes: usize,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            transport: Transport::tcp(),
            backlog: 4096,
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 1024,
            max_frame_bytes: 256 * 1024 * 1024,
        }
    }
}

/// Accepts call-home connections and hands each to the request that waits for it.
///
/// Owns the table of subjects. Stops listening when dropped; answers in progress go on.
#[derive(Debug)]
pub struct ResponseListener {
    address: SocketAddr,
    registry: Arc<Registry>,
    counters: Arc<ListenerCounters>,
    task: AbortHandle,
}

impl ResponseListener {
    /// Starts listening. Must be called on a runtime.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(config: ListenerConfig) -> io::Result<Arc<Self>> {
        let listener = config.transport.bind(config.bind, config.backlog, Some(UNREAD_BYTES))?;
        let bound = listener.address()?;
        let address = SocketAddr::new(config.advertise.unwrap_or(bound.ip()), bound.port());
        let registry = Arc::new(Registry::default());
        let counters = Arc::new(ListenerCounters::default());
        let acceptor = Acceptor { config, registry: Arc::clone(&registry), counters: Arc::clone(&counters) };
        let task = tokio::spawn(acceptor.run(listener)).abort_handle();
        Ok(Arc::new(Self { address, registry, counters, task }))
    }

    /// The address that workers are told to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> ListenerStats {
        self.counters.values()
    }

    /// Number of requests that wait for their call-home connection.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.registry.len()
    }

    /// Registers a new subject; it is withdrawn when the returned value is dropped.
    pub(crate) fn register(&self, target: &Target) -> Waiting {
        Waiting::new(Arc::clone(&self.registry), Uuid::new_v4(), target)
    }

    /// Tells the requests that wait for this target that it has left.
    pub(crate) fn left(&self, target: &Target) {
        self.registry.left(target);
    }
}

impl Drop for ResponseListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the accepting task works with.
#[derive(Clone)]
struct Acceptor {
    config: ListenerConfig,
    registry: Arc<Registry>,
    counters: Arc<ListenerCounters>,
}

impl Acceptor {
    async fn run(self, listener: Listener) {
        let this = Arc::new(self);
        let room = Arc::new(Semaphore::new(this.config.max_handshakes));
        // Dropped with this task, and the handshakes in progress with it.
        let mut handshakes = JoinSet::new();
        loop {
            while handshakes.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((incoming, peer)) => {
                    this.counters.accepted.increment();
                    let this = Arc::clone(&this);
                    handshakes.spawn(async move {
                        this.handshake(incoming, peer).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    this.counters.accept_errors.increment();
                    tracing::warn!(%error, "response listener could not accept");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn handshake(&self, incoming: Incoming, peer: SocketAddr) {
        let socket = match incoming.establish().await {
            Ok(socket) => socket,
            Err(error) => {
                self.counters.bad_handshakes.increment();
                tracing::debug!(%peer, %error, "no TLS on the response listener");
                return;
            }
        };
        let mut line = Line::new(socket, MAX_HANDSHAKE_BYTES, Arc::clone(&self.counters));
        match time::timeout(self.config.handshake_timeout, read_subject(&mut line)).await {
            Ok(Some(subject)) => {
                line.allow_frames(self.config.max_frame_bytes);
                self.hand_over(line, subject, peer);
            }
            Ok(None) | Err(_) => {
                // Not a worker, so it is not spoken to.
                line.finish();
                self.counters.bad_handshakes.increment();
                tracing::debug!(%peer, "no proper handshake on the response listener");
            }
        }
    }

    fn hand_over(&self, line: Line, subject: Uuid, peer: SocketAddr) {
        let matched = self.registry.take(subject).is_some_and(|request| request.send(line).is_ok());
        if matched {
            self.counters.matched.increment();
        } else {
            // A late answer to a request that is over: closing tells the worker.
            self.counters.unknown_subjects.increment();
            tracing::debug!(%peer, %subject, "nobody waits for this answer");
        }
    }
}

async fn read_subject(line: &mut Line) -> Option<Uuid> {
    let len = line.next_frame().await.ok()?;
    let handshake: HandshakeMessage = serde_json::from_slice(line.frame(len).header).ok()?;
    line.consume(len);
    (handshake.stream_type == "response").then_some(())?;
    handshake.subject.parse().ok()
}
