//! One placement: session, candidates, choice, booking, record.

use std::time::Instant;

use roost_kv::WorkerRank;

use super::Core;
use crate::affinity::Binding;
use crate::cost;
use crate::explain::{Candidate, Outcome, Reason};
use crate::fleet::Member;
use crate::load::{Blocks, Demand, Owner, RankSlot};
use crate::quarantine::Standing;
use crate::{AffinityOutcome, BookingId, Mode, Placement, RebindReason, Rejection, Request};

/// The choice of a rank, before anything is booked.
pub(super) struct Choice {
    pub(super) candidate: Candidate,
    reason: Reason,
    /// The most cached tokens on any eligible rank.
    best_cached_tokens: u32,
    /// Cached tokens given up to spread sessions.
    spread_lost_tokens: u32,
}

/// Why the ranks that are not candidates are not.
#[derive(Default)]
pub(super) struct Missed {
    overloaded: bool,
    /// The failed worker whose turn to be tried comes first.
    last_resort: Option<(Instant, WorkerRank)>,
}

impl Core {
    /// Chooses a rank for a request and books its load in the same step.
    ///
    /// Order of decision: the client's pin; the session's binding, if its rank can serve; the mode. A
    /// session's binding never causes a rejection. The booking stays until [`Core::finish`].
    pub fn place(&mut self, now: Instant, request: &Request<'_>) -> Result<Placement, Rejection> {
        let request = &Request { block_size: request.block_size.max(1), ..*request };
        let session = request.session.filter(|_| self.affinity.is_some());
        let binding = session.zip(self.affinity.as_ref()).and_then(|(id, table)| table.find(now, id));
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let result = self.choose(now, request, binding, &mut candidates);
        let result = match result {
            Ok(choice) => Ok(self.accept(now, request, session, binding, choice, &mut candidates)),
            Err(rejection) => {
                self.reject(now, request, binding, rejection, &mut candidates);
                Err(rejection)
            }
        };
        self.candidates = candidates;
        result
    }

