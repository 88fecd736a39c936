//! The envelope around every event, and the four frames in which ZeroMQ carries it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::EventError;
use super::bin::Bin;
use roost_zmtp::encode_message;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 5;

/// An event with its origin, payload still encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The publisher, at most 2^53 - 1.
    pub publisher_id: u64,
    /// The publisher's message counter, from 0.
    pub sequence: u64,
    /// When it was published, milliseconds since the Unix epoch by the publisher's clock.
    pub published_at_ms: u64,
    /// Topic name.
    pub topic: String,
    /// The payload, MessagePack.
    pub payload: Bytes,
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    publisher_id: u64,
    sequence: u64,
    #[serde(default)]
    published_at: u64,
    topic: &'a str,
    #[serde(borrow)]
    payload: Bin<'a>,
}

impl Envelope {
    /// Decodes a bare envelope, which is what a NATS message holds.
    ///
    /// # Errors
    /// [`EventError::Envelope`].
    pub fn decode(bytes: &Bytes) -> Result<Self, EventError> {
        let wire: Wire<'_> = rmp_serde::from_slice(bytes).map_err(|e| EventError::Envelope(e.to_string()))?;
        Ok(Self {
            publisher_id: wire.publisher_id,
            sequence: wire.sequence,
            published_at_ms: wire.published_at,
            topic: wire.topic.to_owned(),
            payload: bytes.slice_ref(wire.payload.0),
        })
    }

    /// Encodes the bare envelope.
    pub fn encode(&self) -> Vec<u8> {
        let wire = Wire {
            publisher_id: self.publisher_id,
            sequence: self.sequence,
            published_at: self.published_at_ms,
            topic: &self.topic,
            payload: Bin(&self.payload),
        };
        rmp_serde::to_vec_named(&wire).expect("plain structs always encode")
    }

    /// Decodes the frames of one ZeroMQ message and checks that they agree with the envelope.
    ///
    /// # Errors
    /// [`EventError::Envelope`].
    pub fn from_frames(frames: &[Bytes]) -> Result<Self, EventError> {
        let wrong = |what: &str| EventError::Envelope(what.to_owned());
        let [topic, publisher, sequence, body] = frames else {
            return Err(EventError::Envelope(format!("{} frames instead of 4", frames.len())));
        };
        if body.len() < HEADER_BYTES || body[0] != VERSION {
            return Err(wrong("unknown version"));
        }
        let length = u32::from_be_bytes(body[1..HEADER_BYTES].try_into().expect("the slice has four bytes"));
        if usize::try_from(length) != Ok(body.len() - HEADER_BYTES) {
            return Err(wrong("length does not agree with the frame"));
        }
        let envelope = Self::decode(&body.slice(HEADER_BYTES..))?;
        if publisher[..] != envelope.publisher_id.to_be_bytes()
            || sequence[..] != envelope.sequence.to_be_bytes()
            || topic[..] != *envelope.topic.as_bytes()
        {
            return Err(EventError::Identity("its frames do not agree with its envelope".to_owned()));
        }
        Ok(envelope)
    }

    /// The whole ZeroMQ message as it goes over the wire.
    pub(crate) fn to_message(&self) -> Bytes {
        let envelope = self.encode();
        let mut body = Vec::with_capacity(HEADER_BYTES + envelope.len());
        body.push(VERSION);
        let length = u32::try_from(envelope.len()).expect("batches are limited to far less than 4 GiB");
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&envelope);
        encode_message(&[
            self.topic.as_bytes(),
            &self.publisher_id.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &body,
        ])
    }
}
