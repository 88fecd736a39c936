//! Event channels (a publisher and its socket) and event sources (for whom a publisher speaks).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::RecordError;
use super::endpoint::{EndpointId, InstanceRecord};
use super::key::{RecordKey, percent_encode_into};

/// Topics of the event plane that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Blocks stored and removed, one publisher per (worker, rank).
    KvEvents,
    /// Load of a rank.
    KvMetrics,
    /// Requests that frontends place and workers run.
    ActiveSequences,
    /// Sessions that frontends bind.
    SessionAffinity,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Topic::KvEvents, Topic::KvMetrics, Topic::ActiveSequences, Topic::SessionAffinity];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Topic::KvEvents => "kv-events",
            Topic::KvMetrics => "kv_metrics",
            Topic::ActiveSequences => "active_sequences_events",
            Topic::SessionAffinity => "session_affinity_events",
        }
    }

    /// The topic of that name, if it is one used here.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == name)
    }
}

/// What a publisher is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventScope {
    /// One endpoint.
    Endpoint {
        /// The endpoint.
        endpoint: EndpointId,
    },
}

impl EventScope {
    /// The endpoint of the scope.
    pub fn endpoint(&self) -> &EndpointId {
        let EventScope::Endpoint { endpoint } = self;
        endpoint
    }

    /// First part of the NATS subjects of this scope's events.
    pub fn subject_prefix(&self) -> String {
        let EndpointId { namespace, component, name } = self.endpoint();
        let mut prefix = String::new();
        for (label, value) in [("namespace", namespace), (".component", component), (".endpoint", name)] {
            prefix.push_str(label);
            prefix.push('.');
            token(&mut prefix, value);
        }
        prefix
    }

    /// The NATS subject of a topic.
    pub fn subject(&self, topic: &str) -> String {
        let mut subject = self.subject_prefix();
        subject.push('.');
        token(&mut subject, topic);
        subject
    }
}

/// Appends one token of a subject: what has a meaning in subjects is escaped.
fn token(out: &mut String, text: &str) {
    percent_encode_into(out, text, |b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
}

/// How a publisher is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "config")]
pub enum EventTransport {
    /// A ZeroMQ PUB socket, `tcp://HOST:PORT`.
    Zmq {
        /// Address to connect to.
        endpoint: String,
    },
    /// Core NATS subjects.
    Nats {
        /// First part of the subject.
        subject_prefix: String,
    },
    /// Anything else, for instance a ZeroMQ broker; not spoken here.
    #[serde(other, skip_serializing)]
    Other,
}

/// A publisher of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventChannelRecord {
    /// What the events are about.
    pub scope: EventScope,
    /// Topic name; see [`Topic`] for those used here.
    pub topic: String,
    /// The publisher's id. On the wire this key is called `instance_id`.
    #[serde(rename = "instance_id")]
    pub publisher_id: u64,
    /// Where to subscribe.
    pub transport: EventTransport,
}

impl EventChannelRecord {
    const TYPE: &'static str = "EventChannel";

    /// Key in the event channels bucket.
    pub fn key(&self) -> RecordKey {
        RecordKey::event_channel(self.scope.endpoint(), &self.topic, self.publisher_id)
    }

    /// Encodes the record as stored.
    pub fn encode(&self) -> Vec<u8> {
        encode_tagged(Self::TYPE, self)
    }

    /// Decodes a stored record.
    ///
    /// # Errors
    /// [`RecordError::Shape`] (also for records of workers up to 1.3, which have no scope) or [`RecordError::Type`].
    pub fn decode(json: &[u8]) -> Result<Self, RecordError> {
        decode_tagged(Self::TYPE, json)
    }
}

/// The worker rank that a source speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceWorker {
    /// Worker id.
    pub worker_id: u64,
    /// Data-parallel rank, in the numbering of the worker's card.
    #[serde(default)]
    pub dp_rank: u32,
}

/// Body of an event source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSourceMetadata {
    /// Endpoint whose cache the events describe.
    pub kv_state_endpoint: EndpointId,
    /// Whose blocks they are.
    pub worker: SourceWorker,
    /// The publisher again.
    pub publisher_id: u64,
    /// Endpoint that answers recovery queries; absent when the worker has no local index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_target: Option<InstanceRecord>,
}

/// Says for which worker rank a publisher speaks, and where its history can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSourceRecord {
    /// What the events are about.
    pub scope: EventScope,
    /// Topic name.
    pub topic: String,
    /// The publisher, equal to that of the channel.
    pub publisher_id: u64,
    /// Worker and recovery endpoint.
    pub metadata: EventSourceMetadata,
}

impl EventSourceRecord {
    const TYPE: &'static str = "EventSource";

    /// Key in the event sources bucket.
    pub fn key(&self) -> RecordKey {
        RecordKey::event_source(self.scope.endpoint(), &self.topic, self.publisher_id)
    }

    /// Encodes the record as stored.
    pub fn encode(&self) -> Vec<u8> {
        encode_tagged(Self::TYPE, self)
    }

    /// Decodes a stored record.
    ///
    /// # Errors
    /// [`RecordError::Shape`] or [`RecordError::Type`].
    pub fn decode(json: &[u8]) -> Result<Self, RecordError> {
        decode_tagged(Self::TYPE, json)
    }
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    r#type: &'static str,
    #[serde(flatten)]
    record: &'a T,
}

#[derive(Deserialize)]
struct Tag {
    r#type: Option<String>,
}

pub(super) fn encode_tagged<T: Serialize>(tag: &'static str, record: &T) -> Vec<u8> {
    serde_json::to_vec(&Tagged { r#type: tag, record })
        .expect("records are plain structs with string keys, which always encode")
}

pub(super) fn decode_tagged<T: DeserializeOwned>(tag: &'static str, json: &[u8]) -> Result<T, RecordError> {
    let shape = |source| RecordError::Shape { what: tag, source };
    let found: Tag = serde_json::from_slice(json).map_err(shape)?;
    if let Some(got) = found.r#type.filter(|got| got != tag) {
        return Err(RecordError::Type { expected: tag, got });
    }
    serde_json::from_slice(json).map_err(shape)
}
