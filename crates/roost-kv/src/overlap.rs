//! How much of a prompt each rank already holds.

use crate::{Tier, WorkerRank};

/// The result of a lookup: one entry per rank that holds a leading part of the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Sorted by rank; ranks that hold nothing are absent.
    owners: Vec<OwnerOverlap>,
}

/// The leading blocks of a prompt that one rank holds.
///
/// Each tier continues where the nearer one stopped; a hole ends the walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerOverlap {
    /// The owner.
    pub rank: WorkerRank,
    /// Leading blocks in device memory.
    pub device: u32,
    /// Further blocks in host memory.
    pub host: u32,
    /// Further blocks on disk.
    pub disk: u32,
    /// Further blocks in an external store.
    pub external: u32,
}

impl OwnerOverlap {
    /// Returns an entry of `device` blocks in device memory only.
    pub const fn device_only(rank: WorkerRank, device: u32) -> Self {
        Self { rank, device, host: 0, disk: 0, external: 0 }
    }

    /// Returns the blocks of one tier.
    pub const fn tier(&self, tier: Tier) -> u32 {
        match tier {
            Tier::Device => self.device,
            Tier::Host => self.host,
            Tier::Disk => self.disk,
            Tier::External => self.external,
        }
    }

    /// Returns the blocks of all tiers.
    pub const fn total(&self) -> u32 {
        self.device + self.host + self.disk + self.external
    }
}

impl Overlap {
    /// Collects entries; those without blocks are dropped and of two for one rank the longer is kept.
    pub fn new(mut owners: Vec<OwnerOverlap>) -> Self {
        owners.retain(|owner| owner.total() > 0);
        owners.sort_unstable_by_key(|owner| (owner.rank, std::cmp::Reverse(owner.total())));
        owners.dedup_by_key(|owner| owner.rank);
        Self { owners }
    }

    /// Wraps entries that are sorted by rank, distinct and not empty.
    pub(crate) fn from_sorted(owners: Vec<OwnerOverlap>) -> Self {
        Self { owners }
    }

    /// Returns the entries, sorted by rank.
    pub fn owners(&self) -> &[OwnerOverlap] {
        &self.owners
    }

    /// Returns what `rank` holds; zeros if it holds nothing.
    pub fn get(&self, rank: WorkerRank) -> OwnerOverlap {
        match self.owners.binary_search_by_key(&rank, |owner| owner.rank) {
            Ok(index) => self.owners[index],
            Err(_) => OwnerOverlap::device_only(rank, 0),
        }
    }

    /// Returns a reader for ranks that are asked in ascending order.
    pub fn ascending(&self) -> Ascending<'_> {
        Ascending { rest: &self.owners }
    }

    /// Tells whether no rank holds any of the prompt.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Returns the longest device match, in blocks.
    pub fn max_device(&self) -> u32 {
        self.owners.iter().map(|owner| owner.device).max().unwrap_or(0)
    }

    /// Takes for each rank the longer of two matches, as with events plus predicted entries.
    pub fn max(&self, other: &Self) -> Self {
        Self::new(self.owners.iter().chain(&other.owners).copied().collect())
    }
}

/// Reads an [`Overlap`] rank by rank, in ascending order; each step costs what it passes.
#[derive(Clone, Debug)]
pub struct Ascending<'a> {
    rest: &'a [OwnerOverlap],
}

impl Ascending<'_> {
    /// Returns what `rank` holds; zeros if it holds nothing. A rank before an earlier one gets zeros too.
    pub fn get(&mut self, rank: WorkerRank) -> OwnerOverlap {
        while let [first, rest @ ..] = self.rest
            && first.rank <= rank
        {
            self.rest = rest;
            if first.rank == rank {
                return *first;
            }
        }
        OwnerOverlap::device_only(rank, 0)
    }
}

impl FromIterator<OwnerOverlap> for Overlap {
    fn from_iter<I: IntoIterator<Item = OwnerOverlap>>(owners: I) -> Self {
        Self::new(owners.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerId;

    #[test]
    fn reading_in_order_finds_what_a_search_finds() {
        let rank = |id, dp_rank| WorkerRank::new(WorkerId(id), dp_rank);
        let held = [rank(1, 3), rank(2, 0), rank(2, 1), rank(7, 0)];
        let overlap: Overlap =
            (5..).zip(held).map(|(blocks, rank)| OwnerOverlap::device_only(rank, blocks)).collect();
        let mut reader = overlap.ascending();
        for id in 0..9 {
            for dp_rank in 0..4 {
                assert_eq!(reader.get(rank(id, dp_rank)), overlap.get(rank(id, dp_rank)));
            }
        }
    }
}
