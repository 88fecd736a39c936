//! What running requests use on each rank: blocks, prompt tokens still to be computed, requests.
//!
//! A booking is made with the decision and given back once; giving back again has no effect. Blocks that
//! several requests of a rank share count once.

use std::sync::Arc;

use roost_kv::{SequenceHash, WorkerRank};

use crate::affinity::Hold;
use prefixes::Prefixes;

mod prefixes;
#[cfg(test)]
mod tests;

/// Dense number of a rank.
pub(crate) type RankSlot = u32;

/// Handle of one booking. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookingId {
    slot: u32,
    generation: u32,
}

/// The bookings of all ranks.
#[derive(Debug, Default)]
pub(crate) struct Load {
    prefixes: Prefixes,
    ranks: Vec<RankUsage>,
    bookings: Vec<Slot>,
    free: Vec<u32>,
}

/// Totals of one rank.
#[derive(Clone, Copy, Debug, Default)]
struct RankUsage {
    /// Distinct prompt blocks.
    shared_blocks: u64,
    /// Blocks of requests that share nothing, and of generated tokens.
    private_blocks: u64,
    /// Blocks that need not be counted because their request is nearly done.
    discount: f64,
    prefill_tokens: u64,
    requests: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    booking: Option<Booking>,
}

/// What one request uses.
#[derive(Debug)]
pub(crate) struct Booking {
    pub(crate) rank: WorkerRank,
    slot: RankSlot,
    /// Prompt length, tokens.
    pub(crate) isl_tokens: u32,
    pub(crate) block_size: u32,
    pub(crate) expected_output_tokens: Option<u32>,
    pub(crate) output_tokens: u64,
    /// The session's hold on its binding, if it has one.
    pub(crate) hold: Option<Hold>,
    pub(crate) committed: bool,
    /// Whether the request tests a worker that failed before.
    pub(crate) probe: bool,
    owner: Owner,
    /// Signs of life since the last sweep.
    touched: bool,
    prefill_tokens: u64,
    /// Where the prompt ends among the shared prefixes.
    path: Option<u32>,
    private_blocks: u64,
    output_blocks: u64,
    discount: f64,
}

/// What a request will use.
#[derive(Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) rank: WorkerRank,
    pub(crate) slot: RankSlot,
    pub(crate) isl_tokens: u32,
    pub(crate) block_size: u32,
    pub(crate) prefill_tokens: u64,
    pub(crate) expected_output_tokens: Option<u32>,
    pub(crate) blocks: Blocks<'a>,
    /// Whether the request tests a worker that failed before.
    pub(crate) probe: bool,
    pub(crate) owner: Owner,
}

/// Who gives a booking back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The request itself, when it ends, however long it takes.
    Request,
    /// Another frontend, which may be gone: it needs signs of life.
    Replica,
}

/// The prompt blocks of a [`Demand`].
#[derive(Debug)]
pub(crate) enum Blocks<'a> {
    /// Equal blocks of one rank count once.
    Shared(&'a Arc<[SequenceHash]>),
    /// Every block counts.
    Private(u64),
}

/// The state of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) active_blocks: u64,
    pub(crate) prefill_tokens: u64,
    pub(crate) requests: u32,
}

// === impl Load ===

impl Load {
    /// Makes room for ranks up to `slot`.
    pub(crate) fn ensure_rank(&mut self, slot: RankSlot) {
        let needed = slot as usize + 1;
        if self.ranks.len() < needed {
            self.ranks.resize(needed, RankUsage::default());
        }
    }

    /// Returns the state of a rank.
    pub(crate) fn usage(&self, rank: RankSlot) -> Usage {
        let usage = &self.ranks[rank as usize];
        let blocks = usage.shared_blocks + usage.private_blocks;
        Usage {
            active_blocks: match usage.discount == 0.0 {
                true => blocks,
                false => (blocks as f64 - usage.discount).round().max(0.0) as u64,
            },
            prefill_tokens: usage.prefill_tokens,
            requests: usage.requests,
        }
    }

    /// Writes for each rank how many leading blocks of `prompt` its running requests use.
    pub(crate) fn shared_with(&self, prompt: &[SequenceHash], shared: &mut Vec<u32>) {
        shared.clear();
        shared.resize(self.ranks.len(), 0);
        self.prefixes.shared_with(prompt, shared);
    }

