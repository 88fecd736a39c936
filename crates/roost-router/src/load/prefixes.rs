//! The prompts of running requests as a tree of runs, with the number of users per rank.
//!
//! Sequence hashes are chained: equal hashes at a position mean equal prompts up to there. So one
//! comparison at the end of a run tells whether all of it matches, and a prompt of thousands of blocks is
//! walked in as many steps as it has branches.

use std::sync::Arc;

use hashbrown::HashMap;
use roost_kv::SequenceHash;
use smallvec::SmallVec;

use super::RankSlot;

const NONE: u32 = u32::MAX;

/// The tree. A run lives as long as a running request uses it.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    runs: Vec<Run>,
    free: Vec<u32>,
    /// Runs by their first hash.
    by_first: HashMap<SequenceHash, u32, foldhash::fast::FixedState>,
}

/// Blocks `start..end` of a prompt, after those of `parent`.
#[derive(Debug)]
struct Run {
    prompt: Arc<[SequenceHash]>,
    start: usize,
    end: usize,
    parent: u32,
    children: SmallVec<[u32; 2]>,
    /// Requests that pass through or end here, per rank; sorted.
    users: SmallVec<[(RankSlot, u32); 2]>,
    /// Requests that end here.
    ends: u32,
}

impl Prefixes {
    /// Adds to `shared[rank]` the number of leading blocks of `prompt` in use on each rank.
    pub(super) fn shared_with(&self, prompt: &[SequenceHash], shared: &mut [u32]) {
        let mut position = 0;
        while let Some(&id) = prompt.get(position).and_then(|first| self.by_first.get(first)) {
            let run = &self.runs[id as usize];
            let matched = run.matching(prompt);
            let blocks = u32::try_from(matched - run.start).unwrap_or(u32::MAX);
            run.users.iter().for_each(|&(rank, _)| shared[rank as usize] += blocks);
            if matched < run.end {
                return;
            }
            position = run.end;
        }
    }

    /// Adds a request. Returns where it ends and how many blocks are new to the rank.
    pub(super) fn insert(&mut self, rank: RankSlot, prompt: &Arc<[SequenceHash]>) -> (Option<u32>, u32) {
        let (mut parent, mut position, mut new) = (NONE, 0, 0);
        while position < prompt.len() {
            let id = match self.by_first.get(&prompt[position]) {
                None => self.add(Run::new(prompt, position, prompt.len(), parent)),
                Some(&id) => {
                    let matched = self.runs[id as usize].matching(prompt);
                    if matched < self.runs[id as usize].end { self.split(id, matched) } else { id }
                }
            };
            let run = &mut self.runs[id as usize];
            position = run.end;
            match run.users.binary_search_by_key(&rank, |user| user.0) {
                Ok(at) => run.users[at].1 += 1,
                Err(at) => {
                    run.users.insert(at, (rank, 1));
                    new += run.len();
                }
            }
            parent = id;
        }
        if parent == NONE {
            return (None, 0);
        }
        self.runs[parent as usize].ends += 1;
        (Some(parent), new)
    }

    /// Removes a request that ends at `last`. Returns how many blocks the rank no longer uses.
    pub(super) fn remove(&mut self, rank: RankSlot, last: u32) -> u32 {
        self.runs[last as usize].ends -= 1;
        let (mut id, mut freed) = (last, 0);
        while id != NONE {
            let run = &mut self.runs[id as usize];
            if let Ok(at) = run.users.binary_search_by_key(&rank, |user| user.0) {
                run.users[at].1 -= 1;
                if run.users[at].1 == 0 {
                    run.users.remove(at);
                    freed += run.len();
                }
            }
            let parent = run.parent;
            if run.users.is_empty() {
                self.drop_run(id);
            } else if run.ends == 0 && run.children.len() == 1 {
                self.merge(id);
            }
            id = parent;
        }
        freed
    }

