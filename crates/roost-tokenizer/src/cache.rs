//! Ids of prompt segments that were encoded before, shared by all sessions and models of a process.

mod fingerprint;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use fingerprint::Fingerprinter;

const SHARDS: usize = 16;

/// What an entry takes beside its ids: key, pointer and counters of the list, slack of table and allocator.
const ENTRY_BYTES: usize = 80;

/// A cache of segments' ids with a budget of bytes.
///
/// It keeps no text: a segment is known by a keyed 122-bit fingerprint whose collisions cannot be provoked from
/// outside. An entry costs 4 bytes per token and 80 more. What was not used for about half a budget's worth of new
/// entries is forgotten. One lookup holds one of 16 locks for the time of one table access.
#[derive(Debug)]
pub struct SegmentCache {
    fingerprinter: Fingerprinter,
    shards: [Mutex<Shard>; SHARDS],
    /// Of one generation of one shard.
    budget: usize,
    next_space: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    cached_tokens: AtomicU64,
    uncached_tokens: AtomicU64,
}

/// Counters of a [`SegmentCache`] since its start, and its size now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Segments found.
    pub hits: u64,
    /// Segments encoded.
    pub misses: u64,
    /// Tokens of segments found.
    pub cached_tokens: u64,
    /// Tokens of segments encoded.
    pub uncached_tokens: u64,
    /// Segments held.
    pub entries: usize,
    /// Bytes held, [`SegmentCache`] tells how they are counted; never more than the budget.
    pub bytes: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    entries: HashMap<u128, Arc<[u32]>>,
    bytes: usize,
}

impl SegmentCache {
    /// An empty cache that grows up to `budget` bytes.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self {
            fingerprinter: Fingerprinter::random(),
            shards: Default::default(),
            budget: budget / (2 * SHARDS),
            next_space: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            uncached_tokens: AtomicU64::new(0),
        }
    }

    /// Whether anything fits into it.
    pub(crate) fn is_on(&self) -> bool {
        self.budget > ENTRY_BYTES
    }

    /// Counters and size.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            cached_tokens: self.cached_tokens.load(Ordering::Relaxed),
            uncached_tokens: self.uncached_tokens.load(Ordering::Relaxed),
            ..CacheStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            stats.entries += shard.young.entries.len() + shard.old.entries.len();
            stats.bytes += shard.young.bytes + shard.old.bytes;
        }
        stats
    }

    /// A name space nobody else has: one way to encode of one tokenizer.
    pub(crate) fn space(&self) -> u64 {
        self.next_space.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends the ids of `text` to `ids`, made by `encode` when they are not known.
    pub(crate) fn extend<E>(
        &self,
        space: u64,
        text: &str,
        ids: &mut Vec<u32>,
        encode: impl FnOnce() -> Result<Vec<u32>, E>,
    ) -> Result<(), E> {
        let key = self.fingerprinter.of(space, text.as_bytes());
        let shard = &self.shards[(key as usize) % SHARDS];
        let known = shard.lock().unwrap_or_else(PoisonError::into_inner).get(key, self.budget);
        if let Some(known) = known {
            count(&self.hits, &self.cached_tokens, known.len());
            ids.extend_from_slice(&known);
            return Ok(());
        }
        let new: Arc<[u32]> = encode()?.into();
        count(&self.misses, &self.uncached_tokens, new.len());
        ids.extend_from_slice(&new);
        let dropped = shard.lock().unwrap_or_else(PoisonError::into_inner).insert(key, new, self.budget);
        // Freed without the lock.
        drop(dropped);
        Ok(())
    }
}

fn count(segments: &AtomicU64, tokens: &AtomicU64, number: usize) {
    segments.fetch_add(1, Ordering::Relaxed);
    tokens.fetch_add(number as u64, Ordering::Relaxed);
}

fn cost(ids: &[u32]) -> usize {
    ENTRY_BYTES + size_of_val(ids)
}

impl Shard {
    /// Looks up; what is found counts as new again.
    fn get(&mut self, key: u128, budget: usize) -> Option<Arc<[u32]>> {
        if let Some(ids) = self.young.entries.get(&key) {
            return Some(Arc::clone(ids));
        }
        let ids = self.old.entries.remove(&key)?;
        self.old.bytes -= cost(&ids);
        drop(self.insert(key, Arc::clone(&ids), budget));
        Some(ids)
    }

    /// Adds an entry; returns the generation that had to go for it.
    #[must_use = "to be freed without the lock"]
    fn insert(&mut self, key: u128, ids: Arc<[u32]>, budget: usize) -> Option<Generation> {
        let cost = cost(&ids);
        if cost > budget {
            return None;
        }
        let mut gone = None;
        if self.young.bytes + cost > budget {
            gone = Some(std::mem::replace(&mut self.old, std::mem::take(&mut self.young)));
        }
        if self.young.entries.insert(key, ids).is_none() {
            self.young.bytes += cost;
        }
        gone
    }
}

#[cfg(test)]
pub(crate) mod tests;
