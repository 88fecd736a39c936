//! What several frontends of one pool tell each other, so that they act as one: bindings and running requests.
//!
//! A core that [replicates](crate::Core::replicate) leaves an [`Outbound`] for each change; what others say goes
//! to [`Core::apply_binding`](crate::Core::apply_binding) and
//! [`Core::apply_sequence`](crate::Core::apply_sequence). Delivery may lose and reorder: versions settle bindings,
//! expiry settles requests. How any of it travels is not known here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use roost_kv::{SequenceHash, WorkerId, WorkerRank};

use crate::BookingId;
pub(crate) use sequences::Sequences;

mod sequences;
#[cfg(test)]
mod tests;

/// Events kept until they are taken; later ones are dropped and counted.
const OUTBOX: usize = 4096;

/// One binding, newly made or in use again.
///
/// Between two bindings of a session the greater (`sequence`, `writer_id`) wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingEvent {
    /// The session.
    pub session_id: String,
    /// Where it lives.
    pub worker: WorkerId,
    /// The rank; `None` from a frontend that binds to workers only.
    pub dp_rank: Option<u32>,
    /// Logical time of the write: nanoseconds since the Unix epoch, pushed beyond everything seen before.
    pub sequence: u64,
    /// The frontend that made the binding. A frontend that merely uses it repeats this.
    pub writer_id: u64,
}

/// One step in the life of a request that a frontend placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceEvent {
    /// The request.
    pub request_id: String,
    /// Where it runs.
    pub rank: WorkerRank,
    /// What has happened.
    pub step: SequenceStep,
    /// Who tells: a frontend, or the worker itself.
    pub origin: u64,
}

/// What can happen to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceStep {
    /// It was placed.
    Begun(SequenceBegun),
    /// Its first token is there.
    PrefillCompleted,
    /// It has ended.
    Ended,
}

/// The load that a placed request brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceBegun {
    /// Chained hashes of the prompt's full blocks; `None` when the placement did not count them.
    pub blocks: Option<Arc<[SequenceHash]>>,
    /// Whether its prefill counts as load.
    pub counts_prefill: bool,
    /// Expected length of the answer, tokens.
    pub expected_output_tokens: Option<u32>,
    /// Prompt tokens that were not cached where it was placed.
    pub prefill_tokens: Option<u64>,
}

/// An event to be sent to the other frontends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// Where a session lives.
    Binding(BindingEvent),
    /// What a request does.
    Sequence(SequenceEvent),
}

/// Who this frontend is among its replicas, and what it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number; never 0, and no other frontend's.
    pub writer_id: u64,
    /// Nanoseconds since the Unix epoch at this moment: where versions begin.
    pub unix_nanos: u64,
    /// Tell where sessions live.
    pub bindings: bool,
    /// Tell what runs where.
    pub sequences: bool,
}

/// What became of a binding that another frontend told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The session was not known.
    Inserted,
    /// Known as told: its idle time begins anew.
    Refreshed,
    /// It lived elsewhere, by an older word.
    ReplacedNewer,
    /// What was known had expired.
    ReplacedExpired,
    /// What is known is newer.
    IgnoredConflict,
    /// Its first turn is being dispatched here: what comes of that counts.
    IgnoredInitializing,
    /// Its worker is not known yet: kept until it joins.
    Waiting,
    /// Affinity is off, the rank does not exist, or the table is full of running turns.
    IgnoredUnusable,
}

/// When a binding was written, and by whom. The greater one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) sequence: u64,
    pub(crate) writer: u64,
}

/// The logical clock of a table's writes.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    writer: u64,
    base: Option<(Instant, u64)>,
    last: u64,
}

/// The replicating half of a core.
#[derive(Debug, Default)]
pub(crate) struct Replica {
    identity: Option<Identity>,
    outbox: VecDeque<Outbound>,
    /// Events dropped since nobody took them, ever.
    pub(crate) dropped: u64,
    pub(crate) sequences: Sequences,
}

// === impl Clock ===

impl Clock {
    pub(crate) fn start(&mut self, now: Instant, identity: &Identity) {
        self.writer = identity.writer_id;
        self.base = Some((now, identity.unix_nanos));
    }

    /// Returns the version of a write that happens now.
    pub(crate) fn next(&mut self, now: Instant) -> Version {
        let wall = self.base.map_or(0, |(since, nanos)| {
            let passed = u64::try_from(now.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX);
            nanos.saturating_add(passed)
        });
        self.last = wall.max(self.last.saturating_add(1));
        Version { sequence: self.last, writer: self.writer }
    }

    /// What was written elsewhere lies in the past of every later write.
    pub(crate) fn saw(&mut self, version: Version) {
        self.last = self.last.max(version.sequence);
    }
}

// === impl Replica ===

impl Replica {
    pub(crate) fn start(&mut self, identity: Identity) {
        self.identity = Some(identity);
    }

    pub(crate) fn shares_bindings(&self) -> bool {
        self.identity.is_some_and(|identity| identity.bindings)
    }

    pub(crate) fn shares_sequences(&self) -> bool {
        self.identity.is_some_and(|identity| identity.sequences)
    }

    /// Tells whether an event is the echo of our own.
    pub(crate) fn is_own(&self, origin: u64) -> bool {
        self.identity.is_some_and(|identity| identity.writer_id == origin)
    }

    pub(crate) fn binding(&mut self, event: BindingEvent) {
        self.push(Outbound::Binding(event));
    }

    /// Tells of a request that was placed here under the name `request`.
    pub(crate) fn begun(
        &mut self,
        booking: BookingId,
        request: &str,
        rank: WorkerRank,
        begun: SequenceBegun,
    ) {
        let Some(identity) = self.identity.filter(|identity| identity.sequences) else { return };
        self.sequences.name(booking, request);
        let step = SequenceStep::Begun(begun);
        self.push(Outbound::Sequence(SequenceEvent {
            request_id: request.to_owned(),
            rank,
            step,
            origin: identity.writer_id,
        }));
    }

    /// Tells what became of a request that was told of before.
    pub(crate) fn step(&mut self, booking: BookingId, rank: WorkerRank, step: SequenceStep) {
        let Some(identity) = self.identity.filter(|identity| identity.sequences) else { return };
        let Some(request_id) = self.sequences.named(booking, step == SequenceStep::Ended) else { return };
        self.push(Outbound::Sequence(SequenceEvent { request_id, rank, step, origin: identity.writer_id }));
    }

    pub(crate) fn take(&mut self) -> VecDeque<Outbound> {
        std::mem::take(&mut self.outbox)
    }

    fn push(&mut self, event: Outbound) {
        match self.outbox.len() < OUTBOX {
            true => self.outbox.push_back(event),
            false => self.dropped += 1,
        }
    }
}
