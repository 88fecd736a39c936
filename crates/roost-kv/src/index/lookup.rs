//! Finding the places along a prompt where the credited owners change.

use smallvec::SmallVec;

use super::run::{Coverage, Run, TIERS, WINDOW};
use super::sets::{EMPTY, SetId};
use super::view::{NONE, Owner, View};
use crate::overlap::{Overlap, OwnerOverlap};
use crate::{SequenceHash, Tier, WorkerRank};

/// How far a tier of a rank goes, blocks from the start of the prompt.
type Reach = (WorkerRank, Tier, u32);

type Reaches = SmallVec<[Reach; 64]>;

/// A rank on its way through a window.
#[derive(Clone, Copy)]
struct Walker {
    rank: WorkerRank,
    lanes: [u32; TIERS],
    /// The tier that covers the block before.
    tier: usize,
}

/// Returns the leading blocks per owner.
///
/// The lanes that are credited at the ends of windows are looked up first. A rank's coverage never resumes once it has
/// stopped and never comes back to a nearer tier, so equal sets at two ends mean the same coverage in between, and
/// halving finds each window in which something changes. Only those are walked through.
pub(super) fn overlap(view: &View, prompt: &[SequenceHash]) -> Overlap {
    let Some(&first) = prompt.first() else { return Overlap::default() };
    let Some(head) = view.head(first) else { return Overlap::default() };
    let windows = prompt.len() / WINDOW;
    let at = |window: usize| view.end(prompt[(window + 1) * WINDOW - 1]).map_or(EMPTY, |run| run.credited);
    let mut reaches = Reaches::new();

    // The first window: who does not come to its end, or not in the tier in which it begins.
    let mut here = (0, if windows > 0 { at(0) } else { EMPTY });
    if !covers(view.sets.lanes(here.1), view.runs.get(head)) {
        let walkers = ranks(view, view.runs.get(head));
        let walkers = walkers.map(|owner| Walker { rank: owner.rank, lanes: owner.lanes, tier: 0 });
        walk(view, prompt, 0, walkers.collect(), &mut reaches);
    }
    let mut ahead: SmallVec<[(usize, SetId); 16]> = SmallVec::new();
    if windows > 1 {
        ahead.push((windows - 1, at(windows - 1)));
    }
    while here.1 != EMPTY {
        let Some(&there) = ahead.last() else {
            leave(view, prompt, here, EMPTY, &mut reaches);
            break;
        };
        if here.1 != there.1 && there.0 - here.0 > 1 {
            let middle = here.0.midpoint(there.0);
            ahead.push((middle, at(middle)));
            continue;
        }
        if here.1 != there.1 {
            leave(view, prompt, here, there.1, &mut reaches);
        }
        here = there;
        ahead.pop();
    }
    collect(&mut reaches)
}

/// Tells whether all lanes that hold any of a run are in a set.
fn covers(set: &[u32], run: &Run) -> bool {
    let mut set = set.iter();
    // Both are sorted.
    run.holders().iter().all(|holder| set.by_ref().any(|lane| *lane == holder.lane))
}

/// The ranks that hold any of a run, each once.
fn ranks<'a>(view: &'a View, run: &'a Run) -> impl Iterator<Item = Owner> + 'a {
    run.holders().iter().filter_map(|holder| {
        let owner = view.owners[holder.lane as usize]?;
        let first = owner.lanes.iter().find(|lane| **lane != NONE && run.held(**lane) != 0);
        (first == Some(&holder.lane)).then_some(owner)
    })
}

