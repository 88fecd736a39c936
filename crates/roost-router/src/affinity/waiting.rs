//! Bindings to workers that are not known yet: kept until the worker joins or their time is over.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use roost_kv::WorkerId;

use super::SavedBinding;

/// The bindings by worker, bounded in all.
#[derive(Debug)]
pub(crate) struct Waiting {
    capacity: usize,
    len: usize,
    workers: HashMap<WorkerId, HashMap<String, (Instant, SavedBinding), Random>, Random>,
}

type Random = foldhash::fast::RandomState;

impl Waiting {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, len: 0, workers: HashMap::default() }
    }

    /// Keeps a binding. False if there are too many.
    pub(crate) fn keep(&mut self, now: Instant, binding: SavedBinding) -> bool {
        if self.len >= self.capacity {
            return false;
        }
        let kept = self.workers.entry(binding.rank.worker).or_default();
        self.len += usize::from(kept.insert(binding.session.clone(), (now, binding)).is_none());
        true
    }

    /// Takes the bindings of a worker out, their idle time brought up to date.
    pub(crate) fn take(&mut self, now: Instant, worker: WorkerId) -> Vec<SavedBinding> {
        let kept = self.workers.remove(&worker).unwrap_or_default();
        self.len -= kept.len();
        let aged = |(since, mut binding): (Instant, SavedBinding)| {
            binding.idle += now.saturating_duration_since(since);
            binding
        };
        kept.into_values().map(aged).collect()
    }

    /// Drops bindings that have been idle for `ttl`.
    pub(crate) fn expire(&mut self, now: Instant, ttl: Duration) {
        let lives = |(since, binding): &(Instant, SavedBinding)| {
            binding.idle + now.saturating_duration_since(*since) < ttl
        };
        self.workers.values_mut().for_each(|kept| kept.retain(|_, binding| lives(binding)));
        self.workers.retain(|_, kept| !kept.is_empty());
        self.len = self.workers.values().map(HashMap::len).sum();
    }

    /// Returns the bindings, their idle time brought up to date.
    pub(crate) fn all(&self, now: Instant) -> impl Iterator<Item = SavedBinding> + '_ {
        self.workers.values().flat_map(HashMap::values).map(move |(since, binding)| SavedBinding {
            idle: binding.idle + now.saturating_duration_since(*since),
            ..binding.clone()
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
