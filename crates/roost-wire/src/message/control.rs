use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::DynamoError;
use crate::Codec;

/// The header half of a request: what is asked for and where the answer goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlMessage {
    /// Request id.
    pub id: String,
    /// `single_in`; `many_in` for request streams, which are not served.
    pub request_type: String,
    /// `many_out`.
    pub response_type: String,
    /// Codec of the body and of the answer; JSON when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_codec: Option<Codec>,
    /// Where the answer goes.
    pub connection_info: ConnectionInfo,
    /// What the client wants the worker to know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// A transport and what it needs to reach the frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// `tcp_server`, or `quic-response`, which is not served.
    pub transport: String,
    /// A JSON document as text; for `tcp_server` a [`ResponseAddress`].
    pub info: String,
}

/// Where a worker connects to with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseAddress {
    /// Address of the frontend's response listener.
    #[serde(deserialize_with = "address")]
    pub address: SocketAddr,
    /// Names the answer; random.
    pub subject: String,
    /// Equal to the request id.
    pub context: String,
    /// `response`.
    pub stream_type: String,
}

impl ControlMessage {
    /// The message for a request whose answer is a stream over TCP.
    #[must_use]
    pub fn new(id: &str, codec: Codec, address: SocketAddr, subject: &str) -> Self {
        let info = ResponseAddress {
            address,
            subject: subject.to_owned(),
            context: id.to_owned(),
            stream_type: "response".to_owned(),
        };
        Self {
            id: id.to_owned(),
            request_type: "single_in".to_owned(),
            response_type: "many_out".to_owned(),
            payload_codec: Some(codec),
            connection_info: ConnectionInfo {
                transport: ConnectionInfo::TCP.to_owned(),
                info: serde_json::to_string(&info).expect("addresses and strings are always JSON"),
            },
            metadata: BTreeMap::new(),
        }
    }

    /// Codec of the body and of the answer.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.payload_codec.unwrap_or_default()
    }
}

impl ConnectionInfo {
    /// The transport that we serve.
    pub const TCP: &'static str = "tcp_server";
    /// The transport that is refused as a mismatch.
    pub const QUIC: &'static str = "quic-response";

    /// Reads the address of a `tcp_server`.
    ///
    /// # Errors
    /// The text is no such document.
    pub fn tcp(&self) -> Result<ResponseAddress, serde_json::Error> {
        if self.transport != Self::TCP {
            return Err(serde_json::Error::custom("not a tcp_server"));
        }
        serde_json::from_str(&self.info)
    }
}

/// Reads `IP:PORT`. Frontends up to 1.5 write an IPv6 address without brackets: the port is behind the last colon.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    text.parse().or_else(|error| {
        let (ip, port) = text.rsplit_once(':').ok_or_else(|| D::Error::custom(&error))?;
        let ip: IpAddr = ip.parse().map_err(|_| D::Error::custom(&error))?;
        Ok(SocketAddr::new(ip, port.parse().map_err(|_| D::Error::custom(&error))?))
    })
}

/// First frame of a call-home connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakeMessage {
    /// The answer that the connection carries.
    pub subject: String,
    /// `response`.
    pub stream_type: String,
}

/// Second frame of a call-home connection: whether the handler accepted the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prologue {
    /// Internal text of a refusal; null on success.
    #[serde(default)]
    pub error: Option<String>,
    /// The refusal with its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed_error: Option<DynamoError>,
}

impl Prologue {
    /// A refusal.
    #[must_use]
    pub fn refused(error: DynamoError) -> Self {
        Self { error: Some(error.to_string()), typed_error: Some(error) }
    }
}

/// A control frame after the prologue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlSignal {
    /// From the frontend: end the answer after the current step.
    Stop,
    /// From the frontend: end the answer now.
    Kill,
    /// From the worker: nothing follows.
    Sentinel,
}
