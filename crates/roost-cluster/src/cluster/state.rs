//! What the records say: who is a worker, and which publishers to follow. Pure; no sockets, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roost_kv::{WorkerId, WorkerRank};

use super::NamespaceFilter;
use crate::discovery::Change;
use crate::record::{
    Bucket, CardRecord, EndpointId, EventChannelRecord, EventSourceRecord, EventTransport, InstanceRecord,
    ModelCard, RecordError, RecordKey, Target, Topic,
};
use crate::update::Update;
use crate::worker::{Role, WorkerInfo};

/// More ranks than any deployment has; a card that claims more is damaged.
const MAX_RANKS: u32 = 4096;

/// All usable records of the served namespaces, and the workers that follow from them.
#[derive(Debug, Default)]
pub(super) struct State {
    filter: NamespaceFilter,
    instances: BTreeMap<RecordKey, Arc<InstanceRecord>>,
    cards: BTreeMap<RecordKey, Card>,
    channels: BTreeMap<RecordKey, EventChannelRecord>,
    sources: BTreeMap<RecordKey, EventSourceRecord>,
    workers: BTreeMap<WorkerId, Arc<WorkerInfo>>,
    joins: u64,
    /// Things that have been complained about; forgotten with their cause.
    known_troubles: BTreeSet<String>,
    ambiguous: BTreeSet<WorkerRank>,
    bad_records: u64,
}

#[derive(Debug)]
struct Card {
    endpoint: EndpointId,
    instance_id: u64,
    card: Arc<ModelCard>,
}

/// A publisher to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FeedPlan {
    pub(super) source: Source,
    pub(super) publisher_id: u64,
    pub(super) content: Content,
}

/// How a publisher is heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Socket at `tcp://HOST:PORT`.
    Zmq(String),
    /// Messages on a subject.
    Nats(String),
}

/// What a publisher publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// KV events of one rank of one join of a worker.
    Kv { rank: WorkerRank, epoch: u64, recovery: Option<Target> },
    /// What concerns all workers of an endpoint: loads, requests, bindings.
    Shared { topic: Topic, scope: EndpointId },
}

/// Which topics to follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interest {
    pub(super) kv_events: bool,
    pub(super) sequences: bool,
    pub(super) bindings: bool,
    /// The publisher id that is our own.
    pub(super) own_publisher: Option<u64>,
    /// Publishers on NATS can be heard.
    pub(super) nats: bool,
}

impl Interest {
    fn in_topic(&self, topic: Topic) -> bool {
        match topic {
            Topic::KvEvents => self.kv_events,
            Topic::KvMetrics => true,
            Topic::ActiveSequences => self.sequences,
            Topic::SessionAffinity => self.bindings,
        }
    }
}

