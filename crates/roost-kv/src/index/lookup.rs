//! Finding the places along a prompt where the credited owners change.

use super::sets::{EMPTY, SetId};
use super::view::View;
use crate::overlap::{Overlap, OwnerOverlap};
use crate::{SequenceHash, Tier, WorkerRank};

/// The last block of a run of blocks that all have the same credited owners.
#[derive(Clone, Copy)]
struct Place {
    block: usize,
    owners: SetId,
}

/// Returns the leading blocks per owner.
///
/// An owner's coverage (this tier or a nearer one) never resumes once it has stopped, so equal sets at
/// two places mean equal coverage in between, and halving finds each change in logarithmic time.
pub(super) fn overlap(view: &View, prompt: &[SequenceHash]) -> Overlap {
    let at = |block: usize| Place { block, owners: view.credited(prompt[block]) };
    let Some(last) = prompt.len().checked_sub(1) else { return Overlap::default() };
    let mut here = at(0);
    if here.owners == EMPTY {
        return Overlap::default();
    }
    let mut runs: Vec<Place> = Vec::with_capacity(8);
    let mut ahead: Vec<Place> = Vec::with_capacity(16);
    ahead.push(at(last));
    while let Some(&there) = ahead.last() {
        if here.owners == EMPTY {
            break;
        }
        if here.owners != there.owners && there.block - here.block > 1 {
            ahead.push(at(here.block.midpoint(there.block)));
            continue;
        }
        if here.owners != there.owners {
            runs.push(here);
        }
        here = there;
        ahead.pop();
    }
    if here.owners != EMPTY {
        runs.push(here);
    }
    collect(view, &runs)
}

/// Turns runs into one entry per rank. An owner ends with the last run that contains it.
fn collect(view: &View, runs: &[Place]) -> Overlap {
    let mut ends: Vec<(WorkerRank, Tier, u32)> = Vec::with_capacity(16);
    for (index, run) in runs.iter().enumerate() {
        let next = runs.get(index + 1).map_or(EMPTY, |next| next.owners);
        let blocks = u32::try_from(run.block + 1).unwrap_or(u32::MAX);
        for &lane in view.sets.lanes(run.owners) {
            if !view.sets.contains(next, lane)
                && let Some((rank, tier)) = view.owners[lane as usize]
            {
                ends.push((rank, tier, blocks));
            }
        }
    }
    ends.sort_unstable();
    let owners = ends.chunk_by(|a, b| a.0 == b.0).map(|ends| {
        // Sorted by tier and length: the last entry of a tier is its longest.
        let mut reach = [0; Tier::ALL.len()];
        ends.iter().for_each(|&(_, tier, blocks)| reach[tier.index()] = blocks);
        let mut covered = 0;
        let extensions = reach.map(|blocks| {
            let extension = blocks.saturating_sub(covered);
            covered = covered.max(blocks);
            extension
        });
        let [device, host, disk, external] = extensions;
        OwnerOverlap { rank: ends[0].0, device, host, disk, external }
    });
    Overlap::from_sorted(owners.collect())
}
