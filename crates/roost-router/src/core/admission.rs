//! Whether a request is placed at once or waits for room.

use std::sync::Arc;
use std::time::Instant;

use roost_kv::Overlap;

use super::Core;
use crate::busy::UNKNOWN_MAX_BATCHED_TOKENS;
use crate::fleet::Member;
use crate::load::RankSlot;
use crate::queue::{Claim, Lane, Standing};
use crate::{AffinityMode, Constraints, Pin, Placement, RebindReason, Rejection, Request, TicketId};

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Submitted {
    /// It was placed.
    Placed(Placement),
    /// It waits; to be submitted again, with the ticket, when [`Core::is_called`].
    Waits(TicketId),
}

/// Whether the ranks of a lane can take more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// One has room, or none is there to wait for.
    Open,
    /// All have enough prefill to do.
    Filled,
    /// All are over a busy threshold: waiting is not offered.
    Overloaded,
}

impl Core {
    /// Places a request, or lets it wait until a rank it may use has room; see [`QueueConfig`].
    ///
    /// `ticket` is what an earlier call for the same request returned. It is used up by a placement and by a
    /// rejection. A retry (a request that excludes workers) never waits: it has had its turn.
    ///
    /// [`QueueConfig`]: crate::QueueConfig
    pub fn submit(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        ticket: Option<TicketId>,
    ) -> Result<Submitted, Rejection> {
        let ticket = match ticket {
            Some(ticket) => ticket,
            None => match self.enter(now, request)? {
                Some(ticket) => ticket,
                None => return self.place(now, request).map(Submitted::Placed),
            },
        };
        match self.queue.standing(ticket) {
            Standing::Waits => return Ok(Submitted::Waits(ticket)),
            Standing::Turn => {}
            Standing::Late => {
                self.queue.leave(ticket);
                return Err(Rejection::WaitedTooLong);
            }
        }
        let placed = self.place(now, request);
        self.queue.leave(ticket);
        self.call_waiting(now);
        placed.map(Submitted::Placed)
    }

    /// Returns why a request of `session` (if any) and `pin` would be refused for want of room, whatever its prompt;
    /// `None` if it depends on the prompt, or there is room.
    pub fn full_for(&self, now: Instant, session: Option<&str>, pin: Pin) -> Option<Rejection> {
        let (sequence, overlap) = (Arc::from([]), Overlap::default());
        let request = Request { session, pin, ..Request::new(0, 1, &sequence, &overlap) };
        let room = self.room(now, &self.lane(now, &request));
        if room == Room::Overloaded {
            let pinned = pin.worker.map(|worker| Rejection::PinOverloaded { worker });
            return Some(pinned.unwrap_or(Rejection::Overloaded));
        }
        let waits = self.config.queue.threshold.is_some() && (room == Room::Filled || !self.queue.is_idle());
        (waits && self.queue.is_full()).then(|| Rejection::QueueFull { limit: self.queue.capacity() })
    }

    /// Counts a request that was refused on the word of [`Core::full_for`].
    pub fn turned_away(&mut self, rejection: Rejection) {
        self.stats.received += 1;
        match rejection {
            Rejection::QueueFull { .. } => self.stats.rejected_queue_full += 1,
            _ => self.stats.rejected_overloaded += 1,
        }
    }

    /// Tells whether a waiting request should be submitted again, to be placed or refused.
    pub fn is_called(&self, ticket: TicketId) -> bool {
        self.queue.standing(ticket) != Standing::Waits
    }

    /// A waiting request is given up. Without effect if it was placed.
    pub fn leave(&mut self, now: Instant, ticket: TicketId) {
        self.queue.leave(ticket);
        self.call_waiting(now);
    }

    /// Moves the tickets of requests that are called since the last time to `called`.
    pub fn take_called(&mut self, called: &mut Vec<TicketId>) {
        self.queue.take_news(called);
    }

    /// Lets requests in that have room now. Cheap if nobody waits; called after everything that makes room.
    pub(super) fn call_waiting(&mut self, now: Instant) {
        while self.queue.size().requests > 0 {
            // A called request takes its place a moment later; until then its room is spoken for.
            if self.queue.called() >= self.ranks_with_room(now).max(1) {
                return;
            }
            let mut queue = std::mem::take(&mut self.queue);
            let called = queue.call(|lane| self.room(now, lane) == Room::Open);
            self.queue = queue;
            if called.is_none() {
                return;
            }
        }
    }