    /// Returns how many blocks at the end of a request's prompt no other request of the rank uses.
    pub(super) fn unshared(&self, rank: RankSlot, last: u32) -> u32 {
        let (mut id, mut blocks) = (last, 0);
        while id != NONE {
            let run = &self.runs[id as usize];
            if !run.users.contains(&(rank, 1)) {
                break;
            }
            blocks += run.len();
            id = run.parent;
        }
        blocks
    }

    /// Number of runs.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_first.len()
    }

    fn add(&mut self, run: Run) -> u32 {
        let (first, parent) = (run.prompt[run.start], run.parent);
        let id = match self.free.pop() {
            Some(id) => {
                self.runs[id as usize] = run;
                id
            }
            None => {
                self.runs.push(run);
                u32::try_from(self.runs.len() - 1).expect("fewer than 2^32 requests run at once")
            }
        };
        self.by_first.insert(first, id);
        if parent != NONE {
            self.runs[parent as usize].children.push(id);
        }
        id
    }

    /// Cuts a run at `position`. The end keeps its number; returns that of the new beginning.
    fn split(&mut self, id: u32, position: usize) -> u32 {
        let run = &self.runs[id as usize];
        let parent = run.parent;
        let mut head = Run::new(&run.prompt, run.start, position, parent);
        head.users = run.users.clone();
        head.children.push(id);
        if parent != NONE {
            self.runs[parent as usize].children.retain(|child| *child != id);
        }
        let head = self.add(head);
        let run = &mut self.runs[id as usize];
        run.start = position;
        run.parent = head;
        self.by_first.insert(run.prompt[position], id);
        head
    }

    /// Joins a run in which nothing ends with the only one that follows it, which keeps its number.
    fn merge(&mut self, id: u32) {
        let run = &self.runs[id as usize];
        let (child, start, parent, first) = (run.children[0], run.start, run.parent, run.prompt[run.start]);
        let next = &mut self.runs[child as usize];
        self.by_first.remove(&next.prompt[next.start]);
        next.start = start;
        next.parent = parent;
        self.by_first.insert(first, child);
        if parent != NONE {
            let siblings = &mut self.runs[parent as usize].children;
            siblings.iter_mut().filter(|sibling| **sibling == id).for_each(|sibling| *sibling = child);
        }
        self.retire(id);
    }

    fn drop_run(&mut self, id: u32) {
        let run = &self.runs[id as usize];
        let parent = run.parent;
        self.by_first.remove(&run.prompt[run.start]);
        if parent != NONE {
            let siblings = &mut self.runs[parent as usize].children;
            if let Some(at) = siblings.iter().position(|sibling| *sibling == id) {
                siblings.swap_remove(at);
            }
        }
        self.retire(id);
    }

    fn retire(&mut self, id: u32) {
        self.runs[id as usize] = Run::new(&Arc::from([]), 0, 0, NONE);
        self.free.push(id);
    }
}

impl Run {
    fn new(prompt: &Arc<[SequenceHash]>, start: usize, end: usize, parent: u32) -> Self {
        Self {
            prompt: Arc::clone(prompt),
            start,
            end,
            parent,
            children: SmallVec::new(),
            users: SmallVec::new(),
            ends: 0,
        }
    }

    fn len(&self) -> u32 {
        u32::try_from(self.end - self.start).unwrap_or(u32::MAX)
    }

    /// Returns the position up to which `prompt`, which has the run's first hash, is the same.
    fn matching(&self, prompt: &[SequenceHash]) -> usize {
        let limit = self.end.min(prompt.len());
        if prompt[limit - 1] == self.prompt[limit - 1] {
            return limit;
        }
        let (mut same, mut differs) = (self.start, limit - 1);
        while differs - same > 1 {
            let middle = same.midpoint(differs);
            match prompt[middle] == self.prompt[middle] {
                true => same = middle,
                false => differs = middle,
            }
        }
        differs
    }
}
