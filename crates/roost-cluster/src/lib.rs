//! Who is there and what they hold: discovery backends, model cards and the event plane as one ordered update stream.
//! Knows nothing of routing decisions or HTTP serving.

pub mod discovery;
pub mod events;
pub mod record;
mod update;
mod worker;
mod zmtp;

pub use discovery::{Discovery, DiscoveryError, FileDiscovery, FileDiscoveryConfig, MemoryDiscovery};
pub use record::{CardRecord, Codec, EndpointId, InstanceRecord, ModelCard, Target};
pub use update::Update;
pub use worker::{Role, WorkerInfo};
