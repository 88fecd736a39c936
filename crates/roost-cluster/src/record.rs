//! The records that workers keep in discovery: instances, model cards, event channels and event sources.
//!
//! A record is one JSON document under a key of one of four buckets. Ids are 64-bit and exact: nothing here ever
//! passes through a double. Unknown keys of a card are kept, unknown keys of every other record are ignored.

mod card;
mod endpoint;
mod event;
mod key;
mod mdcsum;
mod runtime;

pub use card::{CardRecord, FileRef, ModelCard, ModelFile, ModelInput, ModelType, WorkerType};
pub use endpoint::{Codec, EndpointId, InstanceRecord, Target, TransportAddress, instance_path};
pub use event::{
    EventChannelRecord, EventScope, EventSourceMetadata, EventSourceRecord, EventTransport, SourceWorker,
    Topic,
};
pub use key::{Bucket, RecordKey};
pub(crate) use key::{percent_decode, percent_encode_into};
pub use runtime::{BootstrapEndpoint, RuntimeConfig, TransferConstraint};

/// Why a record could not be used. The record's key is added by whoever logs it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or JSON of another shape.
    #[error("not a {what} record: {source}")]
    Shape {
        /// The record kind that was expected.
        what: &'static str,
        /// What the decoder found.
        source: serde_json::Error,
    },
    /// The `type` tag names another kind than the bucket holds.
    #[error("record type is {got:?}, the bucket holds {expected:?}")]
    Type {
        /// Tag of the bucket.
        expected: &'static str,
        /// Tag found.
        got: String,
    },
    /// The instance cannot be called over TCP.
    #[error("instance {id:x} has no usable tcp address: {reason}")]
    Address {
        /// The instance.
        id: u64,
        /// What is wrong with its address.
        reason: String,
    },
    /// The card lacks what every use needs.
    #[error("card of instance {id:x}: {reason}")]
    Card {
        /// The instance.
        id: u64,
        /// What is missing.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
