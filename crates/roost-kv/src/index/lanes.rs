//! Owners by dense numbers, and what each holds.

use std::collections::BTreeMap;

use hashbrown::HashSet;

use super::run::TIERS;
use super::view::{NONE, Owner, View};
use crate::{Tier, WorkerId, WorkerRank};

/// One owner in one tier, by its dense number, with the lanes of the same rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) id: u32,
    /// Lanes of the rank by tier, [`NONE`] where it has none.
    pub(super) rank: [u32; TIERS],
}

/// All owners.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    ranks: BTreeMap<WorkerRank, [u32; TIERS]>,
    holdings: Vec<Holdings>,
    free: Vec<u32>,
}

/// What one lane holds.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// The runs of which it holds a block.
    pub(super) runs: HashSet<u32, foldhash::fast::FixedState>,
    /// Its blocks, counted once per name.
    pub(super) residencies: usize,
}

/// The lanes of a rank that is being dropped, with what is left of them.
#[derive(Debug)]
pub(super) struct Doomed {
    /// Lanes with the runs of which they still hold blocks.
    pub(super) lanes: Vec<(u32, hashbrown::hash_set::IntoIter<u32>)>,
    /// Blocks they held, counted once per name.
    pub(super) residencies: usize,
    retired: Vec<u32>,
}

impl Lanes {
    /// Returns the lane of an owner, made on first use.
    pub(super) fn lane(&mut self, view: &mut View, rank: WorkerRank, tier: Tier) -> Lane {
        let lanes = self.ranks.entry(rank).or_insert([NONE; TIERS]);
        let slot = &mut lanes[tier.index()];
        if *slot == NONE {
            *slot = self.free.pop().unwrap_or_else(|| {
                self.holdings.push(Holdings::default());
                view.owners.push(None);
                u32::try_from(self.holdings.len() - 1).expect("owners are workers; there are fewer than 2^32")
            });
            for tier in Tier::ALL.into_iter().filter(|tier| lanes[tier.index()] != NONE) {
                view.owners[lanes[tier.index()] as usize] = Some(Owner { rank, tier, lanes: *lanes });
            }
        }
        Lane { id: lanes[tier.index()], rank: *lanes }
    }

    pub(super) fn known(&self, rank: WorkerRank, tier: Tier) -> Option<Lane> {
        let lanes = *self.ranks.get(&rank)?;
        let id = lanes[tier.index()];
        (id != NONE).then_some(Lane { id, rank: lanes })
    }

    pub(super) fn holdings(&mut self, lane: u32) -> &mut Holdings {
        &mut self.holdings[lane as usize]
    }

    pub(super) fn ranks_of(&self, worker: WorkerId) -> Vec<WorkerRank> {
        let all = WorkerRank::new(worker, 0)..=WorkerRank::new(worker, u32::MAX);
        self.ranks.range(all).map(|(rank, _)| *rank).collect()
    }

    pub(super) fn rank_blocks(&self, rank: WorkerRank) -> usize {
        let lanes = self.ranks.get(&rank).into_iter().flatten();
        lanes.filter(|&&lane| lane != NONE).map(|&lane| self.holdings[lane as usize].residencies).sum()
    }

    /// Takes a rank out of sight of lookups.
    pub(super) fn detach(&mut self, view: &mut View, rank: WorkerRank) -> Option<Doomed> {
        let lanes = self.ranks.remove(&rank)?;
        let retired: Vec<u32> = lanes.into_iter().filter(|&lane| lane != NONE).collect();
        let mut residencies = 0;
        let take = |&lane: &u32| {
            view.owners[lane as usize] = None;
            let holdings = std::mem::take(&mut self.holdings[lane as usize]);
            residencies += holdings.residencies;
            (lane, holdings.runs.into_iter())
        };
        let left = retired.iter().map(take).collect();
        Some(Doomed { lanes: left, residencies, retired })
    }

    /// Makes the lanes of a fully released rank available again.
    pub(super) fn retire(&mut self, doomed: Doomed) {
        self.free.extend(doomed.retired);
    }

    /// Gives back the memory of lanes that hold nothing.
    pub(super) fn shrink(&mut self) {
        self.holdings.iter_mut().for_each(|holdings| *holdings = Holdings::default());
    }

    pub(super) fn residencies(&self) -> usize {
        self.holdings.iter().map(|holdings| holdings.residencies).sum()
    }

    pub(super) fn owners(&self) -> usize {
        self.ranks.values().flatten().filter(|&&lane| lane != NONE).count()
    }

    pub(super) fn bytes(&self) -> usize {
        let runs: usize = self.holdings.iter().map(|holdings| holdings.runs.capacity() * 8 / 7 * 5).sum();
        runs + self.holdings.capacity() * size_of::<Holdings>()
    }
}
