//! A PUB socket of one topic: accepts subscribers and never waits for any of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ZmtpError;
use crate::connection::Connection;
use crate::frame::Item;
use crate::socket::{EventSockets, Listener, Socket};

/// Subscribers at one time; further ones are refused.
const MAX_PEERS: usize = 1024;
/// Messages that wait for one subscriber, and their bytes. More are dropped for that subscriber.
const MAX_QUEUED: usize = 100_000;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Messages that are copied into one write.
const BATCH: usize = 64;
/// Subscriptions of one subscriber.
const MAX_SUBSCRIPTIONS: usize = 64;

/// The socket. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub struct PubSocket {
    shared: Arc<Shared>,
    address: SocketAddr,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Shared {
    topic: String,
    peers: Mutex<Vec<Peer>>,
    sent: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Peer {
    queue: mpsc::Sender<Bytes>,
    queued_bytes: Arc<AtomicUsize>,
}

/// Counters of a PUB socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PubStats {
    /// Connected peers.
    pub peers: usize,
    /// Messages handed to a subscriber's queue, summed over subscribers.
    pub sent: u64,
    /// Messages dropped because a subscriber's queue was full.
    pub dropped: u64,
}

impl PubSocket {
    /// Listens on `address` and publishes `topic`.
    pub async fn bind(sockets: &EventSockets, address: SocketAddr, topic: &str) -> io::Result<Self> {
        let listener = sockets.bind(address).await?;
        let address = listener.address()?;
        let shared = Arc::new(Shared {
            topic: topic.to_owned(),
            peers: Mutex::default(),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, shared.clone(), tasks.clone(), cancel.clone()));
        Ok(Self { shared, address, cancel, tasks })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues one encoded message for every subscriber. Never waits; a subscriber that is behind loses it.
    pub fn publish(&self, message: &Bytes) {
        let mut peers = self.shared.peers.lock();
        peers.retain(|peer| {
            if peer.queued_bytes.load(Ordering::Relaxed) + message.len() > MAX_QUEUED_BYTES {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                return !peer.queue.is_closed();
            }
            match peer.queue.try_send(message.clone()) {
                Ok(()) => {
                    peer.queued_bytes.fetch_add(message.len(), Ordering::Relaxed);
                    self.shared.sent.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Err(mpsc::error::TrySendError::Full(_)) => {
                    self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            }
        });
    }

    /// Counters so far.
    pub fn stats(&self) -> PubStats {
        PubStats {
            peers: self.shared.peers.lock().iter().filter(|peer| !peer.queue.is_closed()).count(),
            sent: self.shared.sent.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
        }
    }

    /// Closes everything and waits for the tasks to end.
    pub async fn close(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for PubSocket {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn accept(listener: Listener, shared: Arc<Shared>, tasks: TaskTracker, cancel: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                // Out of descriptors, mostly: give others the time to close some.
                tracing::warn!(%error, "event publisher cannot accept a subscriber");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        if tasks.len() > MAX_PEERS {
            tracing::warn!(limit = MAX_PEERS, "event publisher refuses a subscriber: too many");
            continue;
        }
        let (shared, cancel) = (shared.clone(), cancel.clone());
        tasks.spawn(async move {
            let served = cancel.run_until_cancelled(serve(stream, &shared)).await;
            if let Some(Err(error)) = served {
                tracing::debug!(%error, topic = shared.topic, "event subscriber left");
            }
        });
    }
}

async fn serve(stream: Socket, shared: &Shared) -> Result<(), ZmtpError> {
    let mut connection = Connection::handshake(stream, "PUB", "SUB").await?;
    let (queue, mut waiting) = mpsc::channel(MAX_QUEUED);
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let mut subscriptions: Vec<Bytes> = Vec::new();
    let mut batch = Vec::with_capacity(BATCH);
    shared.peers.lock().push(Peer { queue, queued_bytes: queued_bytes.clone() });
    loop {
        tokio::select! {
            item = connection.item() => match item? {
                Item::Message(frames) => {
                    let Some(frame) = frames.first() else { continue };
                    match frame.first() {
                        Some(1) => subscribe(&mut subscriptions, frame.slice(1..))?,
                        Some(0) => unsubscribe(&mut subscriptions, &frame[1..]),
                        _ => {}
                    }
                }
                Item::Command { name, body } => match &name[..] {
                    b"SUBSCRIBE" => subscribe(&mut subscriptions, body)?,
                    b"CANCEL" => unsubscribe(&mut subscriptions, &body),
                    _ => connection.answer_ping(&name, &body)?,
                },
            },
            count = waiting.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    return Ok(());
                }
                let size = batch.iter().map(Bytes::len).sum();
                queued_bytes.fetch_sub(size, Ordering::Relaxed);
                if subscriptions.iter().any(|prefix| shared.topic.as_bytes().starts_with(prefix)) {
                    let mut out = BytesMut::with_capacity(size);
                    batch.iter().for_each(|message| out.extend_from_slice(message));
                    connection.stream.write_all(&out).await?;
                }
                batch.clear();
            }
        }
    }
}

fn subscribe(subscriptions: &mut Vec<Bytes>, prefix: Bytes) -> Result<(), ZmtpError> {
    if subscriptions.len() >= MAX_SUBSCRIPTIONS {
        return Err(ZmtpError::Malformed("subscriber: too many subscriptions"));
    }
    subscriptions.push(prefix);
    Ok(())
}

fn unsubscribe(subscriptions: &mut Vec<Bytes>, prefix: &[u8]) {
    if let Some(index) = subscriptions.iter().position(|known| known == prefix) {
        subscriptions.swap_remove(index);
    }
}
