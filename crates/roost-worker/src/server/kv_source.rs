//! The KV events of one rank: numbered, remembered, published, and repeated to those who ask.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use roost_cluster::events::{JournalBuffer, Publisher};
use roost_cluster::record::Codec;
use roost_kv::{KvEvent, WorkerRank};
use roost_wire::message::DynamoError;
use roost_wire::{BoxFuture, Handler, Item, ItemStream, RequestContext};
use tokio_util::sync::CancellationToken;

use super::Faults;
use crate::{KvChange, KvChanges};

/// Changes taken from the engine at once.
const MAX_BATCH: usize = 256;

/// Owner of a rank's event numbers and of its memory of what was published.
#[derive(Debug)]
pub(super) struct KvSource {
    rank: WorkerRank,
    publisher: Publisher,
    memory: Mutex<JournalBuffer>,
    faults: Faults,
}

impl KvSource {
    pub(super) fn new(rank: WorkerRank, publisher: Publisher, faults: Faults) -> Self {
        Self { rank, publisher, memory: Mutex::new(JournalBuffer::new(rank)), faults }
    }

    pub(super) fn dp_rank(&self) -> u32 {
        self.rank.dp_rank
    }

    /// Numbers changes and publishes them, in order.
    pub(super) fn apply(&self, changes: Vec<KvChange>) {
        let mut memory = self.memory.lock();
        let mut events = Vec::with_capacity(changes.len());
        for KvChange { tier, data } in changes {
            let event = KvEvent { event_id: memory.newest() + 1, rank: self.rank, tier, data };
            memory.record(&event);
            if !self.faults.withholds_event() {
                events.push(event);
            }
        }
        // Under the lock, so that events leave in the order of their numbers.
        self.publisher.publish_kv_events(&events);
    }

    pub(super) fn publish_event(&self, event: &KvEvent) {
        self.publisher.publish_kv_events(std::slice::from_ref(event));
    }

    fn answer(&self, codec: roost_wire::Codec, query: &[u8]) -> Vec<u8> {
        let codec = match codec {
            roost_wire::Codec::Json => Codec::Json,
            roost_wire::Codec::Msgpack => Codec::Msgpack,
        };
        self.memory.lock().answer(codec, query)
    }
}

/// Publishes what the engine reports until the worker stops.
pub(super) async fn pump(source: Arc<KvSource>, mut changes: KvChanges, stop: CancellationToken) {
    while let Some(Some(first)) = stop.run_until_cancelled(changes.next()).await {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Some(Some(more)) = changes.next().now_or_never()
        {
            batch.push(more);
        }
        source.apply(batch);
    }
}

/// The endpoint that answers recovery queries for one rank.
#[derive(Debug)]
pub(super) struct KvQueryHandler {
    source: Arc<KvSource>,
}

impl KvQueryHandler {
    pub(super) fn new(source: Arc<KvSource>) -> Self {
        Self { source }
    }
}

impl Handler for KvQueryHandler {
    fn handle(
        &self,
        context: RequestContext,
        body: Bytes,
    ) -> BoxFuture<'static, Result<ItemStream, DynamoError>> {
        let source = self.source.clone();
        Box::pin(async move {
            let answer = Item::Encoded(source.answer(context.codec, &body).into());
            let items: ItemStream = Box::pin(stream::iter([answer]));
            Ok(items)
        })
    }
}
