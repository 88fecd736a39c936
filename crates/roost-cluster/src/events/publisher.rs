//! The sender's side: publishing, by workers and by frontends that share what they decide.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use roost_kv::{KvEvent, KvEventData};

use super::binding::BindingEvent;
use super::envelope::Envelope;
use super::kv::encode_kv_events;
use super::load::Load;
use super::sequence::SequenceEvent;
use crate::nats::NatsClient;
use crate::record::{EndpointId, EventChannelRecord, EventScope, EventTransport, Topic};
use roost_zmtp::{EventSockets, PubSocket};

/// Largest batch of one message.
const MAX_EVENTS: usize = 128;
const MAX_BLOCKS: usize = 8192;
const MAX_SEQUENCES: usize = 256;
/// Publisher ids must survive a double.
const ID_MASK: u64 = (1 << 53) - 1;

/// Settings of a [`Publisher`].
#[derive(Clone, Debug)]
pub struct PublisherConfig {
    /// What the events are about.
    pub endpoint: EndpointId,
    /// The topic.
    pub topic: Topic,
    /// Where to listen; port 0 for any.
    pub bind: SocketAddr,
    /// Host that subscribers should connect to; `None` for that of `bind`, which must then not be a wildcard.
    pub advertise_host: Option<String>,
    /// The publisher's id, at most 2^53 - 1 and the only one of its topic; `None` for a random one.
    pub publisher_id: Option<u64>,
    /// On what to listen.
    pub sockets: EventSockets,
}

/// Publishes one topic, for one rank in the case of KV events.
///
/// Publishing never waits: a subscriber that is behind loses messages and recovers by a query. Dropping the publisher
/// closes its socket.
#[derive(Debug)]
pub struct Publisher {
    publisher_id: u64,
    topic: Topic,
    record: EventChannelRecord,
    way: Way,
    /// Held while a message is queued, so that sequence order is sending order.
    sequence: Mutex<u64>,
}

#[derive(Debug)]
enum Way {
    /// A socket of its own.
    Zmq(PubSocket),
    /// A subject.
    Nats(NatsClient, Arc<str>),
}

/// Counters of a [`Publisher`]. On NATS only the messages are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherStats {
    /// Connected subscribers.
    pub subscribers: usize,
    /// Messages published.
    pub published: u64,
    /// Messages queued for a subscriber, summed over subscribers.
    pub sent: u64,
    /// Messages that a slow subscriber lost, summed over subscribers.
    pub dropped: u64,
}

