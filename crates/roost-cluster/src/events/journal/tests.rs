use std::collections::BTreeSet;

use roost_kv::WorkerId;

use super::*;
use crate::events::tests::response_items;

fn rank() -> WorkerRank {
    WorkerRank::new(WorkerId(7), 1)
}

fn stored(id: u64, parent: Option<u64>, blocks: &[u64]) -> KvEvent {
    let blocks =
        blocks.iter().map(|&b| StoredBlock { engine: EngineHash(b), local: BlockHash(b + 1000) }).collect();
    let data = KvEventData::Stored { parent: parent.map(EngineHash), blocks };
    KvEvent { event_id: id, rank: rank(), tier: Tier::Device, data }
}

fn removed(id: u64, blocks: &[u64]) -> KvEvent {
    let data = KvEventData::Removed { blocks: blocks.iter().copied().map(EngineHash).collect() };
    KvEvent { event_id: id, rank: rank(), tier: Tier::Device, data }
}

fn journal(events: &[KvEvent]) -> JournalBuffer {
    let mut journal = JournalBuffer::new(rank());
    events.iter().for_each(|event| journal.record(event));
    journal
}

fn ask(journal: &JournalBuffer, start: Option<u64>, end: Option<u64>) -> KvAnswer {
    let query = KvQuery { end_event_id: end, ..KvQuery::recovery(rank(), start) };
    KvAnswer::decode(&journal.answer(Codec::Msgpack, &query.encode(Codec::Msgpack)), Codec::Msgpack).unwrap()
}

/// (tier, parent, block) of everything that a replay of the events leaves behind.
fn resident(events: &[KvEvent]) -> BTreeSet<(Tier, Option<EngineHash>, EngineHash, BlockHash)> {
    let mut blocks: BTreeSet<(Tier, Option<EngineHash>, EngineHash, BlockHash)> = BTreeSet::new();
    for event in events {
        match &event.data {
            KvEventData::Stored { parent, blocks: new } => {
                let mut parent = *parent;
                for block in new {
                    blocks.insert((event.tier, parent, block.engine, block.local));
                    parent = Some(block.engine);
                }
            }
            KvEventData::Removed { blocks: gone } => {
                blocks.retain(|(tier, _, b, _)| *tier != event.tier || !gone.contains(b))
            }
            KvEventData::Cleared => blocks.clear(),
        }
    }
    blocks
}

#[test]
fn history_is_repeated_from_where_it_is_asked() {
    let events = [stored(1, None, &[1, 2]), stored(2, Some(2), &[3]), removed(3, &[3])];
    let journal = journal(&events);
    let answer = |from: usize| KvAnswer::Events { events: events[from..].to_vec(), last_event_id: 3 };
    assert_eq!(ask(&journal, Some(1), None), answer(0));
    assert_eq!(ask(&journal, Some(3), None), answer(2));
    assert_eq!(ask(&journal, Some(2), Some(2)), answer(1), "the end does not cap the answer");
    assert_eq!(
        ask(&journal, Some(0), None).encode(Codec::Json)[..11],
        *b"{\"TreeDump\"",
        "before the first event"
    );
}

#[test]
fn refusals_equal_the_peers() {
    let mut journal = JournalBuffer::new(rank());
    let empty = response_items("kv_query_tree_dump_empty");
    assert_eq!(ask(&journal, None, None).encode(Codec::Msgpack), empty[0]);
    (1..=51).for_each(|id| journal.record(&removed(id, &[id])));
    let too_new = response_items("kv_query_too_new");
    assert_eq!(ask(&journal, Some(1_000_000_000), None).encode(Codec::Msgpack), too_new[0]);
    let invalid = response_items("kv_query_invalid_range");
    assert_eq!(ask(&journal, Some(5), Some(2)).encode(Codec::Msgpack), invalid[0]);
}

