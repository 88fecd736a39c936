//! One data-parallel rank: its cache, its queues, and what a running sequence holds of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use parking_lot::Mutex;
use roost_kv::hash::next_sequence_hash;
use roost_kv::{Blocks, Cut, EngineHash, SequenceHash, StoredBlock};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use super::kv_log::KvLog;
use crate::cache::{Admission, PrefixCache};
use crate::{EngineError, KvChange, RankLoad};

/// Changes that a slow subscriber may be behind before it gets the content anew.
const LOG_CAPACITY: usize = 8192;

/// One rank. Owner of its cache; sequences hold parts of it through [`Sequence`].
#[derive(Debug)]
pub(super) struct Rank {
    dp_rank: u32,
    /// Position in the load list.
    index: usize,
    cut: Cut,
    state: Mutex<State>,
    /// Sequences that may run.
    slots: Arc<Semaphore>,
    /// Whose turn it is to be admitted and prefilled; fair.
    prefill: Semaphore,
    /// Signals that blocks were given back.
    freed: Notify,
    load: watch::Sender<Vec<RankLoad>>,
}

#[derive(Debug)]
struct State {
    cache: PrefixCache,
    log: KvLog,
    waiting: u64,
    running: u64,
    prefill_tokens: u64,
}

impl Rank {
    pub(super) fn new(
        dp_rank: u32,
        index: usize,
        cut: Cut,
        total_blocks: usize,
        max_num_seqs: usize,
        load: watch::Sender<Vec<RankLoad>>,
    ) -> Arc<Self> {
        let state = State {
            cache: PrefixCache::new(total_blocks),
            log: KvLog::new(LOG_CAPACITY),
            waiting: 0,
            running: 0,
            prefill_tokens: 0,
        };
        Arc::new(Self {
            dp_rank,
            index,
            cut,
            state: Mutex::new(state),
            slots: Arc::new(Semaphore::new(max_num_seqs)),
            prefill: Semaphore::new(1),
            freed: Notify::new(),
            load,
        })
    }

    /// Queues a sequence for `prompt` that will generate up to `output_tokens`.
    ///
    /// Fails when the sequence could not fit even if it were alone.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        prompt: &[u32],
        seed: u64,
        output_tokens: usize,
    ) -> Result<Sequence, EngineError> {
        let block_size = self.cut.block_size as usize;
        let blocks = Blocks::compute(prompt, self.cut, seed);
        let total = (prompt.len() + output_tokens).div_ceil(block_size);
        let mut state = self.state.lock();
        if total > state.cache.capacity() {
            return Err(EngineError::InvalidRequest(format!(
                "requested token count exceeds the KV capacity: {} tokens in the prompt and {output_tokens} to \
                 generate, {} at most",
                prompt.len(),
                state.cache.capacity() * block_size
            )));
        }
        let tail = prompt[blocks.len() * block_size..].to_vec();
        let chain: Vec<StoredBlock> = blocks
            .local
            .iter()
            .zip(blocks.sequence.iter())
            .map(|(local, name)| block(*local, *name))
            .collect();
        state.waiting += 1;
        state.prefill_tokens += prompt.len() as u64;
        self.publish(&state);
        drop(state);
        Ok(Sequence {
            rank: self.clone(),
            seed,
            prompt_tokens: prompt.len(),
            chain,
            extra_blocks: total - blocks.len(),
            tail,
            pending_prefill: prompt.len() as u64,
            cached_tokens: 0,
            admission: None,
            slot: None,
        })
    }

    /// Subscribes to the changes of the cache; see [`KvLog`].
    pub(super) fn changes(self: &Arc<Self>) -> Changes {
        let mut state = self.state.lock();
        let State { cache, log, .. } = &mut *state;
        Changes { rank: self.clone(), subscription: log.subscribe(cache) }
    }

    /// Forgets every page that no running sequence holds.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        let removed = state.cache.clear_unheld();
        state.log.push_removed(removed);
        self.publish(&state);
    }

    /// Requests that run or wait.
    pub(super) fn depth(&self) -> u64 {
        let state = self.state.lock();
        state.running + state.waiting
    }

    fn publish(&self, state: &State) {
        let load = RankLoad {
            dp_rank: self.dp_rank,
            running_requests: state.running,
            waiting_requests: state.waiting,
            active_blocks: state.cache.active_blocks() as u64,
            active_prefill_tokens: state.prefill_tokens,
            used_blocks: state.cache.used_blocks() as u64,
            total_blocks: state.cache.capacity() as u64,
        };
        self.load.send_if_modified(|loads| {
            let changed = loads[self.index] != load;
            loads[self.index] = load;
            changed
        });
    }
}