impl Publisher {
    /// Listens for subscribers under a new random publisher id.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub async fn bind(config: PublisherConfig) -> io::Result<Self> {
        let socket = PubSocket::bind(&config.sockets, config.bind, config.topic.as_str()).await?;
        let publisher_id = config.publisher_id.unwrap_or_else(random_publisher_id);
        let port = socket.address().port();
        let endpoint = match &config.advertise_host {
            Some(host) => format!("tcp://{host}:{port}"),
            None => format!("tcp://{}", SocketAddr::new(config.bind.ip(), port)),
        };
        let transport = EventTransport::Zmq { endpoint };
        Ok(Self::new(config.endpoint, config.topic, publisher_id, transport, Way::Zmq(socket)))
    }

    /// Publishes over a connection to NATS, under `publisher_id` or a new random one.
    pub fn on_nats(
        client: NatsClient,
        endpoint: EndpointId,
        topic: Topic,
        publisher_id: Option<u64>,
    ) -> Self {
        let scope = EventScope::Endpoint { endpoint: endpoint.clone() };
        let transport = EventTransport::Nats { subject_prefix: scope.subject_prefix() };
        let way = Way::Nats(client, scope.subject(topic.as_str()).into());
        Self::new(endpoint, topic, publisher_id.unwrap_or_else(random_publisher_id), transport, way)
    }

    fn new(
        endpoint: EndpointId,
        topic: Topic,
        publisher_id: u64,
        transport: EventTransport,
        way: Way,
    ) -> Self {
        let record = EventChannelRecord {
            scope: EventScope::Endpoint { endpoint },
            topic: topic.as_str().to_owned(),
            publisher_id,
            transport,
        };
        Self { publisher_id, topic, record, way, sequence: Mutex::new(0) }
    }

    /// The publisher's id.
    pub fn publisher_id(&self) -> u64 {
        self.publisher_id
    }

    /// The record under which subscribers find this publisher.
    pub fn channel_record(&self) -> EventChannelRecord {
        self.record.clone()
    }

    /// Publishes KV events in as few messages as the limits allow. The publisher's topic must be
    /// [`Topic::KvEvents`], and all events must be of one rank, in its order.
    pub fn publish_kv_events(&self, events: &[KvEvent]) {
        debug_assert_eq!(self.topic, Topic::KvEvents);
        let mut rest = events;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_length(rest));
            self.publish(encode_kv_events(batch));
            rest = later;
        }
    }

    /// Publishes a rank's load. The publisher's topic must be [`Topic::KvMetrics`].
    pub fn publish_load(&self, load: &Load) {
        debug_assert_eq!(self.topic, Topic::KvMetrics);
        self.publish(load.encode());
    }

    /// Publishes steps of requests in as few messages as the limits allow. The publisher's topic must be
    /// [`Topic::ActiveSequences`].
    pub fn publish_sequences(&self, events: &[SequenceEvent]) {
        debug_assert_eq!(self.topic, Topic::ActiveSequences);
        match &self.way {
            Way::Zmq(_) => {
                for batch in events.chunks(MAX_SEQUENCES) {
                    self.publish(SequenceEvent::encode_batch(batch));
                }
            }
            // Dynamo reads them one by one there.
            Way::Nats(..) => events.iter().for_each(|event| self.publish(event.encode())),
        }
    }

    /// Publishes a session's binding. The publisher's topic must be [`Topic::SessionAffinity`].
    pub fn publish_binding(&self, binding: &BindingEvent) {
        debug_assert_eq!(self.topic, Topic::SessionAffinity);
        self.publish(binding.encode());
    }

    /// Counters so far.
    pub fn stats(&self) -> PublisherStats {
        let published = *self.sequence.lock();
        let Way::Zmq(socket) = &self.way else {
            return PublisherStats { published, ..PublisherStats::default() };
        };
        let socket = socket.stats();
        PublisherStats { subscribers: socket.peers, published, sent: socket.sent, dropped: socket.dropped }
    }

    /// Closes the socket and waits for its tasks.
    pub async fn close(&self) {
        if let Way::Zmq(socket) = &self.way {
            socket.close().await;
        }
    }

    fn publish(&self, payload: Vec<u8>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut sequence = self.sequence.lock();
        let envelope = Envelope {
            publisher_id: self.publisher_id,
            sequence: *sequence,
            published_at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            topic: self.topic.as_str().to_owned(),
            payload: Bytes::from(payload),
        };
        *sequence += 1;
        match &self.way {
            Way::Zmq(socket) => socket.publish(&envelope.to_message()),
            Way::Nats(client, subject) => client.publish(subject, envelope.encode().into()),
        }
    }
}

/// An id that no other publisher has, for all practical purposes.
pub fn random_publisher_id() -> u64 {
    RandomState::new().build_hasher().finish() & ID_MASK
}

/// How many of the events go into one message: at least one.
fn batch_length(events: &[KvEvent]) -> usize {
    let mut blocks = 0;
    let fitting = events.iter().take(MAX_EVENTS).take_while(|event| {
        blocks += match &event.data {
            KvEventData::Stored { blocks, .. } => blocks.len(),
            KvEventData::Removed { blocks } => blocks.len(),
            KvEventData::Cleared => 0,
        };
        blocks <= MAX_BLOCKS
    });
    fitting.count().max(1)
}
