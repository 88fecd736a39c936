//! The bounded queue between a rank's cache and the subscriber of its changes.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use roost_kv::{EngineHash, KvEventData, StoredBlock};

use crate::KvChange;
use crate::cache::PrefixCache;

/// Blocks per stored change, so that one change fits any message.
const MAX_BLOCKS: usize = 1024;

/// Changes that wait for the subscriber. Owned by the rank, under its lock.
///
/// When the subscriber falls behind by more than the capacity, the queue is dropped and the content of
/// the cache is sent anew: the subscriber misses steps, never the result.
#[derive(Debug)]
pub(super) struct KvLog {
    capacity: usize,
    queue: VecDeque<KvChange>,
    /// Number of the present subscription; 0 before the first.
    subscription: u64,
    stale: bool,
    waker: Option<Waker>,
}

impl KvLog {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, queue: VecDeque::new(), subscription: 0, stale: false, waker: None }
    }

    /// Starts a subscription and ends the one before it.
    pub(super) fn subscribe(&mut self, cache: &PrefixCache) -> u64 {
        self.subscription += 1;
        self.stale = false;
        self.queue.clear();
        self.queue.extend(cache.snapshot().into_iter().flat_map(|(parent, run)| stored(parent, &run)));
        self.wake();
        self.subscription
    }

    pub(super) fn push_stored(&mut self, runs: &[(Option<EngineHash>, Vec<StoredBlock>)]) {
        for (parent, run) in runs {
            stored(*parent, run).into_iter().for_each(|change| self.push(change));
        }
    }

    pub(super) fn push_removed(&mut self, blocks: Vec<EngineHash>) {
        if !blocks.is_empty() {
            self.push(KvChange::device(KvEventData::Removed { blocks }));
        }
    }

    fn push(&mut self, change: KvChange) {
        if self.subscription == 0 || self.stale {
            return;
        }
        if self.queue.len() >= self.capacity {
            self.queue.clear();
            self.stale = true;
        } else {
            self.queue.push_back(change);
        }
        self.wake();
    }

    /// The next change of `subscription`; `None` when a later one has replaced it.
    pub(super) fn poll_next(
        &mut self,
        subscription: u64,
        cache: &PrefixCache,
        context: &mut Context<'_>,
    ) -> Poll<Option<KvChange>> {
        if subscription != self.subscription {
            return Poll::Ready(None);
        }
        if self.stale {
            self.stale = false;
            self.queue.push_back(KvChange::CLEARED);
            self.queue.extend(cache.snapshot().into_iter().flat_map(|(parent, run)| stored(parent, &run)));
        }
        if let Some(change) = self.queue.pop_front() {
            return Poll::Ready(Some(change));
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Cuts a run of stored blocks into changes of at most [`MAX_BLOCKS`].
fn stored(parent: Option<EngineHash>, run: &[StoredBlock]) -> Vec<KvChange> {
    let mut parent = parent;
    run.chunks(MAX_BLOCKS)
        .map(|blocks| {
            let change = KvChange::device(KvEventData::Stored { parent, blocks: blocks.to_vec() });
            parent = blocks.last().map(|block| block.engine);
            change
        })
        .collect()
}
