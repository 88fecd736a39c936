use std::collections::HashMap;

use futures_util::{FutureExt, StreamExt};
use roost_kv::hash::{BASE_SEED, block_hashes, sequence_hashes};
use roost_kv::{EngineHash, KvEventData, Tier};

use super::{answer, engine, request};
use crate::{Engine, KvChange, KvChanges, MockEngine};

/// The plainest model of a cache: blocks and their parents.
#[derive(Debug, Default, PartialEq)]
struct Model(HashMap<EngineHash, Option<EngineHash>>);

impl Model {
    fn apply(&mut self, change: KvChange) {
        assert_eq!(change.tier, Tier::Device);
        match change.data {
            KvEventData::Stored { parent, blocks } => {
                let mut parent = parent;
                for block in blocks {
                    assert!(parent.is_none_or(|parent| self.0.contains_key(&parent)), "an orphan");
                    assert!(self.0.insert(block.engine, parent).is_none(), "stored twice");
                    parent = Some(block.engine);
                }
            }
            KvEventData::Removed { blocks } => {
                blocks
                    .iter()
                    .for_each(|block| assert!(self.0.remove(block).is_some(), "removed what is not there"));
            }
            KvEventData::Cleared => self.0.clear(),
        }
    }

    /// Applies everything that is ready.
    fn drain(&mut self, changes: &mut KvChanges) -> usize {
        let mut count = 0;
        while let Some(Some(change)) = changes.next().now_or_never() {
            self.apply(change);
            count += 1;
        }
        count
    }

    fn of(engine: &MockEngine) -> Self {
        let mut model = Self::default();
        model.drain(&mut engine.kv_changes(0).unwrap());
        model
    }
}

#[tokio::test]
async fn prompt_pages_come_after_prefill_and_generated_ones_at_the_end() {
    let engine = engine(|_| {});
    let mut changes = engine.kv_changes(0).unwrap();
    let wanted = request("hello world", 6);
    let answered = super::ids(&answer(&engine, wanted.clone()).await.unwrap());
    let whole = [&wanted.token_ids[..], &answered].concat();
    let local = block_hashes(&whole, 4, BASE_SEED);
    let names: Vec<EngineHash> = sequence_hashes(&local).iter().map(|hash| EngineHash(hash.0)).collect();
    let mut stored = Vec::new();
    while let Some(Some(change)) = changes.next().now_or_never() {
        let KvEventData::Stored { parent, blocks } = change.data else { panic!("nothing is removed") };
        stored.push((parent, blocks.iter().map(|block| block.engine).collect::<Vec<_>>()));
        assert!(blocks.iter().all(|block| local.contains(&block.local)));
    }
    assert_eq!(stored, [(None, names[..2].to_vec()), (Some(names[1]), names[2..].to_vec())]);
}

#[tokio::test]
async fn replayed_changes_give_what_the_rank_holds() {
    let engine = engine(|config| config.total_blocks = 20);
    let mut changes = engine.kv_changes(0).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let mut model = Model::default();
    for round in 0..200 {
        let prompt: String = (0..random.usize(1..40)).map(|_| random.char('a'..'c')).collect();
        answer(&engine, request(&prompt, random.u32(0..8))).await.unwrap();
        if round % 50 == 49 {
            engine.flush_cache();
        }
        model.drain(&mut changes);
        assert_eq!(model.0.len() as u64, engine.load().borrow()[0].used_blocks, "round {round}");
    }
    assert_eq!(model, Model::default(), "the last round flushed");
    answer(&engine, request("hello world", 4)).await.unwrap();
    model.drain(&mut changes);
    assert_eq!(model, Model::of(&engine));
    assert!(!model.0.is_empty());
    assert!(changes.next().await.is_none(), "a new subscriber ends the stream of the old one");
}

#[tokio::test]
async fn a_subscriber_far_behind_gets_the_content_anew() {
    let engine = engine(|config| config.total_blocks = 64);
    let mut changes = engine.kv_changes(0).unwrap();
    let mut model = Model::default();
    answer(&engine, request("first prompt", 1)).await.unwrap();
    model.drain(&mut changes);
    for round in 0..6000 {
        answer(&engine, request(&format!("{round:08}{round:08}"), 1)).await.unwrap();
    }
    let count = model.drain(&mut changes);
    assert!(count < 200, "{count} changes instead of twelve thousand");
    assert_eq!(model.0.len() as u64, engine.load().borrow()[0].used_blocks);
    answer(&engine, request("afterwards", 1)).await.unwrap();
    assert!(model.drain(&mut changes) > 0, "and goes on");
    assert_eq!(model, Model::of(&engine));
}

#[test]
fn ranks_without_events_have_no_stream() {
    assert!(engine(|config| config.kv_events = false).kv_changes(0).is_none());
    let engine = engine(|config| (config.dp_start_rank, config.dp_size) = (2, 2));
    let known: Vec<bool> = (0..5).map(|rank| engine.kv_changes(rank).is_some()).collect();
    assert_eq!(known, [false, false, true, true, false]);
}