    /// Takes a request into the queue if it has to wait or to let others go first.
    fn enter(&mut self, now: Instant, request: &Request<'_>) -> Result<Option<TicketId>, Rejection> {
        self.stats.received += u64::from(request.exclude.is_empty());
        if self.config.queue.threshold.is_none() || !request.exclude.is_empty() {
            return Ok(None);
        }
        let lane = self.lane(now, request);
        match self.room(now, &lane) {
            Room::Overloaded => return Ok(None),
            Room::Open if self.queue.is_idle() => return Ok(None),
            Room::Open | Room::Filled => {}
        }
        let most = request.overlap.owners().iter().map(|owner| self.cached_tokens(request, owner)).max();
        let claim = Claim {
            isl_tokens: request.isl_tokens,
            cached_tokens: most.unwrap_or(0),
            strict_priority: request.strict_priority,
            priority: f64::from(request.priority),
        };
        match self.queue.push(now, lane, claim) {
            Some(ticket) => {
                self.stats.queued += 1;
                self.call_waiting(now);
                Ok(Some(ticket))
            }
            None => {
                self.stats.rejected_queue_full += 1;
                Err(Rejection::QueueFull { limit: self.queue.capacity() })
            }
        }
    }

    /// What a request may use: its pin, else the rank its session is bound to if that can serve, else all
    /// with the properties it asks for.
    fn lane(&self, now: Instant, request: &Request<'_>) -> Lane {
        if !request.pin.is_none() {
            let required = request.constraints.required.to_vec();
            return Lane { worker: request.pin.worker, dp_rank: request.pin.dp_rank, required };
        }
        let table = self.affinity.as_ref();
        let bound = request.session.zip(table).and_then(|(session, table)| table.find(now, session));
        // Where sessions leave hot workers, a full one is no reason to wait: the placement weighs it.
        let bound = bound.filter(|_| self.config.affinity.mode != AffinityMode::Bounded);
        match bound.filter(|bound| self.serviceable(now, request, bound.target).is_ok()) {
            Some(bound) => Lane {
                worker: Some(bound.target.worker),
                dp_rank: Some(bound.target.dp_rank),
                required: Vec::new(),
            },
            None => Lane { required: request.constraints.required.to_vec(), ..Lane::default() },
        }
    }

    fn room(&self, now: Instant, lane: &Lane) -> Room {
        let constraints = Constraints { required: &lane.required, preferred: &[] };
        let (mut filled, mut overloaded) = (false, false);
        let members = self.fleet.members.values();
        for member in members.filter(|member| lane.worker.is_none_or(|worker| worker == member.worker.id)) {
            match member.fitness(now, &[], &constraints) {
                Ok(_) => {}
                Err(RebindReason::Overloaded) => {
                    overloaded = true;
                    continue;
                }
                Err(_) => continue,
            }
            for (rank, slot) in member.ranks() {
                if lane.dp_rank.is_some_and(|dp_rank| dp_rank != rank.dp_rank) {
                    continue;
                }
                match (self.is_busy(now, member, slot), self.is_filled(member, slot)) {
                    (true, _) => overloaded = true,
                    (false, true) => filled = true,
                    (false, false) => return Room::Open,
                }
            }
        }
        match (filled, overloaded) {
            (true, _) => Room::Filled,
            (false, true) => Room::Overloaded,
            // Nothing to wait for: the placement says what is wrong.
            (false, false) => Room::Open,
        }
    }

    fn ranks_with_room(&self, now: Instant) -> usize {
        let able = |member: &&Member| member.fitness(now, &[], &Constraints::default()).is_ok();
        let members = self.fleet.members.values().filter(able);
        members.map(|member| member.ranks().filter(|(_, slot)| !self.is_filled(member, *slot)).count()).sum()
    }

    fn is_filled(&self, member: &Member, slot: RankSlot) -> bool {
        let batch = member.worker.max_batched_tokens.unwrap_or(UNKNOWN_MAX_BATCHED_TOKENS) as f64;
        let queued = self.load.usage(slot).prefill_tokens as f64;
        self.config.queue.threshold.is_some_and(|threshold| queued > threshold * batch)
    }
}