#[test]
fn replaying_the_peers_history_gives_the_peers_dump() {
    let decode = |name: &str| KvAnswer::decode(&response_items(name)[0], Codec::Msgpack).unwrap();
    let KvAnswer::Events { events, last_event_id } = decode("kv_query_events") else { panic!("not events") };
    let KvAnswer::TreeDump { events: dump, last_event_id: dump_last } = decode("kv_query_tree_dump") else {
        panic!("not a dump")
    };
    assert_eq!(last_event_id, dump_last);
    let mut journal = JournalBuffer::new(events[0].rank);
    events.iter().for_each(|event| journal.record(event));
    let KvAnswer::TreeDump { events: ours, last_event_id } = journal.dump() else { panic!("not a dump") };
    assert_eq!(last_event_id, dump_last);
    assert_eq!(resident(&ours), resident(&dump));
    assert_eq!(journal.blocks(), resident(&dump).len());
}

#[test]
fn dumps_hold_what_is_resident_parents_first() {
    let mut events = vec![
        stored(1, None, &[1, 2, 3]),
        stored(2, Some(2), &[4, 5]),
        stored(3, None, &[9]),
        stored(4, Some(3), &[6, 7]),
        removed(5, &[6, 42]),
        KvEvent { tier: Tier::Host, ..stored(6, None, &[1, 2]) },
        KvEvent { tier: Tier::Host, ..removed(7, &[2]) },
    ];
    let journal_now = journal(&events);
    let KvAnswer::TreeDump { events: dump, last_event_id: 7 } = ask(&journal_now, None, None) else {
        panic!("not a dump")
    };
    assert_eq!(resident(&dump), resident(&events));
    let mut seen = BTreeSet::new();
    for event in &dump {
        let KvEventData::Stored { parent, blocks } = &event.data else { panic!("a dump stores") };
        if let Some(parent) = parent {
            // 6 was removed under its child 7.
            assert!(
                seen.contains(&(event.tier, *parent)) || *parent == EngineHash(6),
                "{parent:?} comes late"
            );
        }
        seen.extend(blocks.iter().map(|block| (event.tier, block.engine)));
    }
    assert!(dump.len() <= 6, "chains are one event each: {dump:?}");

    events.push(KvEvent { data: KvEventData::Cleared, ..removed(8, &[]) });
    events.push(stored(9, None, &[1]));
    let journal_now = journal(&events);
    assert_eq!(journal_now.blocks(), 1);
    let since_clear = KvAnswer::Events { events: events[7..].to_vec(), last_event_id: 9 };
    assert_eq!(ask(&journal_now, Some(1), None), since_clear, "what came before a clear is of no use");
}

#[test]
fn history_is_bounded() {
    let mut journal = JournalBuffer::new(rank());
    let last = RING as u64 + 10;
    (1..=last).for_each(|id| journal.record(&stored(id, None, &[id])));
    assert!(
        matches!(ask(&journal, Some(10), None), KvAnswer::TreeDump { last_event_id, .. } if last_event_id == last)
    );
    let KvAnswer::Events { events, .. } = ask(&journal, Some(11), None) else { panic!("not events") };
    assert_eq!(events.len(), RING);
}

#[test]
fn queries_for_others_are_refused() {
    let journal = journal(&[stored(1, None, &[1])]);
    let answer = |query: &KvQuery| journal.answer_query(query);
    let query = KvQuery::recovery(rank(), None);
    assert!(matches!(answer(&KvQuery { dp_rank: 0, ..query.clone() }), KvAnswer::Error(_)));
    assert!(matches!(answer(&KvQuery { kind: Some("status".into()), ..query.clone() }), KvAnswer::Error(_)));
    assert!(matches!(answer(&KvQuery { kind: None, ..query }), KvAnswer::TreeDump { .. }));
    let garbage = journal.answer(Codec::Json, b"{");
    assert!(matches!(KvAnswer::decode(&garbage, Codec::Json).unwrap(), KvAnswer::Error(_)));
}
