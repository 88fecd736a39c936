//! The indexes behind one face. Events are converted before the clock starts.

use std::sync::Mutex;

use dynamo_kv_router::indexer::concurrent_radix_tree_compressed::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::{KvIndexerInterface, ThreadPoolIndexer};
use dynamo_kv_router::protocols as dynamo;
use kv_index::{ChainBlockMap, ChainIndex, ContentHash};
use roost_kv::{
    BlockHash, EngineHash, Index, KvEvent, KvEventData, SequenceHash, StoredBlock, Tier, WorkerId, WorkerRank,
};

use crate::workload::Event;

pub trait Subject: Sync {
    type Event: Send;
    type Prompt: Sync;
    fn store(&self, event: &Event) -> Self::Event;
    fn remove(&self, event: &Event) -> Self::Event;
    fn prompt(&self, local: &[u64], sequence: &[u64]) -> Self::Prompt;
    fn apply(&self, event: Self::Event);
    /// Returns when all events so far are visible.
    fn flush(&self) {}
    /// Returns the number of workers matched and the sum of their blocks.
    fn lookup(&self, prompt: &Self::Prompt) -> (usize, u64);
}

#[derive(Default)]
pub struct Roost(Index);

impl Subject for Roost {
    type Event = KvEvent;
    type Prompt = Vec<SequenceHash>;

    fn store(&self, event: &Event) -> KvEvent {
        let blocks = event.local.iter().zip(&event.sequence);
        let blocks = blocks
            .map(|(local, sequence)| StoredBlock { engine: EngineHash(*sequence), local: BlockHash(*local) });
        let data = KvEventData::Stored { parent: event.parent.map(EngineHash), blocks: blocks.collect() };
        let rank = WorkerRank::new(WorkerId(event.worker), 0);
        KvEvent { event_id: 1, rank, tier: Tier::Device, data }
    }

    fn remove(&self, event: &Event) -> KvEvent {
        let data =
            KvEventData::Removed { blocks: event.sequence.iter().map(|hash| EngineHash(*hash)).collect() };
        let rank = WorkerRank::new(WorkerId(event.worker), 0);
        KvEvent { event_id: 1, rank, tier: Tier::Device, data }
    }

    fn prompt(&self, _: &[u64], sequence: &[u64]) -> Self::Prompt {
        sequence.iter().map(|hash| SequenceHash(*hash)).collect()
    }

    fn apply(&self, event: KvEvent) {
        self.0.apply(&event);
    }

    fn lookup(&self, prompt: &Self::Prompt) -> (usize, u64) {
        let overlap = self.0.overlap(prompt);
        (overlap.owners().len(), overlap.owners().iter().map(|owner| u64::from(owner.device)).sum())
    }
}

pub struct Dynamo {
    pool: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
    runtime: tokio::runtime::Runtime,
}

impl Dynamo {
    pub fn new(threads: usize, block_size: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let pool = {
            let _entered = runtime.enter();
            ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), threads, block_size)
        };
        Self { pool, runtime }
    }

    fn event(&self, event: &Event, data: dynamo::KvCacheEventData) -> dynamo::RouterEvent {
        dynamo::RouterEvent::new(event.worker, dynamo::KvCacheEvent { event_id: 1, dp_rank: 0, data })
    }
}

impl Subject for Dynamo {
    type Event = dynamo::RouterEvent;
    type Prompt = Vec<dynamo::LocalBlockHash>;

    fn store(&self, event: &Event) -> Self::Event {
        let blocks = event.local.iter().zip(&event.sequence);
        let blocks = blocks.map(|(local, sequence)| dynamo::KvCacheStoredBlockData {
            block_hash: dynamo::ExternalSequenceBlockHash(*sequence),
            tokens_hash: dynamo::LocalBlockHash(*local),
            mm_extra_info: None,
        });
        let data = dynamo::KvCacheStoreData {
            parent_hash: event.parent.map(dynamo::ExternalSequenceBlockHash),
            start_position: None,
            blocks: blocks.collect(),
        };
        self.event(event, dynamo::KvCacheEventData::Stored(data))
    }

    fn remove(&self, event: &Event) -> Self::Event {
        let block_hashes =
            event.sequence.iter().map(|hash| dynamo::ExternalSequenceBlockHash(*hash)).collect();
        self.event(event, dynamo::KvCacheEventData::Removed(dynamo::KvCacheRemoveData { block_hashes }))
    }

    fn prompt(&self, local: &[u64], _: &[u64]) -> Self::Prompt {
        local.iter().map(|hash| dynamo::LocalBlockHash(*hash)).collect()
    }

    fn apply(&self, event: Self::Event) {
        self.pool.enqueue_event(event).expect("the pool runs");
    }

    fn flush(&self) {
        self.runtime.block_on(self.pool.flush_and_wait()).expect("the pool runs");
    }

    fn lookup(&self, prompt: &Self::Prompt) -> (usize, u64) {
        let scores = self.pool.backend().find_matches_impl(prompt, false);
        (scores.scores.len(), scores.scores.values().map(|blocks| u64::from(*blocks)).sum())
    }
}

impl Drop for Dynamo {
    fn drop(&mut self) {
        self.pool.shutdown();
    }
}

pub struct Chain {
    index: ChainIndex,
    lanes: Vec<(u32, Mutex<ChainBlockMap>)>,
}

impl Chain {
    pub fn new() -> Self {
        let index = ChainIndex::new();
        let lanes = (0..64)
            .map(|id| (index.intern_worker(&format!("w{id}")).expect("there is room"), Mutex::default()))
            .collect();
        Self { index, lanes }
    }
}

pub enum ChainEvent {
    Store(usize, Option<kv_index::SequenceHash>, Vec<kv_index::StoredBlock>),
    Remove(usize, Vec<kv_index::SequenceHash>),
}

impl Subject for Chain {
    type Event = ChainEvent;
    type Prompt = Vec<ContentHash>;

    fn store(&self, event: &Event) -> ChainEvent {
        let blocks = event.local.iter().zip(&event.sequence);
        let blocks = blocks.map(|(local, sequence)| kv_index::StoredBlock {
            seq_hash: kv_index::SequenceHash(*sequence),
            content_hash: ContentHash(*local),
        });
        let parent = event.parent.map(kv_index::SequenceHash);
        ChainEvent::Store(event.worker as usize, parent, blocks.collect())
    }

    fn remove(&self, event: &Event) -> ChainEvent {
        let hashes = event.sequence.iter().map(|hash| kv_index::SequenceHash(*hash)).collect();
        ChainEvent::Remove(event.worker as usize, hashes)
    }

    fn prompt(&self, local: &[u64], _: &[u64]) -> Self::Prompt {
        local.iter().map(|hash| ContentHash(*hash)).collect()
    }

    fn apply(&self, event: ChainEvent) {
        match event {
            ChainEvent::Store(worker, parent, blocks) => {
                let (id, map) = &self.lanes[worker];
                let mut map = map.lock().expect("no thread panics");
                self.index.apply_stored(*id, &blocks, parent, &mut map).expect("the parent is there");
            }
            ChainEvent::Remove(worker, hashes) => {
                let (id, map) = &self.lanes[worker];
                self.index.apply_removed(*id, &hashes, &mut map.lock().expect("no thread panics"));
            }
        }
    }

    fn lookup(&self, prompt: &Self::Prompt) -> (usize, u64) {
        let (mut workers, mut blocks) = (0, 0);
        self.index.score_into(
            prompt,
            |hash| hash.0,
            false,
            |_, score| {
                workers += 1;
                blocks += u64::from(score);
            },
        );
        (workers, blocks)
    }
}
