//! The index by definition: what each rank holds, and a walk over the prompt. Slow and obvious.

use std::collections::{BTreeMap, BTreeSet};

use crate::hash::next_sequence_hash;
use crate::{
    EngineHash, KvEvent, KvEventData, Overlap, OwnerOverlap, SequenceHash, Tier, WorkerId, WorkerRank,
};

#[derive(Default)]
pub(super) struct Oracle {
    holdings: BTreeMap<(WorkerRank, Tier), BTreeMap<EngineHash, SequenceHash>>,
}

impl Oracle {
    pub(super) fn apply(&mut self, event: &KvEvent) {
        match &event.data {
            KvEventData::Cleared => self.holdings.retain(|(rank, _), _| *rank != event.rank),
            KvEventData::Removed { blocks } => {
                if let Some(held) = self.holdings.get_mut(&(event.rank, event.tier)) {
                    blocks.iter().for_each(|block| _ = held.remove(block));
                }
            }
            KvEventData::Stored { parent, blocks } => {
                let mut before = None;
                if let Some(parent) = parent {
                    if blocks.iter().any(|block| block.engine == *parent) {
                        return;
                    }
                    before = self.find(event.rank, event.tier, *parent);
                    if before.is_none() {
                        return;
                    }
                }
                for block in blocks {
                    let hash = next_sequence_hash(before, block.local);
                    self.holdings.entry((event.rank, event.tier)).or_default().insert(block.engine, hash);
                    before = Some(hash);
                }
            }
        }
    }

    pub(super) fn remove_worker(&mut self, worker: WorkerId) {
        self.holdings.retain(|(rank, _), _| rank.worker != worker);
    }

    pub(super) fn overlap(&self, prompt: &[SequenceHash]) -> Overlap {
        let ranks: BTreeSet<WorkerRank> = self.holdings.keys().map(|(rank, _)| *rank).collect();
        let walk = |rank: WorkerRank| {
            let mut position = 0;
            let mut lengths = [0; 4];
            for tier in Tier::ALL {
                let Some(held) = self.holdings.get(&(rank, tier)) else { continue };
                let held: BTreeSet<SequenceHash> = held.values().copied().collect();
                while position < prompt.len() && held.contains(&prompt[position]) {
                    position += 1;
                    lengths[tier.index()] += 1;
                }
            }
            let [device, host, disk, external] = lengths;
            OwnerOverlap { rank, device, host, disk, external }
        };
        ranks.into_iter().map(walk).collect()
    }

    pub(super) fn residencies(&self) -> usize {
        self.holdings.values().map(BTreeMap::len).sum()
    }

    pub(super) fn distinct(&self) -> usize {
        self.holdings.values().flat_map(BTreeMap::values).collect::<BTreeSet<_>>().len()
    }

    fn find(&self, rank: WorkerRank, tier: Tier, hash: EngineHash) -> Option<SequenceHash> {
        let tiers = std::iter::once(tier).chain(Tier::ALL);
        tiers.into_iter().find_map(|tier| self.holdings.get(&(rank, tier))?.get(&hash).copied())
    }
}
