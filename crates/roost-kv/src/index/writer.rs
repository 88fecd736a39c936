//! Changing the tree: stores, removals, and the upkeep of the credited sets.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashTable, hash_table};

use super::sets::EMPTY;
use super::view::{NONE, Node, View, mix};
use super::{Applied, IndexStats};
use crate::hash::next_sequence_hash;
use crate::{EngineHash, SequenceHash, StoredBlock, Tier, WorkerId, WorkerRank};

/// Coverage of a rank that misses a block: no tier.
const UNCOVERED: usize = Tier::ALL.len();

/// One owner in one tier, by its dense number, with the lanes of the same rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    id: u32,
    /// Lanes of the rank by tier, [`NONE`] where it has none.
    rank: [u32; Tier::ALL.len()],
}

/// What only the writer needs: the shape of the tree and the engines' names.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Nodes ever allocated; those not in use are in `free`.
    allocated: u32,
    free: Vec<u32>,
    ranks: BTreeMap<WorkerRank, [u32; Tier::ALL.len()]>,
    /// The blocks each lane holds.
    lanes: Vec<Holdings>,
    free_lanes: Vec<u32>,
    unheld: usize,
    skipped_events: u64,
    unknown_removed_blocks: u64,
    /// Scratch space of the upkeep.
    pending: Vec<u32>,
    /// Scratch space of the passes that bring memory near.
    near: Vec<u32>,
    hashes: Vec<SequenceHash>,
}

/// The blocks of one lane by the engine's names.
#[derive(Debug, Default)]
struct Holdings {
    /// Packed: the name's low and high half and the node.
    names: HashTable<[u32; 3]>,
    aliases: Aliases,
}

/// The lanes of a rank that is being dropped, with what is left of them.
#[derive(Debug)]
pub(super) struct Doomed {
    lanes: Vec<(u32, hash_table::IntoIter<[u32; 3]>, Aliases)>,
    retired: Vec<u32>,
}

/// Nodes that an engine holds under several names: how many besides one.
type Aliases = HashMap<u32, u32, foldhash::fast::FixedState>;

// === impl Writer: owners ===

impl Writer {
    /// Returns the lane of an owner, made on first use.
    pub(super) fn lane(&mut self, view: &mut View, rank: WorkerRank, tier: Tier) -> Lane {
        let lanes = self.ranks.entry(rank).or_insert([NONE; Tier::ALL.len()]);
        let slot = &mut lanes[tier.index()];
        if *slot == NONE {
            *slot = self.free_lanes.pop().unwrap_or_else(|| {
                self.lanes.push(Holdings::default());
                view.owners.push(None);
                u32::try_from(self.lanes.len() - 1).expect("owners are workers; there are fewer than 2^32")
            });
            view.owners[*slot as usize] = Some((rank, tier));
        }
        Lane { id: *slot, rank: *lanes }
    }

    pub(super) fn known_lane(&self, rank: WorkerRank, tier: Tier) -> Option<Lane> {
        let lanes = *self.ranks.get(&rank)?;
        let id = lanes[tier.index()];
        (id != NONE).then_some(Lane { id, rank: lanes })
    }

    pub(super) fn ranks_of(&self, worker: WorkerId) -> Vec<WorkerRank> {
        let all = WorkerRank::new(worker, 0)..=WorkerRank::new(worker, u32::MAX);
        self.ranks.range(all).map(|(rank, _)| *rank).collect()
    }

    pub(super) fn rank_blocks(&self, rank: WorkerRank) -> usize {
        let lanes = self.ranks.get(&rank).into_iter().flatten();
        lanes.filter(|&&lane| lane != NONE).map(|&lane| self.lanes[lane as usize].names.len()).sum()
    }

