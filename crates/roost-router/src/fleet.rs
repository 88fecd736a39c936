//! The workers of one pool: who they are, whether they may be used, and their ranks' dense numbers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use roost_kv::{WorkerId, WorkerRank};

use crate::load::RankSlot;
use crate::quarantine::{Quarantine, Standing};
use crate::{Constraints, RebindReason};

/// A worker as discovery and its card describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The worker's instance id.
    pub id: WorkerId,
    /// Number of its first data-parallel rank.
    pub start_rank: u32,
    /// How many ranks it has; 0 counts as 1.
    pub ranks: u32,
    /// KV blocks per rank.
    pub total_kv_blocks: Option<u64>,
    /// Prompt tokens a rank computes at once.
    pub max_batched_tokens: Option<u64>,
    /// Requests a rank runs at once. Known for admission; no decision here uses it.
    pub max_num_seqs: Option<u64>,
    /// Properties that requests can ask for.
    pub taints: Vec<String>,
}

/// A worker as the pool keeps it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) worker: Worker,
    /// Slots of its ranks, from `start_rank` on.
    pub(crate) slots: Vec<RankSlot>,
    pub(crate) draining: bool,
    pub(crate) quarantine: Quarantine,
}

/// What a worker says of its own load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) at: Instant,
    pub(crate) used_blocks: u64,
    pub(crate) total_blocks: Option<u64>,
}

/// What a rank was given since it joined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) placed: u64,
    pub(crate) asked_tokens: u64,
    pub(crate) cached_tokens: u64,
}

/// All workers of a pool.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) members: BTreeMap<WorkerId, Member>,
    /// The last report of each rank, by slot.
    reports: Vec<Option<Report>>,
    tallies: Vec<Tally>,
    free: Vec<RankSlot>,
}

/// Slots that a change of the fleet took out of use. Their bookings must be given back before reuse.
#[derive(Debug, Default)]
pub(crate) struct Retired(pub(crate) Vec<(WorkerRank, RankSlot)>);

impl Member {
    /// Returns the ranks with their slots.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = (WorkerRank, RankSlot)> + '_ {
        let first = self.worker.start_rank;
        let rank = move |offset| WorkerRank::new(self.worker.id, first.saturating_add(offset));
        (0_u32..).zip(&self.slots).map(move |(offset, &slot)| (rank(offset), slot))
    }

    pub(crate) fn slot(&self, dp_rank: u32) -> Option<RankSlot> {
        let offset = dp_rank.checked_sub(self.worker.start_rank)?;
        self.slots.get(offset as usize).copied()
    }

    /// Returns why the worker cannot take a request now, or how it stands if it can.
    pub(crate) fn fitness(
        &self,
        now: Instant,
        exclude: &[WorkerId],
        constraints: &Constraints<'_>,
    ) -> Result<Standing, RebindReason> {
        if exclude.contains(&self.worker.id) {
            return Err(RebindReason::Excluded);
        }
        if self.draining {
            return Err(RebindReason::Draining);
        }
        if !constraints.required.iter().all(|taint| self.worker.taints.contains(taint)) {
            return Err(RebindReason::Unfit);
        }
        match self.quarantine.standing(now) {
            Standing::Avoid => Err(RebindReason::WorkerFailed),
            Standing::Overloaded => Err(RebindReason::Overloaded),
            standing => Ok(standing),
        }
    }

    /// Returns the summed weight of the preferred taints the worker has; `None` if none is asked for.
    pub(crate) fn preference(&self, constraints: &Constraints<'_>) -> Option<f64> {
        if constraints.preferred.is_empty() {
            return None;
        }
        let had = |(taint, weight): &(String, f64)| {
            (self.worker.taints.contains(taint) && weight.is_finite()).then_some(*weight)
        };
        Some(constraints.preferred.iter().filter_map(had).sum())
    }
}

impl Fleet {
    pub(crate) fn get(&self, rank: WorkerRank) -> Option<(&Member, RankSlot)> {
        let member = self.members.get(&rank.worker)?;
        Some((member, member.slot(rank.dp_rank)?))
    }

    pub(crate) fn member_mut(&mut self, worker: WorkerId) -> Option<&mut Member> {
        self.members.get_mut(&worker)
    }

    /// Adds a worker, or takes over a changed description; ranks that remain keep their slots.
    pub(crate) fn join(&mut self, worker: Worker) -> Retired {
        let known = self.members.remove(&worker.id);
        let quarantine = known.as_ref().map(|member| member.quarantine).unwrap_or_default();
        let mut old: BTreeMap<u32, RankSlot> =
            known.iter().flat_map(Member::ranks).map(|(rank, slot)| (rank.dp_rank, slot)).collect();
        let ranks = worker.start_rank..worker.start_rank.saturating_add(worker.ranks.max(1));
        let slots = ranks.map(|dp_rank| old.remove(&dp_rank).unwrap_or_else(|| self.new_slot())).collect();
        let id = worker.id;
        self.members.insert(id, Member { worker, slots, draining: false, quarantine });
        let retired = old.into_iter().map(|(dp_rank, slot)| (WorkerRank::new(id, dp_rank), slot));
        Retired(retired.collect())
    }

    pub(crate) fn leave(&mut self, worker: WorkerId) -> Retired {
        Retired(self.members.remove(&worker).iter().flat_map(Member::ranks).collect())
    }

    /// Makes slots available again whose bookings have been given back.
    pub(crate) fn reuse(&mut self, retired: Retired) {
        for (_, slot) in retired.0 {
            self.reports[slot as usize] = None;
            self.tallies[slot as usize] = Tally::default();
            self.free.push(slot);
        }
    }

    pub(crate) fn report(&mut self, slot: RankSlot, report: Report) {
        self.reports[slot as usize] = Some(report);
    }

    /// A rank was given a prompt of which `cached_tokens` are expected in its cache.
    pub(crate) fn given(&mut self, rank: WorkerRank, isl_tokens: u32, cached_tokens: u32) {
        let Some((_, slot)) = self.get(rank) else { return };
        let tally = &mut self.tallies[slot as usize];
        tally.placed += 1;
        tally.asked_tokens += u64::from(isl_tokens);
        tally.cached_tokens += u64::from(cached_tokens.min(isl_tokens));
    }

    pub(crate) fn tally(&self, slot: RankSlot) -> Tally {
        self.tallies[slot as usize]
    }

    /// Returns a rank's report unless it is too old: an idle worker reports nothing, so an old report
    /// must not mark it for ever.
    pub(crate) fn reported(&self, now: Instant, slot: RankSlot, max_age: Duration) -> Option<Report> {
        self.reports[slot as usize].filter(|report| now.saturating_duration_since(report.at) <= max_age)
    }

    fn new_slot(&mut self) -> RankSlot {
        self.free.pop().unwrap_or_else(|| {
            self.reports.push(None);
            self.tallies.push(Tally::default());
            RankSlot::try_from(self.reports.len() - 1).expect("ranks are processes; fewer than 2^32")
        })
    }
}
