//! What other frontends do, and what they are told of what happens here.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use roost_kv::{WorkerId, WorkerRank};

use super::Core;
use crate::affinity::Import;
use crate::fleet::Member;
use crate::load::{Blocks, Demand, Owner};
use crate::policy::Preference;
use crate::replica::{
    Applied, BindingEvent, Identity, Outbound, SequenceBegun, SequenceEvent, SequenceStep, Version,
};
use crate::{BookingId, Request, SavedBinding, Sessions};

impl Core {
    /// From now on this core tells others what `identity` says; see [`Core::take_outbound`].
    pub fn replicate(&mut self, now: Instant, identity: Identity) {
        if let Some(table) = &mut self.affinity {
            table.clock.start(now, &identity);
        }
        self.replica.start(identity);
    }

    /// Takes the events that other frontends are to get, in order. At most 4096 are kept between two calls.
    pub fn take_outbound(&mut self) -> VecDeque<Outbound> {
        self.replica.take()
    }

    /// Takes over where another frontend has bound a session, unless what is known here is newer.
    ///
    /// A binding to a worker that has not joined waits for it.
    pub fn apply_binding(&mut self, now: Instant, event: &BindingEvent) -> Applied {
        let applied = self.merge_binding(now, event);
        match applied {
            Applied::Inserted | Applied::ReplacedNewer | Applied::ReplacedExpired | Applied::Waiting => {
                self.stats.bindings_imported += 1;
            }
            Applied::Refreshed => self.stats.bindings_confirmed += 1,
            Applied::IgnoredConflict | Applied::IgnoredInitializing | Applied::IgnoredUnusable => {
                self.stats.bindings_ignored += 1;
            }
        }
        applied
    }

    fn merge_binding(&mut self, now: Instant, event: &BindingEvent) -> Applied {
        let version = Version { sequence: event.sequence, writer: event.writer_id };
        let Some(table) = &mut self.affinity else { return Applied::IgnoredUnusable };
        table.clock.saw(version);
        let Some(member) = self.fleet.members.get(&event.worker) else {
            let Some(dp_rank) = event.dp_rank else { return Applied::IgnoredUnusable };
            let binding = SavedBinding {
                session: event.session_id.clone(),
                rank: WorkerRank::new(event.worker, dp_rank),
                idle: Duration::ZERO,
                promised_tokens: 0,
                sequence: event.sequence,
                writer_id: event.writer_id,
            };
            return match self.waiting.keep(now, binding) {
                true => Applied::Waiting,
                false => Applied::IgnoredUnusable,
            };
        };
        let target = match event.dp_rank {
            Some(dp_rank) if member.slot(dp_rank).is_some() => WorkerRank::new(event.worker, dp_rank),
            Some(_) => return Applied::IgnoredUnusable,
            None => some_rank(member, &event.session_id),
        };
        let import = Import {
            id: &event.session_id,
            target,
            any_rank: event.dp_rank.is_none(),
            version,
            idle: Duration::ZERO,
            promised_tokens: None,
        };
        table.import(now, &import)
    }

    /// Takes bindings over that a frontend had before its restart. Those whose worker has not joined wait for it;
    /// newer bindings win.
    pub fn restore(&mut self, now: Instant, bindings: Vec<SavedBinding>) {
        for binding in bindings {
            if self.fleet.members.contains_key(&binding.rank.worker) {
                self.restore_one(now, &binding);
            } else if self.affinity.is_some() && self.waiting.keep(now, binding) {
                self.stats.bindings_imported += 1;
            }
        }
    }

    /// Returns up to `limit` bindings for [`Core::restore`], and where to go on: 0 is the beginning. The last part
    /// holds those too that wait for their worker.
    pub fn save(&self, now: Instant, from: u32, limit: usize) -> (Vec<SavedBinding>, Option<u32>) {
        let Some(table) = &self.affinity else { return (Vec::new(), None) };
        let (mut saved, next) = table.save(now, from, limit);
        if next.is_none() {
            saved.extend(self.waiting.all(now));
        }
        (saved, next)
    }

    /// Returns the bound sessions with `part` in their names among `count` places of the table from `from` on, those
    /// with the longest context, at most `limit`; and the number to go on with, if any.
    pub fn sessions(
        &self,
        now: Instant,
        part: &str,
        limit: usize,
        (from, count): (u32, usize),
    ) -> (Sessions, Option<u32>) {
        match &self.affinity {
            Some(table) => table.sessions(now, part, limit, (from, count)),
            None => (Sessions::default(), None),
        }
    }

