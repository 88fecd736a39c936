use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{
    CallError, ClientConfig,
    connection::{AckReceiver, Connection, Outgoing},
};
use crate::stats::ClientCounters;

/// The connections to all workers. Owns the table; each connection owns itself and is reached through a handle.
#[derive(Debug)]
pub(super) struct Pool {
    config: Arc<ClientConfig>,
    counters: Arc<ClientCounters>,
    connects: Arc<Semaphore>,
    addresses: Mutex<HashMap<SocketAddr, Vec<Handle>>>,
}

/// The way to a connection's task.
#[derive(Debug)]
struct Handle {
    frames: mpsc::Sender<Outgoing>,
    unacknowledged: Arc<AtomicUsize>,
}

/// One unacknowledged frame, counted until dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<AtomicUsize>);

impl Pool {
    pub(super) fn new(config: Arc<ClientConfig>, counters: Arc<ClientCounters>) -> Self {
        let connects = Arc::new(Semaphore::new(config.connect_limit));
        Self { config, counters, connects, addresses: Mutex::default() }
    }

    /// Queues a frame on a connection to this address, opening one if need be.
    pub(super) fn send(
        &self,
        address: SocketAddr,
        head: Bytes,
        body: Bytes,
    ) -> Result<AckReceiver, CallError> {
        let (reply, ack) = oneshot::channel();
        let mut frame = Some((head, body, reply));
        let mut addresses = self.addresses.lock();
        let handles = addresses.entry(address).or_default();
        handles.retain(|handle| !handle.frames.is_closed());
        // Another thread cannot take the room that is found, for the lock is held.
        for index in 0..=handles.len() {
            // A new connection starts only with the frame in its queue: were it to start before, it could fail and
            // close the queue first, and the address would look full instead of unreachable.
            let mut opened = None;
            if index == handles.len() {
                if index >= self.config.pool_size.max(1) {
                    break;
                }
                let (handle, connection) = self.prepare(address);
                handles.push(handle);
                opened = Some(connection);
            }
            let handle = &handles[index];
            if handle.unacknowledged.load(Ordering::Acquire) >= self.config.channel_buffer.max(1) {
                continue;
            }
            let (head, body, reply) = frame.take().expect("sent at most once");
            let outgoing = Outgoing { head, body, reply, in_flight: InFlight::new(&handle.unacknowledged) };
            match handle.frames.try_send(outgoing) {
                Ok(()) => {
                    if let Some(connection) = opened {
                        tokio::spawn(connection.run());
                    }
                    return Ok(ack);
                }
                Err(mpsc::error::TrySendError::Closed(back) | mpsc::error::TrySendError::Full(back)) => {
                    frame = Some((back.head, back.body, back.reply));
                }
            }
        }
        self.counters.pool_full.increment();
        Err(CallError::PoolFull)
    }

    pub(super) fn unacknowledged(&self) -> usize {
        let addresses = self.addresses.lock();
        addresses.values().flatten().map(|handle| handle.unacknowledged.load(Ordering::Acquire)).sum()
    }

    pub(super) fn warm(&self, address: SocketAddr) {
        let mut addresses = self.addresses.lock();
        addresses.retain(|_, handles| {
            handles.retain(|handle| !handle.frames.is_closed());
            !handles.is_empty()
        });
        addresses.entry(address).or_insert_with(|| {
            let (handle, connection) = self.prepare(address);
            tokio::spawn(connection.run());
            vec![handle]
        });
    }

    pub(super) fn forget(&self, address: SocketAddr) {
        // A connection whose handle is gone drains and closes.
        self.addresses.lock().remove(&address);
    }

    /// A connection and the way to it; the connection has yet to be started.
    fn prepare(&self, address: SocketAddr) -> (Handle, Connection) {
        // One more than the frames that may be counted: a frame is counted a little longer than it is queued.
        let (frames, queue) = mpsc::channel(self.config.channel_buffer.max(1) + 1);
        let connection = Connection {
            address,
            config: Arc::clone(&self.config),
            counters: Arc::clone(&self.counters),
            connects: Arc::clone(&self.connects),
            queue,
        };
        (Handle { frames, unacknowledged: Arc::default() }, connection)
    }
}

impl InFlight {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
