//! Who is there and what they hold: discovery backends, model cards and the event plane as one ordered update stream.
//! Knows nothing of routing decisions or HTTP serving.
//!
//! A frontend reads [`Update`]s from [`Cluster::start`]. A worker keeps a [`Registration`], publishes through
//! [`events::Publisher`] and answers recovery queries from an [`events::JournalBuffer`].

mod announce;
mod cluster;
pub mod discovery;
pub mod events;
mod files;
mod nats;
pub mod record;
mod registration;
mod update;
mod worker;

pub use announce::{Announcement, Announcer, AnnouncerConfig, AnnouncerStats};
pub use cluster::{
    Cluster, ClusterConfig, ClusterHandle, ClusterStats, NamespaceFilter, RecoveryError, RecoverySource,
};
pub use discovery::{
    Discovery, DiscoveryError, EtcdConfig, EtcdDiscovery, FileDiscovery, FileDiscoveryConfig,
    MemoryDiscovery, Pem, TlsIdentity,
};
#[cfg(feature = "kubernetes")]
pub use discovery::{KubernetesConfig, KubernetesDiscovery, KubernetesMode, PodIdentity};
pub use files::{Attempt, CardFiles, CardFilesConfig, FilesError, LoadedFiles, TokenizerFile};
pub use nats::{NatsAuth, NatsClient, NatsConfig, NatsConfigError, NatsStats};
pub use record::{CardRecord, Codec, EndpointId, InstanceRecord, ModelCard, Target};
pub use registration::{Registration, WorkerRecords};
pub use roost_zmtp::EventSockets;
pub use update::Update;
pub use worker::{Role, WorkerInfo};
