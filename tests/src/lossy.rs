//! An engine some of whose KV events are lost before anybody could count them.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use roost_wire::message::EngineRequest;
use roost_worker::{Engine, EngineCard, EngineContext, KvChanges, MockEngine, OutputStream, RankLoad};
use tokio::sync::watch;

/// A mock engine that loses one change in so many of its cache.
#[derive(Debug)]
pub struct Lossy {
    engine: MockEngine,
    one_in: u64,
    /// Says which are lost, in the same way in each run.
    streams: AtomicU64,
}

impl Lossy {
    /// Loses one change in `one_in`, at least 1.
    pub fn new(engine: MockEngine, one_in: u64) -> Self {
        Self { engine, one_in: one_in.max(1), streams: AtomicU64::new(0) }
    }
}

impl Engine for Lossy {
    fn card(&self) -> &EngineCard {
        self.engine.card()
    }

    fn generate(&self, request: EngineRequest, context: EngineContext) -> OutputStream {
        self.engine.generate(request, context)
    }

    fn kv_changes(&self, dp_rank: u32) -> Option<KvChanges> {
        let changes = self.engine.kv_changes(dp_rank)?;
        let one_in = self.one_in;
        let mut number = self.streams.fetch_add(1, Ordering::Relaxed);
        Some(Box::pin(changes.filter(move |_| {
            number += 1;
            std::future::ready(!number.is_multiple_of(one_in))
        })))
    }

    fn load(&self) -> watch::Receiver<Vec<RankLoad>> {
        self.engine.load()
    }
}
