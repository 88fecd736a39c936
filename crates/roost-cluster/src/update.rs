//! The one ordered stream that a frontend reads.

use std::sync::Arc;

use roost_kv::{KvEvent, WorkerId, WorkerRank};

use crate::events::{BindingEvent, SequenceEvent};
use crate::record::EndpointId;
use crate::worker::WorkerInfo;

/// One change of the cluster.
///
/// For each worker: `Joined` comes first, then any number of `Changed`, `KvReset`, `Kv`, `KvSilent` and `Load`, then `Left`, and
/// nothing after it. Every update of a worker carries the epoch of its join.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A worker can be used: its card and its request endpoint are both there.
    Joined(Arc<WorkerInfo>),
    /// A joined worker has another card or address detail; ranks, target and epoch are the same.
    Changed(Arc<WorkerInfo>),
    /// A worker is gone: its blocks, load and bindings go with it.
    Left {
        /// The worker.
        worker: WorkerId,
        /// Its join.
        epoch: u64,
        /// Its endpoint.
        endpoint: EndpointId,
    },
    /// Forget the rank's blocks: a dump of the whole state follows, or its events have ended.
    KvReset {
        /// The rank.
        rank: WorkerRank,
        /// The worker's join.
        epoch: u64,
    },
    /// Changes of a rank's cache, in the engine's order.
    Kv {
        /// The rank.
        rank: WorkerRank,
        /// The worker's join.
        epoch: u64,
        /// The events. Ids of events that come from a dump are synthetic.
        events: Vec<KvEvent>,
    },
    /// A worker's KV events do not come although they ought to, or come again. What it holds is known again from then on.
    KvSilent {
        /// The worker.
        worker: WorkerId,
        /// Its join.
        epoch: u64,
        /// Whether they are missing.
        silent: bool,
    },
    /// A rank's load as the worker reports it; what it does not say is `None`.
    Load {
        /// The rank.
        rank: WorkerRank,
        /// The worker's join.
        epoch: u64,
        /// KV blocks held by running requests.
        active_decode_blocks: Option<u64>,
        /// Prompt tokens that wait for or are in prefill.
        active_prefill_tokens: Option<u64>,
        /// KV blocks in use, cached ones included.
        kv_used_blocks: Option<u64>,
    },
    /// Requests that another frontend has placed or that their worker reports on. Says nothing about the worker itself
    /// and may name one that is not known.
    Sequences {
        /// Endpoint of the workers concerned.
        scope: EndpointId,
        /// Who tells.
        publisher: u64,
        /// The steps, in the publisher's order.
        events: Vec<SequenceEvent>,
    },
    /// Who told of requests does not any more: nobody will say how those that run end.
    SequencesEnded {
        /// Endpoint of the workers concerned.
        scope: EndpointId,
        /// Who told.
        publisher: u64,
    },
    /// Another frontend has bound a session or used its binding. May name a worker that is not known.
    Binding {
        /// Endpoint of the workers concerned.
        scope: EndpointId,
        /// The binding.
        event: BindingEvent,
    },
    /// Everything that the store held at the start has been delivered. Comes once.
    Synced,
}

impl Update {
    /// The worker whose state this is, if one's is.
    pub fn worker(&self) -> Option<WorkerId> {
        match self {
            Update::Joined(info) | Update::Changed(info) => Some(info.worker),
            Update::Left { worker, .. } | Update::KvSilent { worker, .. } => Some(*worker),
            Update::KvReset { rank, .. } | Update::Kv { rank, .. } | Update::Load { rank, .. } => {
                Some(rank.worker)
            }
            Update::Sequences { .. }
            | Update::SequencesEnded { .. }
            | Update::Binding { .. }
            | Update::Synced => None,
        }
    }
}
