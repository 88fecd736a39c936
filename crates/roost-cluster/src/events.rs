//! The event plane: what workers publish about their caches and their load, and how lost events are made good.
//!
//! Delivery is lossy by design. Every rank numbers its events; [`Cursor`] notices what is missing, and a query to the
//! worker fills the hole or replaces the whole state ([`KvQuery`], [`KvAnswer`]).

mod bin;
mod binding;
mod cursor;
mod envelope;
mod feed;
mod journal;
mod kv;
mod load;
mod meter;
mod publisher;
mod query;
mod sequence;
mod subscription;

pub use binding::BindingEvent;
pub use cursor::{Cursor, Step};
pub use envelope::Envelope;
pub use journal::JournalBuffer;
pub use kv::{decode_kv_events, encode_kv_events};
pub use load::Load;
pub use publisher::{Publisher, PublisherConfig, PublisherStats, random_publisher_id};
pub use query::{KvAnswer, KvQuery};
pub use sequence::{SequenceBegun, SequenceEvent, SequenceStep};

pub(crate) use feed::{Feed, FeedStats, Need};
pub(crate) use meter::Meter;
pub use meter::SocketStats;
pub(crate) use subscription::{Origin, Received, Signal, Subscription};

/// Why something that arrived on the event plane could not be used.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The message is not one of the event plane.
    #[error("not an event message: {0}")]
    Envelope(String),
    /// The message is another's than it ought to be.
    #[error("event message of somebody else: {0}")]
    Identity(String),
    /// The envelope is fine, its payload is not.
    #[error("{what} cannot be decoded: {reason}")]
    Payload {
        /// What was expected.
        what: &'static str,
        /// What the decoder found.
        reason: String,
    },
}

impl EventError {
    fn payload(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Self {
        move |error| EventError::Payload { what, reason: error.to_string() }
    }
}

#[cfg(test)]
pub(crate) mod tests;
