//! The prefix cache of one rank: pages in a tree, leaves evicted by age, pages of running requests kept.
//!
//! Pure bookkeeping: no time, no locks, no tokens. Owned by the mock engine's rank, under its lock.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use roost_kv::{BlockHash, EngineHash, StoredBlock};

/// There is no room even after evicting everything that no request holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("prefix cache full: {needed} blocks needed, {available} can be had")]
pub struct CacheFull {
    /// Blocks that the request needs beyond its cached prefix.
    pub needed: usize,
    /// Blocks that are free or can be evicted.
    pub available: usize,
}

/// What a running request holds. Give it back with [`PrefixCache::release`].
#[derive(Debug)]
#[must_use = "held pages are never evicted"]
pub struct Admission {
    held: Vec<EngineHash>,
    reserved: usize,
}

impl Admission {
    /// Pages held: the cached prefix at first, then also what was stored.
    pub fn held_pages(&self) -> usize {
        self.held.len()
    }

    /// Blocks that are set aside for tokens to come.
    pub fn reserved_blocks(&self) -> usize {
        self.reserved
    }
}

#[derive(Debug)]
struct Node {
    local: BlockHash,
    parent: Option<EngineHash>,
    children: u32,
    holders: u32,
    /// Logical time of the last release; orders eviction.
    released_at: u64,
}

/// Stored pages of one rank.
#[derive(Debug)]
pub struct PrefixCache {
    capacity: usize,
    nodes: HashMap<EngineHash, Node>,
    /// Pages without child and holder, oldest first.
    evictable: BTreeSet<(u64, EngineHash)>,
    held: usize,
    reserved: usize,
    clock: u64,
}

