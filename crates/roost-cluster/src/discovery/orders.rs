//! The handle's side of a backend whose work is done by a keeper, a task or a thread: orders to it, and what it sees.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::sync::{mpsc, oneshot, watch};

use super::{DiscoveryError, Snapshot};
use crate::record::RecordKey;

/// Orders that may wait for a keeper; a worker sends about ten in its life.
pub(super) const CAPACITY: usize = 1024;

/// Where the keeper answers an order.
pub(super) type Reply = oneshot::Sender<Result<(), DiscoveryError>>;

/// What a handle asks of its keeper.
#[derive(Debug)]
pub(super) enum Command {
    Put { key: RecordKey, value: Bytes, reply: Reply },
    Delete { key: RecordKey, reply: Reply },
    Abandon { key: RecordKey },
    Close { reply: oneshot::Sender<()> },
}

/// An order that the keeper's queue does not take.
#[derive(Debug)]
pub(super) enum Rejected {
    Full(Command),
    Closed,
}

/// A bounded queue to a keeper.
pub(super) trait Queue: Send + Sync {
    fn offer(&self, command: Command) -> Result<(), Rejected>;
}

impl Queue for mpsc::Sender<Command> {
    fn offer(&self, command: Command) -> Result<(), Rejected> {
        self.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(command) => Rejected::Full(command),
            mpsc::error::TrySendError::Closed(_) => Rejected::Closed,
        })
    }
}

impl Queue for SyncSender<Command> {
    fn offer(&self, command: Command) -> Result<(), Rejected> {
        self.try_send(command).map_err(|error| match error {
            TrySendError::Full(command) => Rejected::Full(command),
            TrySendError::Disconnected(_) => Rejected::Closed,
        })
    }
}

/// Gives orders to a keeper and holds what it sees. Dropping it ends the keeper.
#[derive(Debug)]
pub(super) struct Orders<Q> {
    queue: Q,
    snapshot: watch::Receiver<Arc<Snapshot>>,
}

impl<Q: Queue> Orders<Q> {
    pub(super) fn new(queue: Q, snapshot: watch::Receiver<Arc<Snapshot>>) -> Self {
        Self { queue, snapshot }
    }

    pub(super) fn put(&self, key: RecordKey, value: Bytes) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.order(|reply| Command::Put { key, value, reply })
    }

    pub(super) fn delete(&self, key: RecordKey) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.order(|reply| Command::Delete { key, reply })
    }

    pub(super) fn release(&self, key: RecordKey) {
        let (reply, _) = oneshot::channel();
        self.tell(Command::Delete { key, reply });
    }

    pub(super) fn abandon(&self, key: RecordKey) {
        self.tell(Command::Abandon { key });
    }

    pub(super) fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.clone()
    }

    /// Ends the keeper and waits for its end, which comes after all orders before.
    pub(super) async fn close(&self) {
        let (reply, done) = oneshot::channel();
        let mut command = Command::Close { reply };
        loop {
            match self.queue.offer(command) {
                Ok(()) => break,
                Err(Rejected::Closed) => return,
                Err(Rejected::Full(refused)) => command = refused,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // An error means that the keeper has ended, which is what was asked for.
        let _ = done.await;
    }

    fn order(&self, command: impl FnOnce(Reply) -> Command) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        let (reply, done) = oneshot::channel();
        let sent = self.queue.offer(command(reply));
        async move {
            match sent {
                Ok(()) => done.await.unwrap_or(Err(DiscoveryError::Closed)),
                Err(Rejected::Full(_)) => Err(DiscoveryError::Busy),
                Err(Rejected::Closed) => Err(DiscoveryError::Closed),
            }
        }
        .boxed()
    }

    fn tell(&self, command: Command) {
        if let Err(Rejected::Full(command)) = self.queue.offer(command) {
            tracing::warn!(?command, "discovery order dropped: the store is behind");
        }
    }
}

/// Waits until a store has been read for the first time. Cancel safe.
///
/// # Errors
/// [`DiscoveryError::Unreachable`] with the last failure that `trouble` names when `patience` is over.
pub(super) async fn first_look(
    mut snapshot: watch::Receiver<Arc<Snapshot>>,
    patience: Duration,
    trouble: impl Fn() -> Option<String>,
) -> Result<(), DiscoveryError> {
    let synced = snapshot.wait_for(|snapshot| snapshot.synced);
    match tokio::time::timeout(patience, synced).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(DiscoveryError::Closed),
        Err(_) => {
            let reason = trouble().unwrap_or_else(|| "no answer".to_owned());
            Err(DiscoveryError::Unreachable { reason })
        }
    }
}
