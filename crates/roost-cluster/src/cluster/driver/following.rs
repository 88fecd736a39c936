//! Which publishers are followed: subscriptions come and go with what discovery says.

use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use super::{Driver, Unread};
use crate::cluster::state::{Content, FeedPlan, Interest, Source};
use crate::events::{Feed, Origin, Subscription};
use crate::record::Topic;
use crate::update::Update;
use roost_kv::WorkerId;

/// A subscription and what has come of it.
pub(super) struct Running {
    pub(super) plan: FeedPlan,
    /// `None` for topics that need no order.
    pub(super) feed: Option<Feed>,
    pub(super) connected: bool,
    /// The query or the rest that is under way.
    pub(super) pending: Option<AbortHandle>,
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
    /// Ends subscriptions that are no longer wanted and starts those that are missing.
    pub(super) async fn follow(&mut self) -> Result<(), Unread> {
        let (mut wanted, ambiguous) = self.state.feeds(&self.interest());
        self.shared.stats.lock().ambiguous_ranks = ambiguous as u64;
        let mut ended = Vec::new();
        self.subscriptions.retain(|_, running| match wanted.iter().position(|plan| *plan == running.plan) {
            Some(index) => {
                wanted.swap_remove(index);
                true
            }
            None => {
                ended.push((running.plan.content.clone(), running.plan.publisher_id));
                false
            }
        });
        for (content, publisher) in ended {
            match content {
                // A rank whose source has gone while its worker stays is not indexed any more.
                Content::Kv { rank, epoch, .. } => {
                    if self.state.worker(rank.worker).is_some_and(|info| info.epoch == epoch) {
                        self.emit(Update::KvReset { rank, epoch }).await?;
                    }
                }
                Content::Shared { topic: Topic::ActiveSequences, scope } => {
                    self.emit(Update::SequencesEnded { scope, publisher }).await?;
                }
                Content::Shared { .. } => {}
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
        if matches!(plan.source, Source::Zmq(_)) {
            let stats = &mut *self.shared.stats.lock();
            match topic {
                Topic::KvEvents => stats.kv_sockets.started += 1,
                Topic::ActiveSequences => stats.sequence_sockets.started += 1,
                Topic::KvMetrics | Topic::SessionAffinity => {}
            }
        }
        let subscription = Subscription {
            id,
            source: match (&plan.source, &self.config.nats) {
                (Source::Zmq(endpoint), _) => Origin::Zmq(self.config.sockets.clone(), endpoint.clone()),
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

    pub(super) fn count_subscriptions(&self) {
        let mut stats = self.shared.stats.lock();
        stats.subscriptions = self.subscriptions.len() as u64;
        let stats = &mut *stats;
        for (topic, of_topic) in
            [(Topic::KvEvents, &mut stats.kv_sockets), (Topic::ActiveSequences, &mut stats.sequence_sockets)]
        {
            let sockets = || self.subscriptions.values().filter(|running| running.is_socket_of(topic));
            of_topic.followed = sockets().count() as u64;
            of_topic.removed = of_topic.started - of_topic.followed;
            of_topic.connected = sockets().filter(|running| running.connected).count() as u64;
        }
        stats.connected = self.subscriptions.values().filter(|running| running.connected).count() as u64;
    }
}

impl Running {
    fn is_socket_of(&self, topic: Topic) -> bool {
        matches!(self.plan.source, Source::Zmq(_)) && self.plan.content.topic() == topic
    }
}

impl Content {
    fn topic(&self) -> Topic {
        match self {
            Content::Kv { .. } => Topic::KvEvents,
            Content::Shared { topic, .. } => *topic,
        }
    }

    /// The worker whose KV events these are.
    pub(super) fn worker(&self) -> Option<WorkerId> {
        match self {
            Content::Kv { rank, .. } => Some(rank.worker),
            Content::Shared { .. } => None,
        }
    }
}