impl State {
    pub(super) fn new(filter: NamespaceFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Takes one change of the store. What follows from it is told by [`State::reconcile`].
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Delete(key) => {
                self.instances.remove(&key);
                self.cards.remove(&key);
                self.channels.remove(&key);
                self.sources.remove(&key);
                self.known_troubles.remove(&key.to_string());
                self.known_troubles.remove(&second_card(&key));
            }
            Change::Put(key, json) => {
                if let Err(error) = self.put(&key, &json) {
                    self.bad_records += 1;
                    if self.known_troubles.insert(key.to_string()) {
                        tracing::warn!(%key, %error, "discovery record cannot be used");
                    }
                }
            }
        }
    }

    fn put(&mut self, key: &RecordKey, json: &[u8]) -> Result<(), RecordError> {
        match key.bucket {
            Bucket::Instances => {
                let record = InstanceRecord::decode(json)?;
                if self.filter.admits(&record.namespace) {
                    self.instances.insert(key.clone(), Arc::new(record));
                }
            }
            Bucket::Cards => {
                let record = CardRecord::decode(json)?;
                let ranks = record.card.runtime_config.data_parallel_size;
                if ranks > MAX_RANKS {
                    let reason = format!("data_parallel_size is {ranks}, at most {MAX_RANKS} is possible");
                    return Err(RecordError::Card { id: record.instance_id, reason });
                }
                // Cards of adapters have a longer key; they are no workers of their own.
                if self.filter.admits(&record.namespace) && record.key() == *key {
                    let endpoint = record.endpoint_id();
                    let card =
                        Card { endpoint, instance_id: record.instance_id, card: Arc::new(record.card) };
                    self.cards.insert(key.clone(), card);
                }
            }
            Bucket::EventChannels => {
                let record = EventChannelRecord::decode(json)?;
                if self.filter.admits(&record.scope.endpoint().namespace) {
                    self.channels.insert(key.clone(), record);
                }
            }
            Bucket::EventSources => {
                let record = EventSourceRecord::decode(json)?;
                if self.filter.admits(&record.scope.endpoint().namespace) {
                    self.sources.insert(key.clone(), record);
                }
            }
        }
        Ok(())
    }

    pub(super) fn instances(&self) -> Arc<[Arc<InstanceRecord>]> {
        self.instances.values().cloned().collect()
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Arc<WorkerInfo>> {
        self.workers.values()
    }

    pub(super) fn worker(&self, id: WorkerId) -> Option<&Arc<WorkerInfo>> {
        self.workers.get(&id)
    }

    pub(super) fn bad_records(&self) -> u64 {
        self.bad_records
    }

    /// Brings the worker set in line with the records. First those who left, then those who joined or changed.
    pub(super) fn reconcile(&mut self) -> Vec<Update> {
        let mut wanted: BTreeMap<WorkerId, (RecordKey, Arc<InstanceRecord>)> = BTreeMap::new();
        for (key, card) in &self.cards {
            let instance = self.instances.get(&RecordKey { bucket: Bucket::Instances, key: key.key.clone() });
            let Some(instance) = instance else { continue };
            let worker = WorkerId(card.instance_id);
            if let Some((first, _)) = wanted.get(&worker) {
                if self.known_troubles.insert(second_card(key)) {
                    tracing::warn!(%worker, used = %first, ignored = %key, "one worker id with two cards; the second is ignored");
                }
                continue;
            }
            wanted.insert(worker, (key.clone(), instance.clone()));
        }
        let mut updates = Vec::new();
        let mut arrivals = Vec::new();
        let mut before = std::mem::take(&mut self.workers);
        for (worker, (key, instance)) in wanted {
            let card = &self.cards[&key];
            let old = before.remove(&worker);
            if let Some(old) = &old
                && Arc::ptr_eq(&old.card, &card.card)
                && Arc::ptr_eq(&old.instance, &instance)
            {
                self.workers.insert(worker, old.clone());
                continue;
            }
            let mut info = match describe(worker, card, instance) {
                Ok(info) => info,
                Err(error) => {
                    if self.known_troubles.insert(key.to_string()) {
                        tracing::warn!(%key, %error, "worker cannot be used");
                    }
                    updates.extend(old.map(|old| left(&old)));
                    continue;
                }
            };
            match old {
                Some(old)
                    if (&old.endpoint, &old.target, &old.ranks)
                        == (&info.endpoint, &info.target, &info.ranks) =>
                {
                    info.epoch = old.epoch;
                    let info = Arc::new(info);
                    self.workers.insert(worker, info.clone());
                    arrivals.push(Update::Changed(info));
                }
                old => {
                    updates.extend(old.map(|old| left(&old)));
                    self.joins += 1;
                    info.epoch = self.joins;
                    let info = Arc::new(info);
                    self.workers.insert(worker, info.clone());
                    arrivals.push(Update::Joined(info));
                }
            }
        }
        updates.extend(before.into_values().map(|old| left(&old)));
        updates.extend(arrivals);
        updates
    }

    /// The publishers to follow, and the ranks that have several sources and therefore none.
    pub(super) fn feeds(&mut self, interest: &Interest) -> (Vec<FeedPlan>, usize) {
        let (mut plans, ambiguous) =
            if interest.kv_events { self.kv_feeds(interest.nats) } else { (Vec::new(), 0) };
        for channel in self.channels.values() {
            let Some(source) = source(channel, interest.nats) else { continue };
            let topic = Topic::named(&channel.topic).filter(|topic| *topic != Topic::KvEvents);
            let Some(topic) = topic.filter(|topic| interest.in_topic(*topic)) else { continue };
            let scope = channel.scope.endpoint();
            let of_interest = self.workers.values().any(|info| same_component(&info.endpoint, scope));
            if of_interest && interest.own_publisher != Some(channel.publisher_id) {
                plans.push(FeedPlan {
                    source,
                    publisher_id: channel.publisher_id,
                    content: Content::Shared { topic, scope: scope.clone() },
                });
            }
        }
        (plans, ambiguous)
    }

    fn kv_feeds(&mut self, nats: bool) -> (Vec<FeedPlan>, usize) {
        let mut by_rank: BTreeMap<WorkerRank, Vec<&RecordKey>> = BTreeMap::new();
        for (key, source) in &self.sources {
            let rank = rank_of(source);
            let Some(info) = self.workers.get(&rank.worker) else { continue };
            if source.topic != Topic::KvEvents.as_str()
                || !same_component(&info.endpoint, source.scope.endpoint())
            {
                continue;
            }
            if !info.ranks.contains(&rank.dp_rank) {
                if self.known_troubles.insert(key.to_string()) {
                    tracing::warn!(%rank, ranks = ?info.ranks, "kv event source of a rank that its worker does not serve");
                }
                continue;
            }
            by_rank.entry(rank).or_default().push(key);
        }
        let mut plans = Vec::new();
        let known = std::mem::take(&mut self.ambiguous);
        for (rank, keys) in by_rank {
            let [key] = keys[..] else {
                self.ambiguous.insert(rank);
                if !known.contains(&rank) {
                    tracing::warn!(%rank, sources = keys.len(), "several kv event sources for one rank; it is not indexed");
                }
                continue;
            };
            let record = &self.sources[key];
            let channel =
                self.channels.get(&RecordKey { bucket: Bucket::EventChannels, key: key.key.clone() });
            let Some(source) = channel.and_then(|channel| source(channel, nats)) else { continue };
            let recovery = record.metadata.recovery_target.as_ref().map(InstanceRecord::target).transpose();
            let recovery = recovery.unwrap_or_else(|error| {
                if self.known_troubles.insert(key.to_string()) {
                    tracing::warn!(%rank, %error, "kv events cannot be recovered");
                }
                None
            });
            plans.push(FeedPlan {
                source,
                publisher_id: record.publisher_id,
                content: Content::Kv { rank, epoch: self.workers[&rank.worker].epoch, recovery },
            });
        }
        let ambiguous = self.ambiguous.len();
        (plans, ambiguous)
    }
}