    /// Takes a rank out of sight of lookups; its blocks are given back with [`Writer::release`].
    pub(super) fn detach_rank(&mut self, view: &mut View, rank: WorkerRank) -> Option<Doomed> {
        let ids: Vec<u32> = self.ranks.remove(&rank)?.into_iter().filter(|&lane| lane != NONE).collect();
        let take = |&id: &u32| {
            view.owners[id as usize] = None;
            let holdings = std::mem::take(&mut self.lanes[id as usize]);
            (id, holdings.names.into_iter(), holdings.aliases)
        };
        Some(Doomed { lanes: ids.iter().map(take).collect(), retired: ids })
    }

    /// Gives back up to `limit` blocks of a detached rank; 0 when none is left.
    pub(super) fn release(&mut self, view: &mut View, doomed: &mut Doomed, limit: u32) -> u32 {
        let mut released = 0;
        while released < limit {
            let Some((lane, names, aliases)) = doomed.lanes.last_mut() else { break };
            let Some([_, _, node]) = names.next() else {
                doomed.lanes.pop();
                continue;
            };
            released += 1;
            // A node with several names is given back with the last of them.
            if let Some(more) = aliases.get_mut(&node)
                && *more > 0
            {
                *more -= 1;
                continue;
            }
            self.unhold(view, node, *lane);
            self.set_credit(view, node, *lane, false);
            self.collect(view, node);
        }
        released
    }

    /// Makes the lanes of a fully released rank available again.
    pub(super) fn retire(&mut self, doomed: Doomed) {
        self.free_lanes.extend(doomed.retired);
    }
}

// === impl Writer: blocks ===

impl Writer {
    /// Finds the node that a rank calls `hash`, in this lane first and then in its other tiers.
    pub(super) fn find(&self, rank: WorkerRank, lane: Lane, hash: EngineHash) -> Option<u32> {
        let others = self.ranks.get(&rank).into_iter().flatten().copied();
        let lanes = std::iter::once(lane.id).chain(others.filter(|&id| id != NONE && id != lane.id));
        lanes.into_iter().find_map(|id| self.lanes[id as usize].get(hash))
    }

    /// Chains the hashes of a step of blocks and reads the places where they and their names are or will be.
    ///
    /// Changing a block waits for memory several times in a row. Here the waits of all blocks overlap.
    pub(super) fn approach_store(
        &mut self,
        view: &View,
        lane: Lane,
        parent: Option<u32>,
        step: &[StoredBlock],
    ) {
        let mut before = parent.map(|node| view.nodes.get(node).sequence);
        self.hashes.clear();
        for block in step {
            let hash = next_sequence_hash(before, block.local);
            self.hashes.push(hash);
            before = Some(hash);
        }
        let known = self.hashes.iter().filter(|hash| view.node(**hash).is_some()).count();
        let holdings = &self.lanes[lane.id as usize];
        let named = step.iter().filter(|block| holdings.get(block.engine).is_some()).count();
        std::hint::black_box((known, named));
    }

    /// Reads the places of blocks that are about to be removed, for the same reason.
    pub(super) fn approach_remove(&mut self, view: &View, lane: Lane, step: &[EngineHash]) {
        let holdings = &self.lanes[lane.id as usize];
        self.near.clear();
        self.near.extend(step.iter().filter_map(|&hash| holdings.get(hash)));
        self.hashes.clear();
        self.hashes.extend(self.near.iter().map(|&node| view.nodes.get(node).sequence));
        let places = self.hashes.iter().zip(&self.near);
        let found =
            places.filter(|(hash, node)| view.table.find(mix(hash.0), |other| other == *node).is_some());
        std::hint::black_box(found.count());
    }

