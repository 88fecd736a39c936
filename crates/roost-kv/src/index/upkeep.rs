//! Keeping the credited sets true while blocks come and go.
//!
//! A tier of a rank is credited with a block it holds if the block before is covered by the same or a nearer tier of
//! the rank. A change in a run is passed on to what follows it, as far as it makes a difference there.

use super::lanes::{Doomed, Lane};
use super::run::{Coverage, TIERS, UNCOVERED};
use super::view::{NONE, View};
use super::writer::{Trimmed, Writer};

/// A run that is being changed for one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    run: u32,
    rank: [u32; TIERS],
    entry: usize,
    /// How far the rank covered it before.
    before: Coverage,
}

impl Writer {
    /// A run is about to be changed for a rank; the one changed before, if another, is brought up to date.
    pub(super) fn touch(&mut self, view: &mut View, run: u32, lane: &Lane) {
        if self.touched.is_some_and(|touched| touched.run == run) {
            return;
        }
        self.settle(view);
        let entry = view.entry(run, &lane.rank);
        let before = Coverage::of(entry, view.runs.get(run).held_by_tier(&lane.rank));
        self.touched = Some(Touched { run, rank: lane.rank, entry, before });
    }

    /// Brings the run that was changed, and what follows it, up to date.
    pub(super) fn settle(&mut self, view: &mut View) {
        let Some(Touched { run, rank, entry, before }) = self.touched.take() else { return };
        let parent = view.runs.get(run).parent;
        match self.trim(view, run) {
            Trimmed::Gone => return self.collect(view, parent),
            Trimmed::Shorter if view.runs.get(run).holders().len() > 1 => self.credit_all(view, run),
            Trimmed::Shorter | Trimmed::Not => {}
        }
        let after = self.credit(view, run, &rank, entry);
        if before != after && view.runs.get(run).first_child != NONE {
            self.pass_on(view, run, &rank, (entry, before), (entry, after));
        }
    }

    /// Passes a changed coverage on to the runs that follow.
    fn pass_on(
        &mut self,
        view: &mut View,
        run: u32,
        rank: &[u32; TIERS],
        before: (usize, Coverage),
        after: (usize, Coverage),
    ) {
        let mut pending = std::mem::take(&mut self.pending);
        let entered = |view: &View,
                       pending: &mut Vec<_>,
                       run: u32,
                       before: (usize, Coverage),
                       after: (usize, Coverage)| {
            let mut child = view.runs.get(run).first_child;
            while child != NONE {
                let follower = view.runs.get(child);
                let [old, new] = [before, after]
                    .map(|(entry, coverage)| coverage.tier_after(entry, follower.attached + 1));
                if old != new {
                    pending.push((child, old, new));
                }
                child = follower.next;
            }
        };
        entered(view, &mut pending, run, before, after);
        while let Some((run, old, new)) = pending.pop() {
            let before = Coverage::of(old, view.runs.get(run).held_by_tier(rank));
            let after = self.credit(view, run, rank, new);
            entered(view, &mut pending, run, (old, before), (new, after));
        }
        self.pending = pending;
    }

    /// Makes the credited set of a run true for a rank that comes into it with `entry`. Returns the rank's coverage.
    fn credit(&self, view: &mut View, run: u32, rank: &[u32; TIERS], entry: usize) -> Coverage {
        let found = view.runs.get(run);
        let coverage = Coverage::of(entry, found.held_by_tier(rank));
        let exit = match found.len() {
            0 => UNCOVERED,
            length => coverage.tier_after(entry, length),
        };
        let mut set = found.credited;
        for (tier, &lane) in rank.iter().enumerate() {
            if lane != NONE && view.sets.contains(set, lane) != (tier == exit) {
                set = view.sets.toggle(set, lane);
            }
        }
        view.runs.get_mut(run).credited = set;
        coverage
    }

    /// Makes the credited set of a run true whose end has moved.
    pub(super) fn credit_all(&self, view: &mut View, run: u32) {
        let mut at = 0;
        while let Some(holder) = view.runs.get(run).holders().get(at).copied() {
            at += 1;
            if let Some(owner) = view.owners[holder.lane as usize] {
                let entry = view.entry(run, &owner.lanes);
                self.credit(view, run, &owner.lanes, entry);
            }
        }
    }

    /// Takes up to `limit` runs from a detached rank; tells whether any was left.
    pub(super) fn release(&mut self, view: &mut View, doomed: &mut Doomed, limit: u32) -> bool {
        let mut released = 0;
        while released < limit {
            let Some((lane, runs)) = doomed.lanes.last_mut() else { break };
            let lane = *lane;
            let Some(number) = runs.next() else {
                self.names.forget(lane);
                doomed.lanes.pop();
                continue;
            };
            released += 1;
            let run = view.runs.get_mut(number);
            let held = run.held(lane);
            run.set_held(lane, 0);
            self.unheld += (held & !run.held_by_any()).count_ones() as usize;
            let set = run.credited;
            if view.sets.contains(set, lane) {
                view.runs.get_mut(number).credited = view.sets.toggle(set, lane);
            }
            self.collect(view, number);
        }
        released > 0
    }
}