/// How to hear a channel; `None` if it is of a kind that is not spoken here.
fn source(channel: &EventChannelRecord, nats: bool) -> Option<Source> {
    match &channel.transport {
        EventTransport::Zmq { endpoint } => Some(Source::Zmq(endpoint.clone())),
        EventTransport::Nats { .. } if nats => Some(Source::Nats(channel.scope.subject(&channel.topic))),
        EventTransport::Nats { .. } | EventTransport::Other => None,
    }
}

fn second_card(key: &RecordKey) -> String {
    format!("second card {key}")
}

fn rank_of(source: &EventSourceRecord) -> WorkerRank {
    let worker = source.metadata.worker;
    WorkerRank::new(WorkerId(worker.worker_id), worker.dp_rank)
}

fn describe(worker: WorkerId, card: &Card, instance: Arc<InstanceRecord>) -> Result<WorkerInfo, RecordError> {
    let runtime = &card.card.runtime_config;
    let start = runtime.data_parallel_start_rank;
    Ok(WorkerInfo {
        worker,
        epoch: 0,
        endpoint: card.endpoint.clone(),
        target: instance.target()?,
        role: Role::of(&card.card),
        ranks: start..start.saturating_add(runtime.data_parallel_size.max(1)),
        card: card.card.clone(),
        mdcsum: card.card.mdcsum(),
        instance,
    })
}

fn left(info: &WorkerInfo) -> Update {
    Update::Left { worker: info.worker, epoch: info.epoch, endpoint: info.endpoint.clone() }
}

fn same_component(one: &EndpointId, other: &EndpointId) -> bool {
    (&one.namespace, &one.component) == (&other.namespace, &other.component)
}

#[cfg(test)]
mod tests;