impl PrefixCache {
    /// Makes an empty cache of `capacity` blocks.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, nodes: HashMap::new(), evictable: BTreeSet::new(), held: 0, reserved: 0, clock: 0 }
    }

    /// Number of leading pages of `chain` that are stored.
    pub fn lookup(&self, chain: &[StoredBlock]) -> usize {
        chain.iter().take_while(|page| self.nodes.contains_key(&page.engine)).count()
    }

    /// Takes hold of the stored prefix of `chain` and reserves blocks for the rest of it plus `extra`.
    ///
    /// Pages evicted to make room are appended to `removed`. On error nothing has changed.
    pub fn admit(
        &mut self,
        chain: &[StoredBlock],
        extra: usize,
        removed: &mut Vec<EngineHash>,
    ) -> Result<Admission, CacheFull> {
        let hit = self.lookup(chain);
        let needed = chain.len() - hit + extra;
        let newly_held = chain[..hit].iter().filter(|page| self.nodes[&page.engine].holders == 0).count();
        let available = self.capacity - self.reserved - self.held - newly_held;
        if needed > available {
            return Err(CacheFull { needed, available });
        }
        let mut admission = Admission { held: Vec::with_capacity(chain.len()), reserved: needed };
        for page in &chain[..hit] {
            self.hold(page.engine);
            admission.held.push(page.engine);
        }
        while self.nodes.len() + self.reserved + needed > self.capacity {
            let (_, oldest) = self.evictable.pop_first().expect("unheld pages have unheld leaves");
            self.remove(oldest);
            removed.push(oldest);
        }
        self.reserved += needed;
        Ok(admission)
    }

    /// Turns reserved blocks into stored pages: those of `chain` beyond what `admission` already holds.
    ///
    /// Returns the runs of pages that are new, each with the page before it; pages that another request
    /// stored meanwhile are held instead and their reservation is returned. Stops when the reservation
    /// is used up.
    pub fn store(
        &mut self,
        admission: &mut Admission,
        chain: &[StoredBlock],
    ) -> Vec<(Option<EngineHash>, Vec<StoredBlock>)> {
        let mut runs: Vec<(Option<EngineHash>, Vec<StoredBlock>)> = Vec::new();
        let mut run_open = false;
        for index in admission.held.len()..chain.len() {
            if admission.reserved == 0 {
                break;
            }
            let page = chain[index];
            let parent = index.checked_sub(1).map(|before| chain[before].engine);
            admission.reserved -= 1;
            self.reserved -= 1;
            if self.nodes.contains_key(&page.engine) {
                self.hold(page.engine);
                run_open = false;
            } else {
                self.insert(page, parent);
                if !run_open {
                    runs.push((parent, Vec::new()));
                    run_open = true;
                }
                runs.last_mut().expect("a run is open").1.push(page);
            }
            admission.held.push(page.engine);
        }
        runs
    }

    /// Lets go of everything that `admission` holds; its pages stay until they are evicted.
    pub fn release(&mut self, admission: Admission) {
        self.reserved -= admission.reserved;
        self.clock += 1;
        for engine in admission.held.into_iter().rev() {
            let node = self.nodes.get_mut(&engine).expect("held pages are stored");
            node.holders -= 1;
            if node.holders == 0 {
                self.held -= 1;
                node.released_at = self.clock;
                if node.children == 0 {
                    self.evictable.insert((self.clock, engine));
                }
            }
        }
    }

    /// Forgets every page that no request holds; returns them, children before parents.
    pub fn clear_unheld(&mut self) -> Vec<EngineHash> {
        let mut removed = Vec::new();
        while let Some((_, oldest)) = self.evictable.pop_first() {
            self.remove(oldest);
            removed.push(oldest);
        }
        removed
    }

    /// The whole content, parents before children.
    pub fn snapshot(&self) -> Vec<(Option<EngineHash>, Vec<StoredBlock>)> {
        let mut children: HashMap<Option<EngineHash>, Vec<EngineHash>> = HashMap::new();
        for (engine, node) in &self.nodes {
            children.entry(node.parent).or_default().push(*engine);
        }
        let mut runs = Vec::new();
        let mut open: Vec<(Option<EngineHash>, EngineHash)> = Vec::new();
        let branches = |parent: Option<EngineHash>| {
            let mut found = children.get(&parent).cloned().unwrap_or_default();
            found.sort_unstable();
            found
        };
        open.extend(branches(None).into_iter().map(|root| (None, root)));
        while let Some((parent, first)) = open.pop() {
            let mut run = Vec::new();
            let mut next = Some(first);
            while let Some(engine) = next.take() {
                run.push(StoredBlock { engine, local: self.nodes[&engine].local });
                let mut below = branches(Some(engine));
                if below.len() == 1 {
                    next = below.pop();
                } else {
                    open.extend(below.into_iter().map(|child| (Some(engine), child)));
                }
            }
            runs.push((parent, run));
        }
        runs
    }

    /// Blocks held or reserved by running requests.
    pub fn active_blocks(&self) -> usize {
        self.held + self.reserved
    }

    /// Blocks in use: stored or reserved.
    pub fn used_blocks(&self) -> usize {
        self.nodes.len() + self.reserved
    }

    /// Capacity in blocks.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn hold(&mut self, engine: EngineHash) {
        let node = self.nodes.get_mut(&engine).expect("only stored pages are held");
        if node.holders == 0 {
            self.held += 1;
            self.evictable.remove(&(node.released_at, engine));
        }
        node.holders += 1;
    }

    fn insert(&mut self, page: StoredBlock, parent: Option<EngineHash>) {
        if let Some(parent) = parent {
            let node = self.nodes.get_mut(&parent).expect("pages are stored in sequence order");
            node.children += 1;
        }
        self.held += 1;
        let node = Node { local: page.local, parent, children: 0, holders: 1, released_at: 0 };
        self.nodes.insert(page.engine, node);
    }

    fn remove(&mut self, engine: EngineHash) {
        let node = self.nodes.remove(&engine).expect("evictable pages are stored");
        let Some(parent) = node.parent else { return };
        let above = self.nodes.get_mut(&parent).expect("a page's parent outlives it");
        above.children -= 1;
        if above.children == 0 && above.holders == 0 {
            self.evictable.insert((above.released_at, parent));
        }
    }
}

#[cfg(test)]
mod tests;