/// A sequence on its rank: queued, admitted, prefilled, then generating. Dropping it gives back what it
/// holds; full pages of what it generated stay in the cache.
#[derive(Debug)]
pub(super) struct Sequence {
    rank: Arc<Rank>,
    seed: u64,
    prompt_tokens: usize,
    /// Full blocks of the prompt, then of what was generated.
    chain: Vec<StoredBlock>,
    /// Blocks beyond those of the prompt's full ones.
    extra_blocks: usize,
    /// Tokens behind the last full block, prompt and generated.
    tail: Vec<u32>,
    pending_prefill: u64,
    cached_tokens: usize,
    admission: Option<Admission>,
    slot: Option<OwnedSemaphorePermit>,
}

/// The turn of a sequence to be prefilled; others of the rank wait until it is dropped.
pub(super) type PrefillTurn<'a> = SemaphorePermit<'a>;

impl Sequence {
    /// Waits for a slot, for the sequence's turn and for room. Cancel safe.
    pub(super) async fn admit<'a>(&mut self, rank: &'a Rank) -> PrefillTurn<'a> {
        let slot = rank.slots.clone().acquire_owned().await.expect("slots are never closed");
        let turn = rank.prefill.acquire().await.expect("the prefill turn is never closed");
        loop {
            let freed = rank.freed.notified();
            {
                let mut state = rank.state.lock();
                let mut removed = Vec::new();
                if let Ok(admission) = state.cache.admit(&self.chain, self.extra_blocks, &mut removed) {
                    state.log.push_removed(removed);
                    self.cached_tokens = admission.held_pages() * rank.cut.block_size as usize;
                    let uncached = (self.prompt_tokens - self.cached_tokens) as u64;
                    state.prefill_tokens = state.prefill_tokens - self.pending_prefill + uncached;
                    state.waiting -= 1;
                    state.running += 1;
                    self.pending_prefill = uncached;
                    self.admission = Some(admission);
                    self.slot = Some(slot);
                    rank.publish(&state);
                    return turn;
                }
            }
            freed.await;
        }
    }

    /// Stores the pages of the prompt, which are computed now.
    pub(super) fn prefilled(&mut self) {
        let mut state = self.rank.state.lock();
        state.prefill_tokens -= std::mem::take(&mut self.pending_prefill);
        let State { cache, log, .. } = &mut *state;
        if let Some(admission) = &mut self.admission {
            log.push_stored(&cache.store(admission, &self.chain));
        }
        self.rank.publish(&state);
    }

    /// Notes generated tokens.
    pub(super) fn generated(&mut self, tokens: &[u32]) {
        self.tail.extend_from_slice(tokens);
    }

    /// Prompt tokens that were in the cache.
    pub(super) fn cached_tokens(&self) -> usize {
        self.cached_tokens
    }

    /// Full blocks of what was generated. The last token was sampled but never computed: it has no KV, and can only be
    /// the one behind a block.
    fn chain_generated(&mut self) {
        if !self.rank.cut.eagle {
            self.tail.pop();
        }
        let mut parent = self.chain.last().map(|block| SequenceHash(block.engine.0));
        for &local in &*Blocks::compute(&self.tail, self.rank.cut, self.seed).local {
            let name = next_sequence_hash(parent, local);
            self.chain.push(block(local, name));
            parent = Some(name);
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let prefill_done = self.pending_prefill == 0;
        if self.admission.is_some() && prefill_done {
            self.chain_generated();
        }
        let mut state = self.rank.state.lock();
        state.prefill_tokens -= self.pending_prefill;
        let State { cache, log, waiting, running, .. } = &mut *state;
        if let Some(mut admission) = self.admission.take() {
            if prefill_done {
                log.push_stored(&cache.store(&mut admission, &self.chain));
            }
            cache.release(admission);
            *running -= 1;
        } else {
            *waiting -= 1;
        }
        self.rank.publish(&state);
        drop(state);
        self.rank.freed.notify_one();
    }
}

/// The changes of one rank's cache, for one subscriber.
#[derive(Debug)]
pub(super) struct Changes {
    rank: Arc<Rank>,
    subscription: u64,
}

impl Stream for Changes {
    type Item = KvChange;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<KvChange>> {
        let mut state = self.rank.state.lock();
        let State { cache, log, .. } = &mut *state;
        log.poll_next(self.subscription, cache, context)
    }
}

fn block(local: roost_kv::BlockHash, name: SequenceHash) -> StoredBlock {
    StoredBlock { engine: EngineHash(name.0), local }
}