    /// Books a request.
    pub(crate) fn book(&mut self, demand: &Demand<'_>) -> BookingId {
        let usage = &mut self.ranks[demand.slot as usize];
        let (mut path, mut private_blocks) = (None, 0);
        match demand.blocks {
            Blocks::Shared(prompt) => {
                let (end, new) = self.prefixes.insert(demand.slot, prompt);
                path = end;
                usage.shared_blocks += u64::from(new);
            }
            Blocks::Private(blocks) => private_blocks = blocks,
        }
        usage.private_blocks += private_blocks;
        usage.prefill_tokens += demand.prefill_tokens;
        usage.requests += 1;
        let booking = Booking {
            rank: demand.rank,
            slot: demand.slot,
            isl_tokens: demand.isl_tokens,
            block_size: demand.block_size,
            expected_output_tokens: demand.expected_output_tokens,
            output_tokens: 0,
            hold: None,
            committed: false,
            probe: demand.probe,
            owner: demand.owner,
            touched: true,
            prefill_tokens: demand.prefill_tokens,
            path,
            private_blocks,
            output_blocks: 0,
            discount: 0.0,
        };
        self.keep(booking)
    }

    /// Returns a booking and counts this as a sign of life; `None` if it was given back.
    pub(crate) fn touch(&mut self, id: BookingId) -> Option<&mut Booking> {
        let slot = self.bookings.get_mut(id.slot as usize)?;
        let booking = slot.booking.as_mut().filter(|_| slot.generation == id.generation)?;
        booking.touched = true;
        Some(booking)
    }

    /// The prompt has been computed.
    pub(crate) fn prefill_done(&mut self, id: BookingId) {
        let Some(booking) = self.touch(id) else { return };
        let (slot, tokens) = (booking.slot, std::mem::take(&mut booking.prefill_tokens));
        self.ranks[slot as usize].prefill_tokens -= tokens;
    }

    /// Adds `blocks` of generated tokens. With a `fraction`, the blocks that only this request uses count
    /// for that share from now on.
    pub(crate) fn output_blocks(&mut self, id: BookingId, blocks: u64, fraction: Option<f64>) {
        let Some(booking) = self.touch(id) else { return };
        booking.output_blocks += blocks;
        let (slot, path) = (booking.slot, booking.path);
        let own = booking.output_blocks + booking.private_blocks;
        let mut change = 0.0;
        if let Some(fraction) = fraction {
            let unshared = path.map_or(0, |path| self.prefixes.unshared(slot, path));
            let discount = (own + u64::from(unshared)) as f64 * (1.0 - fraction);
            if let Some(booking) = self.touch(id) {
                change = discount - std::mem::replace(&mut booking.discount, discount);
            }
        }
        let usage = &mut self.ranks[slot as usize];
        usage.private_blocks += blocks;
        usage.discount += change;
    }

    /// Gives a booking back. `None` if it was given back before.
    pub(crate) fn release(&mut self, id: BookingId) -> Option<Booking> {
        let slot = self.bookings.get_mut(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let booking = slot.booking.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        let usage = &mut self.ranks[booking.slot as usize];
        if let Some(path) = booking.path {
            usage.shared_blocks -= u64::from(self.prefixes.remove(booking.slot, path));
        }
        usage.private_blocks -= booking.private_blocks + booking.output_blocks;
        usage.prefill_tokens -= booking.prefill_tokens;
        usage.requests -= 1;
        usage.discount -= booking.discount;
        if usage.requests == 0 {
            // Sums of fractions need not cancel out exactly.
            usage.discount = 0.0;
        }
        Some(booking)
    }

    /// Starts a new sweep and returns the bookings of other frontends that showed no sign of life since the last one.
    pub(crate) fn sweep(&mut self) -> Vec<BookingId> {
        let mut quiet = Vec::new();
        for (index, slot) in (0_u32..).zip(&mut self.bookings) {
            let Some(booking) = &mut slot.booking else { continue };
            if !std::mem::take(&mut booking.touched) && booking.owner == Owner::Replica {
                quiet.push(BookingId { slot: index, generation: slot.generation });
            }
        }
        quiet
    }

    /// Returns the bookings on a rank.
    pub(crate) fn on_rank(&self, rank: WorkerRank) -> Vec<BookingId> {
        let slots = (0_u32..).zip(&self.bookings);
        let here =
            slots.filter(|(_, slot)| slot.booking.as_ref().is_some_and(|booking| booking.rank == rank));
        here.map(|(slot, held)| BookingId { slot, generation: held.generation }).collect()
    }

    /// Tells whether a booking has not been given back.
    pub(crate) fn holds(&self, id: BookingId) -> bool {
        let slot = self.bookings.get(id.slot as usize);
        slot.is_some_and(|slot| slot.generation == id.generation && slot.booking.is_some())
    }

    /// Returns the number of running requests.
    pub(crate) fn len(&self) -> usize {
        self.bookings.len() - self.free.len()
    }

    fn keep(&mut self, booking: Booking) -> BookingId {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.bookings[slot as usize];
            entry.booking = Some(booking);
            return BookingId { slot, generation: entry.generation };
        }
        let slot = u32::try_from(self.bookings.len()).expect("fewer than 2^32 requests run at once");
        self.bookings.push(Slot { generation: 0, booking: Some(booking) });
        BookingId { slot, generation: 0 }
    }
}
