//! An engine without a model: real cache bookkeeping, simulated time, scripted or drawn answers.

mod codec;
mod config;
mod items;
mod kv_log;
mod plan;
mod rank;
mod recital;
mod run;
mod transfer;
mod turns;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use roost_kv::Cut;
use roost_wire::message::{EngineOutput, EngineRequest};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

pub use codec::{DecodeFn, EncodeFn, TextCodec};
pub use config::{Answer, MockConfig, MockTiming};
pub use recital::recital;
pub use transfer::Transfers;

use crate::{Engine, EngineCard, EngineContext, EngineError, KvChanges, OutputStream, RankLoad, Role};
use rank::Rank;
use turns::Turns;

/// Items that an answer may be ahead of its reader.
const ITEM_BUFFER: usize = 64;

/// A simulated engine; see [`MockConfig`] for what can be set.
///
/// - Each rank keeps a prefix cache of pages, admits requests in order, prefills one prompt at a time
///   at the configured rate (only what is not cached), and then generates at a fixed pace.
/// - All time is tokio time: under a paused clock answers take no time and are the same every run.
/// - Prompts may choose scripts; see [`ScriptBook`](crate::ScriptBook).
#[derive(Debug)]
pub struct MockEngine {
    shared: Arc<Shared>,
}

/// What the engine's requests share.
#[derive(Debug)]
struct Shared {
    config: MockConfig,
    card: EngineCard,
    ranks: Vec<Arc<Rank>>,
    load: watch::Sender<Vec<RankLoad>>,
    /// Next rank to try when the request names none.
    next_rank: AtomicUsize,
    turns: Turns,
}

impl MockEngine {
    /// Makes an engine with empty caches.
    ///
    /// # Panics
    /// If `block_size`, `dp_size`, `max_num_seqs` or `tokens_per_item` is 0.
    pub fn new(config: MockConfig) -> Self {
        for (name, value) in [
            ("block_size", config.block_size as usize),
            ("dp_size", config.dp_size as usize),
            ("max_num_seqs", config.max_num_seqs),
            ("tokens_per_item", config.tokens_per_item),
        ] {
            assert!(value > 0, "{name} must be at least 1");
        }
        let card = card(&config);
        let idle =
            |dp_rank| RankLoad { dp_rank, total_blocks: config.total_blocks as u64, ..RankLoad::default() };
        let load = watch::Sender::new(card.ranks().map(idle).collect());
        let rank = |(index, dp_rank)| {
            Rank::new(
                dp_rank,
                index,
                Cut { block_size: config.block_size, eagle: config.eagle },
                config.total_blocks,
                config.max_num_seqs,
                load.clone(),
            )
        };
        let ranks = card.ranks().enumerate().map(rank).collect();
        let shared =
            Shared { config, card, ranks, load, next_rank: AtomicUsize::new(0), turns: Turns::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Empties the caches, except for what running requests hold.
    pub fn flush_cache(&self) {
        self.shared.ranks.iter().for_each(|rank| rank.flush());
    }

    /// The settings.
    pub fn config(&self) -> &MockConfig {
        &self.shared.config
    }
}

impl Engine for MockEngine {
    fn card(&self) -> &EngineCard {
        &self.shared.card
    }

    /// Must be called within a tokio runtime.
    fn generate(&self, request: EngineRequest, context: EngineContext) -> OutputStream {
        let (items, stream) = mpsc::channel(ITEM_BUFFER);
        let task = tokio::spawn(run::run(self.shared.clone(), request, context, items));
        Box::pin(AnswerStream { stream, _task: AbortOnDropHandle::new(task) })
    }

    fn kv_changes(&self, dp_rank: u32) -> Option<KvChanges> {
        let shared = &self.shared;
        let index = dp_rank.checked_sub(shared.config.dp_start_rank)? as usize;
        let rank = shared.ranks.get(index).filter(|_| shared.config.kv_events)?;
        Some(Box::pin(rank.changes()))
    }

    fn load(&self) -> watch::Receiver<Vec<RankLoad>> {
        self.shared.load.subscribe()
    }
}

impl Shared {
    /// The rank that serves a request: the one named, else on prefill engines the one that its room
    /// stands for, else the least loaded one, ties in turn.
    fn choose_rank(&self, request: &EngineRequest) -> Result<&Arc<Rank>, EngineError> {
        let (start, size) = (self.config.dp_start_rank, self.config.dp_size);
        let named =
            request.routing.as_ref().and_then(|routing| routing.dp_rank).filter(|rank| *rank != u32::MAX);
        if let Some(named) = named {
            let index = named.checked_sub(start).map(|index| index as usize);
            return index.and_then(|index| self.ranks.get(index)).ok_or_else(|| {
                EngineError::InvalidRequest(format!(
                    "dp_rank={named} out of range [{start}, {})",
                    start + size
                ))
            });
        }
        if self.config.role == Role::Prefill
            && let Some(info) = &request.bootstrap_info
        {
            return Ok(&self.ranks[(info.bootstrap_room % self.ranks.len() as u64) as usize]);
        }
        let first = self.next_rank.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..self.ranks.len()).map(|step| &self.ranks[(first + step) % self.ranks.len()]);
        Ok(in_turn.min_by_key(|rank| rank.depth()).expect("there is at least one rank"))
    }
}

fn card(config: &MockConfig) -> EngineCard {
    EngineCard {
        model_name: config.model_name.clone(),
        aliases: config.aliases.clone(),
        role: config.role,
        files: config.files.clone(),
        context_length: config.context_length,
        kv_block_size: config.block_size,
        eagle: config.eagle,
        total_kv_blocks: config.total_blocks as u64,
        max_num_seqs: config.max_num_seqs as u64,
        max_num_batched_tokens: 8192,
        dp_start_rank: config.dp_start_rank,
        dp_size: config.dp_size,
        publishes_kv_events: config.kv_events,
        tool_call_parser: config.tool_call_parser.clone(),
        reasoning_parser: config.reasoning_parser.clone(),
        bootstrap: config.bootstrap.clone(),
        runtime_config: config.runtime_config.clone(),
        runtime_data: config.runtime_data.clone(),
    }
}

/// The reader's end of an answer; dropping it aborts the request.
struct AnswerStream {
    stream: mpsc::Receiver<Result<EngineOutput, EngineError>>,
    _task: AbortOnDropHandle<()>,
}

impl Stream for AnswerStream {
    type Item = Result<EngineOutput, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_recv(context)
    }
}

#[cfg(test)]
mod tests;