/// Follows the lanes that are credited at the end of a window but not at the end of the next, `next`.
fn leave(
    view: &View,
    prompt: &[SequenceHash],
    (window, set): (usize, SetId),
    next: SetId,
    reaches: &mut Reaches,
) {
    let at = (window + 1) * WINDOW;
    for &lane in view.sets.lanes(set) {
        if next != EMPTY && view.sets.contains(next, lane) {
            continue;
        }
        let Some(owner) = view.owners[lane as usize] else { continue };
        reaches.push((owner.rank, owner.tier, at as u32));
    }
    let Some(following) = prompt.get(at).and_then(|hash| view.head(*hash)) else { return };
    let leaves = |&lane: &u32| {
        lane != NONE && view.sets.contains(set, lane) && !(next != EMPTY && view.sets.contains(next, lane))
    };
    let walkers = ranks(view, view.runs.get(following)).filter_map(|owner| {
        let tier = owner.lanes.iter().position(leaves)?;
        Some(Walker { rank: owner.rank, lanes: owner.lanes, tier })
    });
    let walkers = walkers.collect();
    walk(view, prompt, window + 1, walkers, reaches);
}

/// Walks ranks through a window. Where those end that come to its end is told elsewhere.
fn walk(
    view: &View,
    prompt: &[SequenceHash],
    window: usize,
    mut walkers: SmallVec<[Walker; 8]>,
    reaches: &mut Reaches,
) {
    let mut at = window * WINDOW;
    let end = (at + WINDOW).min(prompt.len());
    while at < end && !walkers.is_empty() {
        let Some(run) = view.head(prompt[at]).map(|run| view.runs.get(run)) else { return };
        let matched = run.matched(&prompt[at..end]);
        let of_prompt = u32::MAX >> (WINDOW - matched);
        walkers.retain(|walker| {
            let held = run.held_by_tier(&walker.lanes).map(|blocks| blocks & of_prompt);
            let coverage = Coverage::of(walker.tier, held);
            let mut before = 0;
            for (tier, &reach) in Tier::ALL.iter().zip(&coverage.reach) {
                if reach > before {
                    reaches.push((walker.rank, *tier, (at + usize::from(reach)) as u32));
                    before = reach;
                }
            }
            walker.tier = coverage.tier_after(walker.tier, matched as u8);
            walker.tier < TIERS
        });
        // A branch may leave the run anywhere; the next run begins with the next block of the prompt.
        at += matched;
    }
}

/// Sorts. A few at the end, as of the ranks that went furthest, are moved to where they belong.
fn order(reaches: &mut [Reach]) {
    const FEW: usize = 4;
    if reaches.is_sorted() {
        return;
    }
    let start = reaches.len().saturating_sub(FEW);
    if !reaches[..start].is_sorted() {
        reaches.sort_unstable();
        return;
    }
    for at in start..reaches.len() {
        let reach = reaches[at];
        let to = reaches[..at].partition_point(|other| *other < reach);
        reaches[to..=at].rotate_right(1);
    }
}

/// Turns reaches into one entry per rank.
fn collect(reaches: &mut [Reach]) -> Overlap {
    order(reaches);
    let is_plain = |pair: &[Reach]| pair[0].0 != pair[1].0 && pair[0].1 == Tier::Device;
    if reaches.windows(2).all(is_plain) && reaches.last().is_some_and(|last| last.1 == Tier::Device) {
        let plain = reaches.iter().map(|&(rank, _, blocks)| OwnerOverlap::device_only(rank, blocks));
        return Overlap::from_sorted(plain.collect());
    }
    let owners = reaches.chunk_by(|a, b| a.0 == b.0).map(|reaches| {
        // Sorted by tier and length: the last entry of a tier is its longest.
        let mut reach = [0; TIERS];
        reaches.iter().for_each(|&(_, tier, blocks)| reach[tier.index()] = blocks);
        let mut covered = 0;
        let extensions = reach.map(|blocks| {
            let extension = blocks.saturating_sub(covered);
            covered = covered.max(blocks);
            extension
        });
        let [device, host, disk, external] = extensions;
        OwnerOverlap { rank: reaches[0].0, device, host, disk, external }
    });
    Overlap::from_sorted(owners.collect())
}
