//! The task behind the update stream: runs subscriptions and queries, and puts what comes of them in order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foldhash::HashMap;
use roost_kv::{KvEvent, WorkerId};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::ClusterConfig;
use super::handle::Shared;
use super::recovery::{Recovery, RecoverySource};
use super::state::{Content, FeedPlan, Interest, Source, State};
use super::watchdog::{Checked, Watchdog};
use crate::discovery::Snapshot;
use crate::events::{Feed, KvAnswer, Load, Meter, Need, Origin, Received, Signal, Subscription};
use crate::nats::NatsClient;
use crate::record::Topic;
use crate::update::Update;
use crate::worker::Role;

/// Messages of all subscriptions that may wait. More wait in their sockets.
const RECEIVED: usize = 256;
/// Events of a dump that go into one update.
const DUMP_BATCH: usize = 1024;
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

/// The end of something that a feed asked for.
enum Done {
    Answered(KvAnswer),
    GivenUp,
    Rested,
}

struct Running {
    plan: FeedPlan,
    /// `None` for topics that need no order.
    feed: Option<Feed>,
    connected: bool,
    /// The query or the rest that is under way.
    pending: Option<AbortHandle>,
    _task: AbortOnDropHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            pending.abort();
        }
    }
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
            stats.kv_lag_ms = self.meter.kv_lag_ms.load(Ordering::Relaxed);
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

    /// Ends subscriptions that are no longer wanted and starts those that are missing.
    async fn follow(&mut self) -> Result<(), Unread> {
        let (mut wanted, ambiguous) = self.state.feeds(&self.interest());
        self.shared.stats.lock().ambiguous_ranks = ambiguous as u64;
        let mut ended = Vec::new();
        self.subscriptions.retain(|_, running| match wanted.iter().position(|plan| *plan == running.plan) {
            Some(index) => {
                wanted.swap_remove(index);
                true
            }
            None => {
                ended.push(running.plan.content.clone());
                false
            }
        });
        for content in ended {
            // A rank whose source has gone while its worker stays is not indexed any more.
            if let Content::Kv { rank, epoch, .. } = content
                && self.state.worker(rank.worker).is_some_and(|info| info.epoch == epoch)
            {
                self.emit(Update::KvReset { rank, epoch }).await?;
            }
        }
        for plan in wanted {
            self.subscribe(plan);
        }
        self.count_subscriptions();
        Ok(())
    }

    fn interest(&self) -> Interest {
        Interest {
            kv_events: self.config.kv_events,
            sequences: self.config.sequences,
            bindings: self.config.bindings,
            own_publisher: self.config.own_publisher,
            nats: self.config.nats.is_some(),
        }
    }

    fn subscribe(&mut self, plan: FeedPlan) {
        self.subscribed += 1;
        let id = self.subscribed;
        let (topic, feed) = match &plan.content {
            Content::Kv { rank, recovery, .. } => {
                (Topic::KvEvents, Some(Feed::new(*rank, recovery.is_some())))
            }
            Content::Shared { topic, .. } => (*topic, None),
        };
        let subscription = Subscription {
            id,
            source: match (&plan.source, &self.config.nats) {
                (Source::Zmq(endpoint), _) => Origin::Zmq(endpoint.clone()),
                (Source::Nats(subject), Some(nats)) => Origin::Nats(nats.clone(), subject.clone()),
                (Source::Nats(_), None) => unreachable!("planned only where it can be heard"),
            },
            topic,
            publisher_id: plan.publisher_id,
            out: self.inbox_of_subscriptions.clone(),
            meter: self.meter.clone(),
        };
        let task = AbortOnDropHandle::new(self.shared.tasks.spawn(subscription.run()));
        self.subscriptions.insert(id, Running { plan, feed, connected: false, pending: None, _task: task });
    }

    async fn received(&mut self, received: Received) -> Result<(), Unread> {
        let Some(running) = self.subscriptions.get_mut(&received.id) else {
            // Sent before its worker or source went away.
            self.shared.stats.lock().late_messages += 1;
            return Ok(());
        };
        let needs = match received.signal {
            Signal::Load(load) => return self.load(received.id, &load).await,
            Signal::Sequences(events) => {
                let Content::Shared { scope, .. } = &running.plan.content else { return Ok(()) };
                let scope = scope.clone();
                return self.emit(Update::Sequences { scope, events }).await;
            }
            Signal::Binding(event) => {
                let Content::Shared { scope, .. } = &running.plan.content else { return Ok(()) };
                let scope = scope.clone();
                return self.emit(Update::Binding { scope, event }).await;
            }
            Signal::Connected => {
                running.connected = true;
                let needs = running.act(&self.shared, Feed::connected);
                self.count_subscriptions();
                needs
            }
            Signal::Disconnected => {
                running.connected = false;
                self.count_subscriptions();
                Vec::new()
            }
            Signal::Kv(events) => running.act(&self.shared, |feed| feed.received(events)),
        };
        self.satisfy(received.id, needs).await
    }

    async fn done(&mut self, id: u64, done: Done) -> Result<(), Unread> {
        let Some(running) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        running.pending = running.pending.take().filter(|pending| !pending.is_finished());
        let needs = running.act(&self.shared, |feed| match done {
            Done::Answered(answer) => feed.answered(answer),
            Done::GivenUp => feed.failed(),
            Done::Rested => feed.rested(),
        });
        let holes = self.subscriptions.values().filter_map(|running| running.feed.as_ref());
        self.shared.stats.lock().ranks_with_holes = holes.filter(|feed| feed.has_holes()).count() as u64;
        self.satisfy(id, needs).await
    }

    /// Does what a feed asks for.
    async fn satisfy(&mut self, id: u64, needs: Vec<Need>) -> Result<(), Unread> {
        let Some(Running { plan, .. }) = self.subscriptions.get(&id) else { return Ok(()) };
        let Content::Kv { rank, epoch, recovery } = plan.content.clone() else { return Ok(()) };
        for need in needs {
            match need {
                Need::Reset => self.emit(Update::KvReset { rank, epoch }).await?,
                Need::Apply(events) => {
                    for events in in_batches(events) {
                        self.emit(Update::Kv { rank, epoch, events }).await?;
                    }
                }
                Need::Rest { before } => {
                    let rest = self.config.recovery_rest;
                    let pause = rest.saturating_mul(1 << before.min(4)).min(rest.saturating_mul(10));
                    self.begin(id, async move {
                        sleep(pause).await;
                        Done::Rested
                    });
                }
                Need::Ask { from } => {
                    let target = recovery.clone().expect("a feed without a recovery target never asks");
                    let recovery = Recovery {
                        source: self.recovery.clone(),
                        permits: self.permits.clone(),
                        timeout: self.config.recovery_timeout,
                        attempts: self.config.recovery_attempts,
                        target,
                        rank,
                        from,
                    };
                    self.begin(id, async move { recovery.run().await.map_or(Done::GivenUp, Done::Answered) });
                }
            }
        }
        Ok(())
    }

    /// Starts what a feed asked for, in place of what it asked for before.
    fn begin(&mut self, id: u64, work: impl Future<Output = Done> + Send + 'static) {
        let Some(running) = self.subscriptions.get_mut(&id) else { return };
        let pending = self.queries.spawn(async move { (id, work.await) });
        if let Some(before) = running.pending.replace(pending) {
            before.abort();
        }
    }

    async fn load(&mut self, id: u64, load: &Load) -> Result<(), Unread> {
        let rank = load.rank();
        let scope = match self.subscriptions.get(&id).map(|running| &running.plan.content) {
            Some(Content::Shared { scope, .. }) => scope,
            _ => return Ok(()),
        };
        let of_scope = |endpoint: &crate::record::EndpointId| {
            (&endpoint.namespace, &endpoint.component) == (&scope.namespace, &scope.component)
        };
        match self.state.worker(rank.worker) {
            Some(info) if info.ranks.contains(&rank.dp_rank) && of_scope(&info.endpoint) => {
                let update = Update::Load {
                    rank,
                    epoch: info.epoch,
                    active_decode_blocks: load.active_decode_blocks,
                    active_prefill_tokens: load.active_prefill_tokens,
                    kv_used_blocks: load.kv_used_blocks,
                };
                self.emit(update).await
            }
            _ => {
                self.shared.stats.lock().late_messages += 1;
                Ok(())
            }
        }
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

    fn count_subscriptions(&self) {
        let mut stats = self.shared.stats.lock();
        stats.subscriptions = self.subscriptions.len() as u64;
        stats.connected = self.subscriptions.values().filter(|running| running.connected).count() as u64;
    }

    /// Looks for workers whose KV events do not come.
    async fn watch(&mut self) -> Result<(), Unread> {
        if !self.config.kv_events {
            return Ok(());
        }
        let silent = self.silent_workers();
        self.shared.stats.lock().workers_without_events = silent.len() as u64;
        let Checked { due, over } = self.watchdog.check(Instant::now(), &silent);
        for worker in over {
            if let Some(info) = self.state.worker(worker) {
                tracing::info!(%worker, endpoint = %info.endpoint, "kv events of this worker come again");
                self.emit(Update::KvSilent { worker, epoch: info.epoch, silent: false }).await?;
            }
        }
        for (worker, first) in due {
            let Some(info) = self.state.worker(worker) else { continue };
            let reason = if !info.card.runtime_config.kv_event_publishing_enabled {
                "its card says that it publishes none"
            } else if self.subscriptions.values().any(|running| running.plan.content.worker() == Some(worker))
            {
                "its event publisher cannot be reached"
            } else {
                "it has no event source record, or one without a usable channel"
            };
            tracing::warn!(%worker, endpoint = %info.endpoint, model = info.card.display_name, reason,
                "no kv events from this worker; what it holds is guessed from what is sent to it");
            if first {
                self.emit(Update::KvSilent { worker, epoch: info.epoch, silent: true }).await?;
            }
        }
        Ok(())
    }

    /// Workers that hold prompts and are not connected with all their ranks.
    fn silent_workers(&self) -> Vec<WorkerId> {
        let mut connected: HashMap<WorkerId, usize> = HashMap::default();
        for running in self.subscriptions.values().filter(|running| running.connected) {
            if let Some(worker) = running.plan.content.worker() {
                *connected.entry(worker).or_default() += 1;
            }
        }
        let prefills =
            self.state.workers().filter(|info| matches!(info.role, Role::Aggregated | Role::Prefill));
        prefills
            .filter(|info| connected.get(&info.worker).copied().unwrap_or(0) < info.ranks.len())
            .map(|info| info.worker)
            .collect()
    }
}

impl Running {
    fn act(&mut self, shared: &Shared, act: impl FnOnce(&mut Feed) -> Vec<Need>) -> Vec<Need> {
        let Some(feed) = &mut self.feed else { return Vec::new() };
        let before = feed.stats;
        let needs = act(feed);
        shared.stats.lock().add(before, feed.stats);
        needs
    }
}

impl Content {
    fn worker(&self) -> Option<WorkerId> {
        match self {
            Content::Kv { rank, .. } => Some(rank.worker),
            Content::Shared { .. } => None,
        }
    }
}

fn in_batches(mut events: Vec<KvEvent>) -> impl Iterator<Item = Vec<KvEvent>> {
    std::iter::from_fn(move || {
        if events.is_empty() {
            return None;
        }
        let rest = if events.len() > DUMP_BATCH { events.split_off(DUMP_BATCH) } else { Vec::new() };
        Some(std::mem::replace(&mut events, rest))
    })
}