    pub(super) fn choose(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        binding: Option<Binding>,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Choice, Rejection> {
        self.check_pin(request)?;
        if self.config.track_active_blocks && self.config.assume_kv_reuse {
            self.load.shared_with(request.sequence, &mut self.shared);
        }
        if let Some(binding) = binding
            && let target = binding.target
            && request.pin.admits(target)
            && let Ok((member, slot)) = self.serviceable(now, request, target)
        {
            let mut candidate =
                self.candidate(request, target, slot, member.preference(&request.constraints));
            let prompt = self.prompt(request, candidate.load.prefill_tokens);
            candidate.terms = self.terms(&prompt, &candidate);
            candidates.push(candidate);
            let best = self.best_cached(request, std::slice::from_ref(&candidate));
            if let Some(better) = self.spill(now, request, binding, &candidate, candidates) {
                return Ok(Choice {
                    candidate: better,
                    reason: Reason::Spill,
                    best_cached_tokens: best,
                    spread_lost_tokens: 0,
                });
            }
            return Ok(Choice {
                candidate,
                reason: Reason::Session,
                best_cached_tokens: best,
                spread_lost_tokens: 0,
            });
        }
        if self.config.mode == Mode::Direct && request.pin.is_none() {
            return Err(Rejection::PinRequired);
        }
        let missed = self.survey(now, request, candidates);
        if candidates.is_empty() {
            return self.last_resort(request, &missed, candidates);
        }
        self.score(now, request, candidates);
        let (index, reason) = self.pick(request, candidates);
        let candidate = candidates[index];
        let best_cached_tokens = self.best_cached(request, candidates);
        let mut spread_lost_tokens = 0;
        if candidates.iter().any(|candidate| candidate.terms.future > 0.0) {
            spread_lost_tokens = self.lost_by_spreading(request, candidates, &candidate);
        }
        Ok(Choice { candidate, reason, best_cached_tokens, spread_lost_tokens })
    }

    /// Rejects a pin on what does not exist.
    fn check_pin(&self, request: &Request<'_>) -> Result<(), Rejection> {
        let pin = request.pin;
        if let Some(worker) = pin.worker
            && !self.fleet.members.contains_key(&worker)
        {
            return Err(Rejection::UnknownWorker { worker });
        }
        let Some(dp_rank) = pin.dp_rank else { return Ok(()) };
        let mut members =
            self.fleet.members.values().filter(|m| pin.worker.is_none_or(|id| id == m.worker.id));
        match members.any(|member| member.slot(dp_rank).is_some()) {
            true => Ok(()),
            false => Err(Rejection::UnknownRank { worker: pin.worker, dp_rank }),
        }
    }

    /// Returns a rank that can take the request now, or why it cannot.
    pub(super) fn serviceable(
        &self,
        now: Instant,
        request: &Request<'_>,
        rank: WorkerRank,
    ) -> Result<(&Member, RankSlot), RebindReason> {
        let member = self.fleet.members.get(&rank.worker).ok_or(RebindReason::WorkerGone)?;
        let slot = member.slot(rank.dp_rank).ok_or(RebindReason::RankGone)?;
        member.fitness(now, request.exclude, &request.constraints)?;
        match self.is_busy(now, member, slot) {
            true => Err(RebindReason::Overloaded),
            false => Ok((member, slot)),
        }
    }

    /// Collects the ranks that can take the request.
    pub(super) fn survey(
        &self,
        now: Instant,
        request: &Request<'_>,
        candidates: &mut Vec<Candidate>,
    ) -> Missed {
        let mut missed = Missed::default();
        // Members and their ranks come in ascending order.
        let mut overlaps = request.overlap.ascending();
        for member in self.fleet.members.values() {
            let fitness = member.fitness(now, request.exclude, &request.constraints);
            let preference = member.preference(&request.constraints);
            for (rank, slot) in member.ranks().filter(|(rank, _)| request.pin.admits(*rank)) {
                match fitness {
                    Ok(_) if self.is_busy(now, member, slot) => missed.overloaded = true,
                    Ok(_) => {
                        let overlap = overlaps.get(rank);
                        candidates.push(self.candidate_with(request, overlap, slot, preference));
                    }
                    Err(RebindReason::Overloaded) => missed.overloaded = true,
                    Err(RebindReason::WorkerFailed) if member.quarantine.may_probe_early() => {
                        let first = member.quarantine.until().map(|until| (until, rank));
                        missed.last_resort = [missed.last_resort, first].into_iter().flatten().min();
                    }
                    Err(_) => {}
                }
            }
        }
        missed
    }

    /// With no healthy rank left, tries the failed worker whose period ends first, one request at a time.
    fn last_resort(
        &self,
        request: &Request<'_>,
        missed: &Missed,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Choice, Rejection> {
        let pinned = request.pin.worker;
        if missed.overloaded {
            return Err(pinned.map_or(Rejection::Overloaded, |worker| Rejection::PinOverloaded { worker }));
        }
        if let Some((_, rank)) = missed.last_resort
            && let Some((member, slot)) = self.fleet.get(rank)
        {
            let mut candidate = self.candidate(request, rank, slot, member.preference(&request.constraints));
            let prompt = self.prompt(request, candidate.load.prefill_tokens);
            candidate.terms = self.terms(&prompt, &candidate);
            candidates.push(candidate);
            let best_cached_tokens = self.best_cached(request, candidates);
            return Ok(Choice {
                candidate,
                reason: Reason::LastResort,
                best_cached_tokens,
                spread_lost_tokens: 0,
            });
        }
        Err(pinned.map_or(Rejection::NoWorkers, |worker| Rejection::PinUnavailable { worker }))
    }
}

// === impl Core: outcome ===

impl Core {
    fn accept(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        session: Option<&str>,
        binding: Option<Binding>,
        choice: Choice,
        candidates: &mut [Candidate],
    ) -> Placement {
        let Candidate { rank, overlap, .. } = choice.candidate;
        let cached_tokens = self.cached_tokens(request, &overlap);
        let moves = binding.filter(|binding| binding.target != rank).map(|binding| {
            if !request.pin.admits(binding.target) {
                return RebindReason::Pinned;
            }
            if choice.reason == Reason::Spill {
                return RebindReason::Hot;
            }
            self.serviceable(now, request, binding.target).err().unwrap_or(RebindReason::WorkerFailed)
        });
        let booking = self.book(now, request, rank, cached_tokens);
        self.announce(request, rank, cached_tokens, booking);
        let affinity = match session {
            None => AffinityOutcome::None,
            Some(id) => self.hold(now, request, id, binding, (rank, moves), (cached_tokens, booking)),
        };
        self.fleet.given(rank, request.isl_tokens, cached_tokens);
        self.count(request, &choice, cached_tokens, affinity);
        let names = (request.id.unwrap_or_default(), request.session.unwrap_or_default());
        let decision = self.decisions.record(now, names, candidates, |decision| {
            decision.isl_tokens = request.isl_tokens;
            decision.block_size = request.block_size;
            decision.priority = request.priority;
            decision.outcome = Outcome::Placed { rank, reason: choice.reason };
            decision.affinity = affinity;
            decision.bound = binding.map(|binding| binding.target);
        });
        Placement {
            rank,
            booking,
            overlap_blocks: overlap.device,
            effective_blocks: cost::effective_blocks(&self.config.cost, &overlap),
            cached_tokens,
            best_cached_tokens: choice.best_cached_tokens,
            affinity,
            decision,
        }
    }

    fn reject(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        binding: Option<Binding>,
        rejection: Rejection,
        candidates: &mut [Candidate],
    ) {
        match rejection {
            Rejection::Overloaded | Rejection::PinOverloaded { .. } => self.stats.rejected_overloaded += 1,
            _ => self.stats.rejected_other += 1,
        }
        let names = (request.id.unwrap_or_default(), request.session.unwrap_or_default());
        self.decisions.record(now, names, candidates, |decision| {
            decision.isl_tokens = request.isl_tokens;
            decision.block_size = request.block_size;
            decision.priority = request.priority;
            decision.outcome = Outcome::Rejected(rejection);
            decision.affinity = AffinityOutcome::None;
            decision.bound = binding.map(|binding| binding.target);
        });
    }

    /// Books the request on its rank and, if the worker is on probation, makes it the probe.
    fn book(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        rank: WorkerRank,
        cached_tokens: u32,
    ) -> BookingId {
        let blocks = match (self.config.track_active_blocks, self.config.assume_kv_reuse) {
            (false, _) => Blocks::Private(0),
            (true, true) => Blocks::Shared(request.sequence),
            (true, false) => Blocks::Private(request.sequence.len() as u64),
        };
        let prefill_tokens = match self.config.track_prefill_tokens {
            true => request.isl_tokens.saturating_sub(cached_tokens),
            false => 0,
        };
        let member = self.fleet.member_mut(rank.worker).expect("the choice is among the members");
        let slot = member.slot(rank.dp_rank).expect("the choice is among the member's ranks");
        let probe = member.quarantine.standing(now) != Standing::Trusted && member.quarantine.begin_probe();
        self.load.book(&Demand {
            rank,
            slot,
            isl_tokens: request.isl_tokens,
            block_size: request.block_size,
            prefill_tokens: u64::from(prefill_tokens),
            expected_output_tokens: request.expected_output_tokens,
            blocks,
            probe,
            owner: Owner::Request,
        })
    }

    /// Takes the session's lease and says what the session had to do with the placement.
    fn hold(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        session: &str,
        binding: Option<Binding>,
        (rank, moves): (WorkerRank, Option<RebindReason>),
        (cached_tokens, booking): (u32, BookingId),
    ) -> AffinityOutcome {
        let Some(table) = &mut self.affinity else { return AffinityOutcome::None };
        let hold = table.hold(now, session, rank, moves, (request.isl_tokens, cached_tokens));
        if let Some(booking) = self.load.touch(booking) {
            booking.hold = hold;
        }
        match (hold, moves, binding) {
            (None, ..) => AffinityOutcome::TableFull,
            (_, Some(reason), _) => AffinityOutcome::Rebound(reason),
            (_, None, None) => AffinityOutcome::New,
            (_, None, Some(Binding { tentative: true, .. })) => AffinityOutcome::Followed,
            (_, None, Some(_)) => AffinityOutcome::Hit,
        }
    }

    fn count(
        &mut self,
        request: &Request<'_>,
        choice: &Choice,
        cached_tokens: u32,
        affinity: AffinityOutcome,
    ) {
        let stats = &mut self.stats;
        stats.placed += 1;
        stats.best_cached_tokens += u64::from(choice.best_cached_tokens);
        stats.selected_cached_tokens += u64::from(cached_tokens);
        stats.spread_lost_tokens += u64::from(choice.spread_lost_tokens);
        stats.non_max_overlap_selections += u64::from(cached_tokens < choice.best_cached_tokens);
        stats.no_overlap_decisions += u64::from(request.overlap.is_empty());
        match affinity {
            AffinityOutcome::Hit => stats.affinity_hits += 1,
            AffinityOutcome::New => stats.affinity_new += 1,
            AffinityOutcome::Followed => stats.affinity_followed += 1,
            AffinityOutcome::TableFull => stats.affinity_table_full += 1,
            AffinityOutcome::None | AffinityOutcome::Rebound(_) => {}
        }
    }
}
