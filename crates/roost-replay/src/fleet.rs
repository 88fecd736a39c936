//! Simulated ranks: a prefix cache with a budget, prefill one prompt after the other, decode beside it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use roost_kv::SequenceHash;

use cache::Cache;

mod cache;

/// The workers that a trace is replayed against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetConfig {
    /// Workers.
    pub workers: u32,
    /// Data-parallel ranks of each.
    pub ranks: u32,
    /// KV cache of a rank, tokens.
    pub cache_tokens: u64,
    /// Speed of prefill, tokens a second and rank.
    pub prefill_speed: f64,
    /// Time from token to token with one running request.
    pub decode_step: Duration,
    /// What each further running request adds to it.
    pub decode_step_each: Duration,
    /// Prompt tokens a rank computes at once: what the router's queue threshold is a multiple of.
    pub max_batched_tokens: u64,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            workers: 16,
            ranks: 1,
            cache_tokens: 2_000_000,
            prefill_speed: 16_000.0,
            decode_step: Duration::from_millis(8),
            decode_step_each: Duration::from_micros(250),
            max_batched_tokens: 16_384,
        }
    }
}

/// A prompt on a rank.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Number of the request.
    pub(crate) request: usize,
    pub(crate) blocks: Arc<[SequenceHash]>,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
}

/// A rank that computes.
#[derive(Debug)]
pub(crate) struct Rank {
    block_size: u32,
    cache: Cache,
    /// Blocks of running requests that are not in the cache: incomplete ones and answers.
    reserved: u64,
    waiting: VecDeque<Job>,
    prefilling: bool,
    pub(crate) running: u32,
    /// Prompt tokens computed in all.
    pub(crate) computed: u64,
}

/// A prefill that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) job: Job,
    /// Leading blocks that were cached.
    pub(crate) cached: u32,
    /// Blocks that had to make room.
    pub(crate) evicted: Vec<SequenceHash>,
    pub(crate) takes: Duration,
}

impl Rank {
    pub(crate) fn new(config: &FleetConfig, block_size: u32) -> Self {
        let capacity = config.cache_tokens / u64::from(block_size);
        Self {
            block_size,
            cache: Cache::new(usize::try_from(capacity).unwrap_or(usize::MAX)),
            reserved: 0,
            waiting: VecDeque::new(),
            prefilling: false,
            running: 0,
            computed: 0,
        }
    }

    pub(crate) fn accept(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Begins the next prefill if none runs and the running requests leave room for it. The prompt's blocks are in the
    /// cache from now on; they are to be told of when it ends.
    pub(crate) fn begin(&mut self, config: &FleetConfig) -> Option<Begun> {
        if self.prefilling {
            return None;
        }
        let job = self.waiting.front()?;
        let need = job.blocks.len() as u64 + self.extra(job);
        let capacity = self.cache.capacity() as u64;
        // A request that is too large for an empty rank has to run somewhere all the same.
        if self.running > 0 && self.cache.pinned() as u64 + self.reserved + need > capacity {
            return None;
        }
        let job = self.waiting.pop_front()?;
        self.prefilling = true;
        self.running += 1;
        self.reserved += self.extra(&job);
        let cached = self.cache.matched(&job.blocks);
        let evicted = self.cache.take(&job.blocks, usize::try_from(self.reserved).unwrap_or(usize::MAX));
        // Of a prompt that is cached as a whole the last token is computed again.
        let tokens = (job.prompt_tokens - (cached * self.block_size).min(job.prompt_tokens)).max(1);
        self.computed += u64::from(tokens);
        let takes = Duration::from_secs_f64(f64::from(tokens) / config.prefill_speed.max(1.0));
        Some(Begun { job, cached, evicted, takes })
    }

    /// The prefill has ended. Returns how long the answer takes.
    pub(crate) fn decode(&mut self, config: &FleetConfig, job: &Job) -> Duration {
        self.prefilling = false;
        let step = config.decode_step + config.decode_step_each * self.running.saturating_sub(1);
        step * job.output_tokens.saturating_sub(1)
    }

    /// The answer has ended.
    pub(crate) fn finish(&mut self, job: &Job) {
        self.running -= 1;
        self.reserved -= self.extra(job);
        self.cache.give_back(&job.blocks);
    }

    fn extra(&self, job: &Job) -> u64 {
        let all = (u64::from(job.prompt_tokens) + u64::from(job.output_tokens))
            .div_ceil(u64::from(self.block_size));
        all.saturating_sub(job.blocks.len() as u64)
    }
}
