//! The worker's memory of what it published, from which it answers recovery queries.

use std::collections::VecDeque;

use foldhash::HashMap;
use roost_kv::{BlockHash, EngineHash, KvEvent, KvEventData, StoredBlock, Tier, WorkerRank};

use super::query::{KvAnswer, KvQuery};
use crate::record::Codec;

/// Events that can be repeated one by one.
const RING: usize = 1024;
/// Blocks of one event of a dump; the limit of a published message, for the same reason: bounded work per event.
const DUMP_EVENT_BLOCKS: usize = 8192;

/// History and state of one rank. Pure; the owner locks.
#[derive(Debug)]
pub struct JournalBuffer {
    rank: WorkerRank,
    ring: VecDeque<KvEvent>,
    newest: u64,
    tiers: [HashMap<EngineHash, Held>; 4],
    /// Numbers blocks in the order in which they came, so that dumps are reproducible.
    arrivals: u64,
}

#[derive(Debug)]
struct Held {
    parent: Option<EngineHash>,
    local: BlockHash,
    arrival: u64,
}

impl JournalBuffer {
    /// An empty journal.
    pub fn new(rank: WorkerRank) -> Self {
        Self { rank, ring: VecDeque::new(), newest: 0, tiers: Default::default(), arrivals: 0 }
    }

    /// The newest event recorded; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Blocks held, over all tiers.
    pub fn blocks(&self) -> usize {
        self.tiers.iter().map(|tier| tier.len()).sum()
    }

    /// Notes an event that is being published. Events must come in order; those of another rank are refused.
    pub fn record(&mut self, event: &KvEvent) {
        if event.rank != self.rank {
            return;
        }
        let tier = &mut self.tiers[event.tier.index()];
        match &event.data {
            KvEventData::Stored { parent, blocks } => {
                let mut parent = *parent;
                for block in blocks {
                    self.arrivals += 1;
                    let held = Held { parent, local: block.local, arrival: self.arrivals };
                    tier.entry(block.engine).or_insert(held);
                    parent = Some(block.engine);
                }
            }
            KvEventData::Removed { blocks } => {
                for block in blocks {
                    tier.remove(block);
                }
            }
            KvEventData::Cleared => self.tiers.iter_mut().for_each(|tier| tier.clear()),
        }
        self.newest = event.event_id;
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        self.ring.push_back(event.clone());
    }

    /// Answers an encoded query with an encoded response item, both in `codec`.
    pub fn answer(&self, codec: Codec, request: &[u8]) -> Vec<u8> {
        let answer = match KvQuery::decode(request, codec) {
            Ok(query) => self.answer_query(&query),
            Err(error) => KvAnswer::Error(error.to_string()),
        };
        answer.encode(codec)
    }

    /// Answers a query.
    pub fn answer_query(&self, query: &KvQuery) -> KvAnswer {
        if query.kind.as_deref().is_some_and(|kind| kind != "recovery") {
            return KvAnswer::Error(format!("queries of kind {:?} are not served", query.kind));
        }
        if (query.worker_id, query.dp_rank) != (self.rank.worker.0, self.rank.dp_rank) {
            return KvAnswer::Error(format!(
                "this is worker {} rank {}",
                self.rank.worker, self.rank.dp_rank
            ));
        }
        let Some(start) = query.start_event_id else { return self.dump() };
        if let Some(end) = query.end_event_id.filter(|&end| end < start) {
            return KvAnswer::InvalidRange { start_id: start, end_id: end };
        }
        if start > self.newest {
            return KvAnswer::TooNew {
                requested_start: Some(start),
                requested_end: query.end_event_id.or(Some(self.newest)),
                newest_available: self.newest,
            };
        }
        if self.ring.front().is_none_or(|oldest| start < oldest.event_id) {
            return self.dump();
        }
        let wanted = self.ring.partition_point(|event| event.event_id < start);
        let clear = self.ring.iter().skip(wanted).rposition(|event| event.data == KvEventData::Cleared);
        KvAnswer::Events {
            events: self.ring.iter().skip(wanted + clear.unwrap_or(0)).cloned().collect(),
            last_event_id: self.newest,
        }
    }

    fn dump(&self) -> KvAnswer {
        let mut events = Vec::new();
        for tier in Tier::ALL {
            self.dump_tier(tier, &mut events);
        }
        KvAnswer::TreeDump { events, last_event_id: self.newest }
    }

    /// Writes parents before children, and unbranched chains as one event. Blocks whose parent is gone begin chains of
    /// their own and keep its name, so that they find their place when it comes back.
    fn dump_tier(&self, tier: Tier, events: &mut Vec<KvEvent>) {
        let blocks = &self.tiers[tier.index()];
        let mut children: HashMap<EngineHash, Vec<EngineHash>> = HashMap::default();
        let mut starts: Vec<EngineHash> = Vec::new();
        for (&engine, held) in blocks {
            match held.parent.filter(|parent| blocks.contains_key(parent)) {
                Some(parent) => children.entry(parent).or_default().push(engine),
                None => starts.push(engine),
            }
        }
        let arrival = |engine: &EngineHash| std::cmp::Reverse(blocks[engine].arrival);
        children.values_mut().for_each(|list| list.sort_unstable_by_key(arrival));
        starts.sort_unstable_by_key(arrival);
        while let Some(start) = starts.pop() {
            let mut chain = Vec::new();
            let mut next = Some(start);
            while let Some(engine) = next.take() {
                chain.push(StoredBlock { engine, local: blocks[&engine].local });
                match children.remove(&engine) {
                    Some(list) if list.len() == 1 && chain.len() < DUMP_EVENT_BLOCKS => next = Some(list[0]),
                    Some(list) => starts.extend(list),
                    None => {}
                }
            }
            let data = KvEventData::Stored { parent: blocks[&start].parent, blocks: chain };
            events.push(KvEvent { event_id: events.len() as u64, rank: self.rank, tier, data });
        }
    }
}

#[cfg(test)]
mod tests;