    /// Adds a block of the step that was approached, by its position there, after `parent`. Returns its node, or `None` if its hash is taken by another prefix.
    pub(super) fn store(
        &mut self,
        view: &mut View,
        lane: Lane,
        parent: Option<u32>,
        (position, block): (usize, StoredBlock),
        applied: &mut Applied,
    ) -> Option<u32> {
        let hash = self.hashes[position];
        let parent = parent.unwrap_or(NONE);
        let node = match view.node(hash) {
            Some(node) if view.nodes.get(node).parent == parent => node,
            Some(_) => return None,
            None => self.add_node(view, hash, parent),
        };
        match self.lanes[lane.id as usize].get(block.engine) {
            Some(known) if known == node => {
                applied.duplicate += 1;
                return Some(node);
            }
            // The engine uses the name for other content: we missed the removal of the old.
            Some(_) => self.remove(view, lane, block.engine, applied),
            None => {}
        }
        let holdings = &mut self.lanes[lane.id as usize];
        holdings.insert(block.engine, node);
        applied.stored += 1;
        let held = view.nodes.get(node).held;
        if view.sets.contains(held, lane.id) {
            *holdings.aliases.entry(node).or_insert(0) += 1;
            return Some(node);
        }
        if held == EMPTY {
            self.unheld -= 1;
        }
        view.nodes.get_mut(node).held = view.sets.toggle(held, lane.id);
        self.update_credit(view, node, &lane.rank);
        Some(node)
    }

    /// Drops one block of a lane by the engine's name.
    pub(super) fn remove(&mut self, view: &mut View, lane: Lane, hash: EngineHash, applied: &mut Applied) {
        let holdings = &mut self.lanes[lane.id as usize];
        let Some(node) = holdings.take(hash) else {
            applied.unknown_removed += 1;
            return;
        };
        applied.removed += 1;
        if let Some(more) = holdings.aliases.get_mut(&node) {
            *more -= 1;
            if *more == 0 {
                holdings.aliases.remove(&node);
            }
            return;
        }
        self.unhold(view, node, lane.id);
        self.update_credit(view, node, &lane.rank);
        self.collect(view, node);
    }

    /// Counts a store that could not be placed.
    pub(super) fn skip_event(&mut self, blocks: usize) -> Applied {
        self.skipped_events += 1;
        Applied { skipped: u32::try_from(blocks).unwrap_or(u32::MAX), ..Applied::default() }
    }

    pub(super) fn count_unknown(&mut self, blocks: u32) {
        self.unknown_removed_blocks += u64::from(blocks);
    }

    fn add_node(&mut self, view: &mut View, hash: SequenceHash, parent: u32) -> u32 {
        let node = self.free.pop().unwrap_or_else(|| {
            self.allocated += 1;
            self.allocated - 1
        });
        let mut next = NONE;
        if parent != NONE {
            next = std::mem::replace(&mut view.nodes.get_mut(parent).first_child, node);
        }
        if next != NONE {
            view.nodes.get_mut(next).previous = node;
        }
        let (sequence, previous) = (hash, NONE);
        let (credited, held, first_child) = (EMPTY, EMPTY, NONE);
        view.nodes.put(node, Node { sequence, credited, held, parent, first_child, next, previous });
        view.table.insert_unique(mix(hash.0), node, |&node| mix(view.nodes.get(node).sequence.0));
        self.unheld += 1;
        node
    }

    /// Frees a node that nobody holds and nothing follows, and the nodes before it that this leaves bare.
    fn collect(&mut self, view: &mut View, mut node: u32) {
        while node != NONE {
            let link = view.nodes.get(node);
            if link.held != EMPTY || link.first_child != NONE {
                return;
            }
            if link.next != NONE {
                view.nodes.get_mut(link.next).previous = link.previous;
            }
            if link.previous != NONE {
                view.nodes.get_mut(link.previous).next = link.next;
            } else if link.parent != NONE {
                view.nodes.get_mut(link.parent).first_child = link.next;
            }
            let hash = view.nodes.get(node).sequence;
            if let Ok(entry) = view.table.find_entry(mix(hash.0), |&other| other == node) {
                entry.remove();
            }
            self.free.push(node);
            self.unheld -= 1;
            node = link.parent;
        }
    }

