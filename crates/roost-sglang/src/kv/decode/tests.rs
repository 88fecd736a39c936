use roost_kv::{Index, KvEvent, WorkerId, WorkerRank};
use serde_json::Value;

use super::*;

/// Payloads of a capture, with what is in them.
fn captured(name: &str) -> Vec<(Vec<u8>, Value)> {
    let path = format!("{}/../../tests/fixtures/sglang/{name}", env!("CARGO_MANIFEST_DIR"));
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let hex = |text: &str| {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let messages = json.as_array().unwrap();
    messages.iter().map(|m| (hex(m["payload_hex"].as_str().unwrap()), m["payload"].clone())).collect()
}

#[test]
fn captured_batches_say_what_the_engine_said() {
    let mut stored = 0;
    for name in [
        "agg.kv_events.json",
        "hicache.kv_events.json",
        "dp2.kv_events.rank1.json",
        "pd.prefill.kv_events.json",
    ] {
        for (payload, said) in captured(name) {
            let changes = batch(&payload, 16.into()).unwrap();
            let events = said[1].as_array().unwrap();
            assert_eq!(changes.len(), events.len(), "{name}: {said}");
            for (change, event) in changes.iter().zip(events) {
                let tier = if event["medium"] == "CPU_PINNED" { Tier::Host } else { Tier::Device };
                assert_eq!(change.tier, tier, "{name}: {event}");
                match &change.data {
                    KvEventData::Stored { parent, blocks } => {
                        stored += blocks.len();
                        assert_eq!(event["type"], "BlockStored");
                        assert_eq!(parent.map(|hash| hash.0 as i64), event["parent_block_hash"].as_i64());
                        let tokens: Vec<u32> = event["token_ids"]
                            .as_array()
                            .unwrap()
                            .iter()
                            .map(|id| id.as_u64().unwrap() as u32)
                            .collect();
                        let contents =
                            hash::block_hashes(&tokens, 16, hash::seed(None, event["cache_salt"].as_str()));
                        assert_eq!(blocks.iter().map(|block| block.local).collect::<Vec<_>>(), contents);
                    }
                    KvEventData::Removed { blocks } => {
                        assert_eq!(event["type"], "BlockRemoved");
                        assert_eq!(blocks.len(), event["block_hashes"].as_array().unwrap().len());
                    }
                    KvEventData::Cleared => assert_eq!(event["type"], "AllBlocksCleared"),
                }
            }
        }
    }
    assert!(stored > 20, "{stored}");
}

/// The chain of a captured prompt is found in an index that was fed with its events.
#[test]
fn a_captured_prompt_is_found_again() {
    let rank = WorkerRank::new(WorkerId(7), 0);
    let index = Index::new();
    let mut prompt: Vec<u32> = Vec::new();
    for (number, (payload, said)) in captured("agg.kv_events.json").into_iter().enumerate().take(2) {
        for event in said[1].as_array().unwrap() {
            let ids = event["token_ids"].as_array().into_iter().flatten();
            prompt.extend(ids.map(|id| id.as_u64().unwrap() as u32));
        }
        for KvChange { tier, data } in batch(&payload, 16.into()).unwrap() {
            index.apply(&KvEvent { event_id: number as u64, rank, tier, data });
        }
    }
    assert_eq!(prompt.len(), 64);
    prompt.extend([1, 2, 3]);
    let blocks = roost_kv::Blocks::compute(&prompt, 16, hash::seed(None, None));
    let overlap = index.overlap(&blocks.sequence);
    assert_eq!(overlap.get(rank).device, 4, "{overlap:?}");
}

fn pack(value: &impl serde::Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

#[test]
fn arrays_bytes_pairs_and_salts() {
    let tokens: Vec<u32> = (0..4).collect();
    let bytes = serde_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let positional = ("BlockStored", [bytes], None::<i64>, &tokens, 4, None::<i64>, "CPU_PINNED");
    let changes = batch(&pack(&(1.5, [positional], 0)), 4.into()).unwrap();
    let KvEventData::Stored { parent: None, blocks } = &changes[0].data else { panic!("{changes:?}") };
    assert_eq!(changes[0].tier, Tier::Host);
    assert_eq!(blocks[0].engine, EngineHash(0x0102_0304_0506_0708));
    let plain = hash::block_hashes(&tokens, 4, hash::seed(None, None));
    assert_eq!(blocks[0].local, plain[0]);

    let pairs: Vec<(u32, u32)> = (0..4).map(|id| (id, id + 1)).collect();
    let event = serde_json::json!({
        "block_hashes": [-1], "parent_block_hash": 5, "token_ids": pairs, "block_size": 4, "lora_id": null,
        "type": "BlockStored", "future": {"x": [1]},
    });
    let eagle = hash::eagle_block_hashes(&[0, 1, 2, 3, 4], 4, hash::seed(None, None));
    for (cut, local) in [(4.into(), plain[0]), (Cut { block_size: 4, eagle: true }, eagle[0])] {
        let changes = batch(&pack(&(1.5, [event.clone()], 0, "more")), cut).unwrap();
        let KvEventData::Stored { parent, blocks } = &changes[0].data else { panic!("{changes:?}") };
        assert_eq!(
            (*parent, blocks[0].engine, blocks[0].local),
            (Some(EngineHash(5)), EngineHash(u64::MAX), local)
        );
    }

    let mut salted = event;
    salted["cache_salt"] = "s".into();
    let changes = batch(&pack(&(1.5, [salted.clone()])), 4.into()).unwrap();
    let KvEventData::Stored { blocks, .. } = &changes[0].data else { panic!("{changes:?}") };
    assert_eq!(blocks[0].local, hash::block_hashes(&tokens, 4, hash::seed(None, Some("s")))[0]);

    // None of these is a prompt's: another size, an adapter without a name, another kind of cache, an unknown place.
    let without = |key: &str, value: Value| {
        let mut event = salted.clone();
        event[key] = value;
        batch(&pack(&(1.5, [event])), 4.into()).unwrap()
    };
    assert!(without("block_size", 8.into()).is_empty());
    assert!(without("lora_id", 3.into()).is_empty());
    assert!(without("kv_cache_spec_kind", "sliding_window".into()).is_empty());
    assert!(without("medium", "MARS".into()).is_empty());
    assert!(without("type", "BlockMoved".into()).is_empty());
    assert_eq!(without("kv_cache_spec_kind", "full_attention".into()).len(), 1);
}

/// Bytes as MessagePack's own type for them.
fn serde_bytes(bytes: &'static [u8]) -> impl serde::Serialize {
    struct Raw(&'static [u8]);
    impl serde::Serialize for Raw {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }
    Raw(bytes)
}

/// Damaged payloads give errors, never more.
#[test]
fn damaged_payloads_are_errors() {
    let (payload, _) = captured("agg.kv_events.json").swap_remove(1);
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = payload.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        let _either = batch(&bytes, 16.into());
    }
    assert!(
        batch(b"", 16.into()).is_err()
            && batch(b"\x90", 16.into()).is_err()
            && batch(b"\x91\x01", 16.into()).is_err()
    );
}