    /// Takes over what another frontend, or a worker, says of a request that was not placed here. `teller` is the
    /// publisher of it, see [`Core::teller_left`].
    pub fn apply_sequence(&mut self, now: Instant, event: &SequenceEvent, teller: u64) {
        if self.replica.is_own(event.origin) {
            return;
        }
        self.stats.sequences_applied += 1;
        match &event.step {
            SequenceStep::Begun(begun) => self.begin_remote(now, event, begun, teller),
            SequenceStep::PrefillCompleted => {
                if let Some(booking) = self.replica.sequences.booking(&event.request_id) {
                    self.load.prefill_done(booking);
                }
            }
            SequenceStep::Ended => {
                if let Some(booking) = self.replica.sequences.end(&event.request_id) {
                    self.give_back(now, booking);
                }
            }
        }
        self.call_waiting(now);
    }

    /// A publisher is gone: the requests that it told of are not counted any more, since nobody will say how they end.
    pub fn teller_left(&mut self, now: Instant, teller: u64) {
        for booking in self.replica.sequences.forget(teller) {
            self.give_back(now, booking);
        }
        self.call_waiting(now);
    }

    fn begin_remote(&mut self, now: Instant, event: &SequenceEvent, begun: &SequenceBegun, teller: u64) {
        if !self.replica.sequences.has_room() {
            return;
        }
        let Some((_, slot)) = self.fleet.get(event.rank) else { return };
        let counts_prefill = begun.counts_prefill && self.config.track_prefill_tokens;
        let prefill_tokens = begun.prefill_tokens.filter(|_| counts_prefill).unwrap_or(0);
        let blocks = match (&begun.blocks, self.config.track_active_blocks, self.config.assume_kv_reuse) {
            (Some(blocks), true, true) => Blocks::Shared(blocks),
            (Some(blocks), true, false) => Blocks::Private(blocks.len() as u64),
            _ => Blocks::Private(0),
        };
        let booking = self.load.book(&Demand {
            rank: event.rank,
            slot,
            isl_tokens: 0,
            block_size: 1,
            prefill_tokens,
            expected_output_tokens: begun.expected_output_tokens,
            blocks,
            probe: false,
            owner: Owner::Replica,
        });
        if let Some(before) = self.replica.sequences.book(&event.request_id, booking, teller) {
            self.give_back(now, before);
        }
    }

    /// Tells the others of a placement.
    pub(super) fn announce(
        &mut self,
        request: &Request<'_>,
        rank: WorkerRank,
        cached_tokens: u32,
        booking: BookingId,
    ) {
        if !self.replica.shares_sequences() {
            return;
        }
        let Some(id) = request.id else { return };
        let counts_prefill = self.config.track_prefill_tokens;
        let begun = SequenceBegun {
            blocks: self.config.track_active_blocks.then(|| request.sequence.clone()),
            counts_prefill,
            expected_output_tokens: request.expected_output_tokens,
            prefill_tokens: counts_prefill
                .then(|| u64::from(request.isl_tokens.saturating_sub(cached_tokens))),
        };
        self.replica.begun(booking, id, rank, begun);
    }

    /// Takes over the bindings that waited for a worker.
    pub(super) fn welcome(&mut self, now: Instant, worker: WorkerId) {
        for binding in self.waiting.take(now, worker) {
            self.restore_one(now, &binding);
        }
    }

    pub(super) fn sweep_replica(&mut self, now: Instant) {
        let ttl = self.config.affinity.ttl.unwrap_or_default();
        self.waiting.expire(now, ttl);
        let load = &self.load;
        self.replica.sequences.retain(|booking| load.holds(booking));
    }

    fn restore_one(&mut self, now: Instant, binding: &SavedBinding) {
        let Some(table) = &mut self.affinity else { return };
        if self.fleet.get(binding.rank).is_none() {
            return;
        }
        let import = Import {
            id: &binding.session,
            target: binding.rank,
            any_rank: false,
            version: Version { sequence: binding.sequence, writer: binding.writer_id },
            idle: binding.idle,
            promised_tokens: Some(binding.promised_tokens).filter(|tokens| *tokens > 0),
        };
        if matches!(
            table.import(now, &import),
            Applied::Inserted | Applied::ReplacedNewer | Applied::ReplacedExpired
        ) {
            self.stats.bindings_imported += 1;
        }
    }
}

/// Returns the rank that every frontend takes for a session that another one bound to the worker alone.
fn some_rank(member: &Member, session: &str) -> WorkerRank {
    let preference = Preference::of(session);
    let best = member.ranks().map(|(rank, _)| rank).max_by_key(|rank| preference.weight(*rank));
    best.unwrap_or_else(|| WorkerRank::new(member.worker.id, member.worker.start_rank))
}