    fn unhold(&mut self, view: &mut View, node: u32, lane: u32) {
        let link = view.nodes.get_mut(node);
        link.held = view.sets.toggle(link.held, lane);
        if link.held == EMPTY {
            self.unheld += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.allocated as usize
    }

    /// Gives back the memory of an empty tree.
    pub(super) fn shrink(&mut self, view: &mut View) {
        self.allocated = 0;
        self.free = Vec::new();
        self.lanes.iter_mut().for_each(|holdings| *holdings = Holdings::default());
        view.table = HashTable::new();
        view.nodes.clear();
    }

    pub(super) fn stats(&self, view: &View) -> IndexStats {
        let names: usize = self.lanes.iter().map(|holdings| holdings.names.capacity() * 13).sum();
        let nodes = view.nodes.bytes();
        let tables = view.table.capacity() * 5 + self.free.capacity() * 4 + names;
        IndexStats {
            blocks: view.table.len(),
            unheld_blocks: self.unheld,
            residencies: self.lanes.iter().map(|holdings| holdings.names.len()).sum(),
            owners: self.ranks.values().flatten().filter(|&&lane| lane != NONE).count(),
            bytes: nodes + tables + view.sets.bytes(),
            skipped_events: self.skipped_events,
            unknown_removed_blocks: self.unknown_removed_blocks,
        }
    }
}

// === impl Writer: credit ===

impl Writer {
    /// Recomputes who of a rank's lanes is credited with `node`, and with what follows it.
    ///
    /// A tier is credited with a block it holds if the block before is covered by the same or a nearer
    /// tier of the rank.
    fn update_credit(&mut self, view: &mut View, node: u32, rank: &[u32; Tier::ALL.len()]) {
        let first = view.nodes.get(node);
        if first.first_child == NONE {
            let before = if first.parent == NONE { 0 } else { coverage(view, first.parent, rank) };
            for (tier, &lane) in rank.iter().enumerate() {
                if lane != NONE {
                    let credited = before <= tier && view.sets.contains(first.held, lane);
                    self.set_credit(view, node, lane, credited);
                }
            }
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.push(node);
        while let Some(node) = pending.pop() {
            let link = view.nodes.get(node);
            let before = match link.parent {
                NONE => 0,
                parent => coverage(view, parent, rank),
            };
            let old = coverage(view, node, rank);
            for (tier, &lane) in rank.iter().enumerate() {
                if lane != NONE {
                    let credited = before <= tier && view.sets.contains(link.held, lane);
                    self.set_credit(view, node, lane, credited);
                }
            }
            if coverage(view, node, rank) != old {
                let mut child = link.first_child;
                while child != NONE {
                    pending.push(child);
                    child = view.nodes.get(child).next;
                }
            }
        }
        self.pending = pending;
    }

    fn set_credit(&self, view: &mut View, node: u32, lane: u32, credited: bool) {
        let set = view.nodes.get(node).credited;
        if view.sets.contains(set, lane) != credited {
            let toggled = view.sets.toggle(set, lane);
            view.nodes.get_mut(node).credited = toggled;
        }
    }
}

/// Returns the nearest tier of a rank that is credited with a node.
fn coverage(view: &View, node: u32, rank: &[u32; Tier::ALL.len()]) -> usize {
    let set = view.nodes.get(node).credited;
    let credited = |&lane: &u32| lane != NONE && view.sets.contains(set, lane);
    rank.iter().position(credited).unwrap_or(UNCOVERED)
}

// === impl Holdings ===

impl Holdings {
    fn get(&self, hash: EngineHash) -> Option<u32> {
        self.names.find(mix(hash.0), |entry| name(entry) == hash.0).map(|entry| entry[2])
    }

    fn insert(&mut self, hash: EngineHash, node: u32) {
        let entry = [hash.0 as u32, (hash.0 >> 32) as u32, node];
        self.names.insert_unique(mix(hash.0), entry, |entry| mix(name(entry)));
    }

    fn take(&mut self, hash: EngineHash) -> Option<u32> {
        let entry = self.names.find_entry(mix(hash.0), |entry| name(entry) == hash.0).ok()?;
        Some(entry.remove().0[2])
    }
}

fn name(entry: &[u32; 3]) -> u64 {
    u64::from(entry[0]) | u64::from(entry[1]) << 32
}
