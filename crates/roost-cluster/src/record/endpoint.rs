//! Endpoint instances: who serves what, and at which address.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::RecordError;
use super::key::RecordKey;

/// Name of an endpoint: `dyn://namespace.component.name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EndpointId {
    /// Namespace, for instance `dynamo`.
    pub namespace: String,
    /// Component, for instance `backend`.
    pub component: String,
    /// Endpoint name, for instance `generate`.
    pub name: String,
}

impl EndpointId {
    /// Makes an id from its three parts.
    pub fn new(namespace: impl Into<String>, component: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), component: component.into(), name: name.into() }
    }

    pub(crate) fn joined(&self, separator: char) -> String {
        format!("{}{separator}{}{separator}{}", self.namespace, self.component, self.name)
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dyn://{}.{}.{}", self.namespace, self.component, self.name)
    }
}

/// Encoding of request and response bodies of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// JSON; what a record without a codec means.
    #[default]
    Json,
    /// MessagePack with string keys; what workers use by default.
    Msgpack,
}

impl Codec {
    /// The name used in records and control messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Codec::Json => "json",
            Codec::Msgpack => "msgpack",
        }
    }
}

/// `transport` of an instance record: a map of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportAddress {
    /// `IP:PORT/PATH` of a TCP request plane.
    Tcp(String),
    /// Subject of a NATS request plane, which is not spoken here.
    NatsTcp(String),
}

/// One endpoint of one worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRecord {
    /// Component.
    pub component: String,
    /// Endpoint name.
    pub endpoint: String,
    /// Namespace.
    pub namespace: String,
    /// The worker process, shared by all its endpoints.
    pub instance_id: u64,
    /// Where to send requests.
    pub transport: TransportAddress,
    /// `cuda` or `cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_type: Option<String>,
    /// Body codec; absent means JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_plane_codec: Option<Codec>,
}

impl InstanceRecord {
    const TYPE: &'static str = "Endpoint";

    /// The endpoint that this is an instance of.
    pub fn endpoint_id(&self) -> EndpointId {
        EndpointId::new(&self.namespace, &self.component, &self.endpoint)
    }

    /// Key in the instances bucket.
    pub fn key(&self) -> RecordKey {
        RecordKey::instance(&self.endpoint_id(), self.instance_id)
    }

    /// The call target behind `transport`.
    ///
    /// # Errors
    /// [`RecordError::Address`] when the transport is not TCP or the address is not `IP:PORT/PATH`.
    pub fn target(&self) -> Result<Target, RecordError> {
        let fail = |reason: String| RecordError::Address { id: self.instance_id, reason };
        let TransportAddress::Tcp(text) = &self.transport else {
            return Err(fail("the transport is not tcp".to_owned()));
        };
        let plain = text.strip_prefix("tcp://").unwrap_or(text);
        let (address, path) =
            plain.split_once('/').ok_or_else(|| fail(format!("{text:?} has no endpoint path")))?;
        let address: SocketAddr =
            address.parse().map_err(|_| fail(format!("{address:?} is not an IP address with a port")))?;
        Ok(Target { address, path: path.to_owned(), codec: self.request_plane_codec.unwrap_or_default() })
    }

    /// Encodes the record as stored.
    pub fn encode(&self) -> Vec<u8> {
        super::event::encode_tagged(Self::TYPE, self)
    }

    /// Decodes a stored record.
    ///
    /// # Errors
    /// [`RecordError::Shape`] or [`RecordError::Type`].
    pub fn decode(json: &[u8]) -> Result<Self, RecordError> {
        super::event::decode_tagged(Self::TYPE, json)
    }
}

/// Where one endpoint instance takes requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The worker's request listener.
    pub address: SocketAddr,
    /// The dispatch key on that listener; compared byte for byte.
    pub path: String,
    /// Body codec of this instance.
    pub codec: Codec,
}

/// The path part of an instance's address: `{id:x}/{namespace}/{component}/{endpoint}`, with `%` and `/` escaped.
pub fn instance_path(endpoint: &EndpointId, instance_id: u64) -> String {
    let escape = |segment: &str| segment.replace('%', "%25").replace('/', "%2F");
    format!(
        "{instance_id:x}/{}/{}/{}",
        escape(&endpoint.namespace),
        escape(&endpoint.component),
        escape(&endpoint.name)
    )
}
