//! The task behind the update stream: runs subscriptions and queries, and puts what comes of them in order.

mod following;
mod receiving;
mod silence;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foldhash::HashMap;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::ClusterConfig;
use super::handle::Shared;
use super::recovery::RecoverySource;
use super::state::State;
use super::watchdog::Watchdog;
use crate::discovery::Snapshot;
use crate::events::{Meter, Received};
use crate::nats::NatsClient;
use crate::update::Update;
use following::Running;
use receiving::Done;

/// Messages of all subscriptions that may wait. More wait in their sockets.
const RECEIVED: usize = 256;
/// Longest time between two looks for silent workers.
const WATCHDOG: Duration = Duration::from_secs(5);

/// Nobody reads the updates any more.
struct Unread;

pub(super) struct Driver {
    config: ClusterConfig,
    state: State,
    store: watch::Receiver<Arc<Snapshot>>,
    seen: Arc<Snapshot>,
    synced: bool,
    out: mpsc::Sender<Update>,
    shared: Arc<Shared>,
    subscriptions: HashMap<u64, Running>,
    subscribed: u64,
    inbox: mpsc::Receiver<Received>,
    inbox_of_subscriptions: mpsc::Sender<Received>,
    meter: Arc<Meter>,
    recovery: Arc<dyn RecoverySource>,
    permits: Arc<Semaphore>,
    queries: JoinSet<(u64, Done)>,
    watchdog: Watchdog,
}

impl Driver {
    pub(super) fn new(
        config: ClusterConfig,
        store: watch::Receiver<Arc<Snapshot>>,
        recovery: Arc<dyn RecoverySource>,
        out: mpsc::Sender<Update>,
        shared: Arc<Shared>,
    ) -> Self {
        let (inbox_of_subscriptions, inbox) = mpsc::channel(RECEIVED);
        Self {
            state: State::new(config.namespaces.clone()),
            store,
            seen: Arc::default(),
            synced: false,
            out,
            shared,
            subscriptions: HashMap::default(),
            subscribed: 0,
            inbox,
            inbox_of_subscriptions,
            meter: Arc::default(),
            recovery,
            permits: Arc::new(Semaphore::new(config.recovery_concurrency)),
            queries: JoinSet::new(),
            watchdog: Watchdog::new(config.silence_before_warning),
            config,
        }
    }

    /// Works until nobody reads the updates or the store's handle is gone.
    pub(super) async fn run(mut self) {
        self.store.mark_changed();
        let mut tick = interval((self.config.silence_before_warning / 2).clamp(WATCHDOG / 100, WATCHDOG));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Discovery first: what a worker's leaving makes late must not overtake it.
            let step = tokio::select! {
                biased;
                changed = self.store.changed() => match changed {
                    Ok(()) => self.look().await,
                    Err(_) => return tracing::warn!("discovery has ended; the cluster view ends with it"),
                },
                Some(done) = self.queries.join_next() => match done {
                    Ok((id, done)) => self.done(id, done).await,
                    Err(_) => Ok(()),
                },
                Some(received) = self.inbox.recv() => self.received(received).await,
                _ = tick.tick() => {
                    self.watch().await
                }
            };
            if step.is_err() {
                return;
            }
            let mut stats = self.shared.stats.lock();
            let nats = self.config.nats.as_ref().map(NatsClient::stats).unwrap_or_default();
            stats.undecodable_messages = self.meter.undecodable.load(Ordering::Relaxed) + nats.undecodable;
            stats.take(&self.meter);
        }
    }

    async fn emit(&self, update: Update) -> Result<(), Unread> {
        self.out.send(update).await.map_err(|_| Unread)
    }

    /// Takes the store's present state.
    async fn look(&mut self) -> Result<(), Unread> {
        let now = self.store.borrow_and_update().clone();
        let changes = now.diff(&self.seen);
        let changed = !changes.is_empty();
        changes.into_iter().for_each(|change| self.state.apply(change));
        let updates = if changed { self.state.reconcile() } else { Vec::new() };
        self.seen = now;
        self.show();
        self.count_changes(&updates);
        for update in updates {
            self.emit(update).await?;
        }
        if changed {
            self.follow().await?;
        }
        if self.seen.synced && !self.synced {
            self.synced = true;
            self.emit(Update::Synced).await?;
        }
        Ok(())
    }

    /// Publishes the view for the handle.
    fn show(&self) {
        let mut view = self.shared.view.lock();
        view.instances = self.state.instances();
        view.workers = self.state.workers().cloned().collect();
        view.synced = self.seen.synced;
        view.unreachable_since = self.seen.unreachable_since;
        drop(view);
        self.shared.stats.lock().bad_records = self.state.bad_records();
    }

    fn count_changes(&self, updates: &[Update]) {
        let mut stats = self.shared.stats.lock();
        for update in updates {
            match update {
                Update::Joined(_) => stats.joined += 1,
                Update::Left { .. } => stats.left += 1,
                _ => {}
            }
        }
    }
}
