use bytes::Bytes;
use roost_kv::{BlockHash, EngineHash, KvEvent, KvEventData, StoredBlock, Tier, WorkerId, WorkerRank};
use serde_json::{Value, json};

use super::kv::is_void;
use super::*;
use crate::record::{Codec, Topic};

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../tests/fixtures/wire/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn json_fixture(name: &str) -> Value {
    serde_json::from_slice(&fixture(name)).unwrap()
}

fn unhex(text: &Value) -> Bytes {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The raw `data` items of a captured response stream.
pub(crate) fn response_items(name: &str) -> Vec<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Item {
        #[serde(default)]
        data: Option<serde::de::IgnoredAny>,
    }
    let bytes = fixture(&format!("response/{name}.bin"));
    let (mut rest, mut items) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let length = |at: usize| u64::from_be_bytes(rest[at..at + 8].try_into().unwrap()) as usize;
        let (header, body) = (length(0), length(8));
        let frame = &rest[24 + header..24 + header + body];
        if body > 0 && rmp_serde::from_slice::<Item>(frame).unwrap().data.is_some() {
            // {"data": ITEM, "complete_final": false}: a map of two, a string of four, then the item.
            assert_eq!(frame[..6], *b"\x82\xa4data");
            let tail = b"\xaecomplete_final\xc2";
            assert!(frame.ends_with(tail));
            items.push(frame[6..frame.len() - tail.len()].to_vec());
        }
        rest = &rest[24 + header + body..];
    }
    items
}

/// What an event of a fixture must have become.
fn expected(event: &Value) -> KvEvent {
    let id = |value: &Value| value.as_u64().unwrap();
    let hashes = |list: &Value| list.as_array().unwrap().iter().map(|hash| EngineHash(id(hash))).collect();
    let inner = &event["event"];
    let data = match &inner["data"] {
        Value::String(name) if name == "cleared" => KvEventData::Cleared,
        data if data["stored"].is_object() => KvEventData::Stored {
            parent: data["stored"]["parent_hash"].as_u64().map(EngineHash),
            blocks: data["stored"]["blocks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|b| StoredBlock {
                    engine: EngineHash(id(&b["block_hash"])),
                    local: BlockHash(id(&b["tokens_hash"])),
                })
                .collect(),
        },
        data => KvEventData::Removed { blocks: hashes(&data["removed"]["block_hashes"]) },
    };
    let rank = WorkerRank::new(WorkerId(id(&event["worker_id"])), id(&inner["dp_rank"]) as u32);
    assert_eq!(event["storage_tier"], "device");
    KvEvent { event_id: id(&inner["event_id"]), rank, tier: Tier::Device, data }
}

#[test]
fn captured_kv_events_decode_and_encode_to_the_same_bytes() {
    let messages = json_fixture("event/kv_events.json");
    for message in messages["messages"].as_array().unwrap() {
        let frames: Vec<Bytes> = message["frames_hex"].as_array().unwrap().iter().map(unhex).collect();
        let envelope = Envelope::from_frames(&frames).unwrap();
        assert_eq!(envelope.publisher_id, message["publisher_id"]);
        assert_eq!(envelope.sequence, message["sequence"]);
        assert_eq!(envelope.published_at_ms, message["envelope"]["published_at"]);
        let events = decode_kv_events(&envelope.payload).unwrap();
        let wanted: Vec<KvEvent> = message["payload"].as_array().unwrap().iter().map(expected).collect();
        assert_eq!(events, wanted);
        assert_eq!(encode_kv_events(&events), envelope.payload, "sequence {}", envelope.sequence);
        assert_eq!(envelope.encode(), frames[3][5..]);
        let message = envelope.to_message();
        assert!(message.windows(frames[3].len()).any(|window| window == frames[3]));
    }
}

#[test]
fn captured_loads_decode_and_encode_to_the_same_bytes() {
    for message in json_fixture("event/kv_metrics.json")["messages"].as_array().unwrap() {
        let frames: Vec<Bytes> = message["frames_hex"].as_array().unwrap().iter().map(unhex).collect();
        let envelope = Envelope::from_frames(&frames).unwrap();
        let load = Load::decode(&envelope.payload).unwrap();
        assert_eq!(load.worker_id, message["payload"]["worker_id"]);
        assert_eq!(load.kv_used_blocks, message["payload"]["kv_used_blocks"].as_u64());
        assert_eq!(load.encode(), envelope.payload);
    }
}

fn captured(name: &str) -> Vec<(Envelope, Value)> {
    let envelope = |message: &Value| match message.get("frames_hex") {
        Some(frames) => {
            let frames: Vec<Bytes> = frames.as_array().unwrap().iter().map(unhex).collect();
            Envelope::from_frames(&frames).unwrap()
        }
        None => Envelope::decode(&unhex(&message["message_hex"])).unwrap(),
    };
    let all = json_fixture(&format!("event/{name}.json"));
    let messages = all["messages"].as_array().unwrap().iter();
    messages.map(|message| (envelope(message), message["payload"].clone())).collect()
}

#[test]
fn captured_bindings_decode_and_encode_to_the_same_bytes() {
    let messages = captured("router_sync_session_affinity_events");
    assert_eq!(messages.len(), 4);
    for (envelope, payload) in messages {
        assert_eq!(Topic::named(&envelope.topic), Some(Topic::SessionAffinity));
        let binding = BindingEvent::decode(&envelope.payload).unwrap();
        assert_eq!(serde_json::to_value(&binding).unwrap(), payload);
        assert_eq!(binding.encode(), envelope.payload);
    }
    let worker_only = json!({"session_id": "s", "worker_id": 7, "sequence": 2, "writer_id": 3, "later": 1});
    let binding = BindingEvent::decode(&rmp_serde::to_vec_named(&worker_only).unwrap()).unwrap();
    assert_eq!((binding.worker, binding.dp_rank), (WorkerId(7), None));
    assert!(BindingEvent::decode(b"\x80").is_err());
}

#[test]
fn captured_sequence_events_decode_and_encode_to_the_same_bytes() {
    let of_workers = captured("active_sequences_events");
    let of_routers = captured("router_sync_active_sequences_events");
    let (mut begun, mut steps) = (0, 0);
    for (envelope, payload) in of_workers.into_iter().chain(of_routers) {
        let events = SequenceEvent::decode(&envelope.payload).unwrap();
        assert_eq!(SequenceEvent::encode_batch(&events), envelope.payload);
        for (event, wanted) in events.iter().zip(payload["events"].as_array().unwrap()) {
            steps += 1;
            assert_eq!(event.request_id, wanted["request_id"].as_str().unwrap());
            assert_eq!(event.rank.worker.0, wanted["worker"]["worker_id"]);
            assert_eq!(event.origin, wanted["router_id"]);
            if let SequenceStep::Begun(load) = &event.step {
                begun += 1;
                let wanted = &wanted["data"]["AddRequest"];
                let blocks: Vec<u64> =
                    load.blocks.iter().flat_map(|blocks| blocks.iter()).map(|hash| hash.0).collect();
                assert_eq!(json!(blocks), wanted["token_sequence"]);
                assert_eq!(
                    json!(load.prefill_tokens),
                    wanted["prefill_load_hint"]["initial_effective_prefill_tokens"]
                );
                assert!(load.counts_prefill && load.prefill_duration.is_none());
            }
        }
    }
    assert!(begun >= 2 && steps >= 10, "{begun} {steps}");
}

#[test]
fn over_nats_a_sequence_event_comes_alone() {
    let (envelope, payload) = captured("nats_messages")
        .into_iter()
        .find(|(envelope, _)| Topic::named(&envelope.topic) == Some(Topic::ActiveSequences))
        .unwrap();
    let events = SequenceEvent::decode(&envelope.payload).unwrap();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.request_id, payload["request_id"].as_str().unwrap());
    assert_eq!(event.step, SequenceStep::PrefillCompleted);
    assert_eq!(event.encode(), envelope.payload);

    // What the captures do not show: an estimate, and a placement without hashes.
    let step = SequenceStep::Begun(SequenceBegun {
        prefill_tokens: Some(9),
        prefill_duration: Some(std::time::Duration::new(1, 5)),
        ..SequenceBegun::default()
    });
    let event = SequenceEvent { step, ..event.clone() };
    let wire: Value = rmp_serde::from_slice(&event.encode()).unwrap();
    let hint = &wire["data"]["AddRequest"]["prefill_load_hint"];
    assert_eq!(hint["expected_prefill_duration"], json!({"secs": 1, "nanos": 5}));
    assert_eq!(SequenceEvent::decode(&event.encode()).unwrap(), [event]);
    for bad in [json!({}), json!({"request_id": "r", "router_id": 1}), json!([]), json!({"events": 3})] {
        assert!(SequenceEvent::decode(&rmp_serde::to_vec_named(&bad).unwrap()).is_err(), "{bad}");
    }
}

#[test]
fn every_captured_envelope_decodes() {
    let mut seen = 0;
    for name in [
        "active_sequences_events",
        "forward_pass_metrics",
        "router_sync_active_sequences_events",
        "nats_messages",
    ] {
        for message in json_fixture(&format!("event/{name}.json"))["messages"].as_array().unwrap() {
            let envelope = match message.get("frames_hex") {
                Some(frames) => {
                    let frames: Vec<Bytes> = frames.as_array().unwrap().iter().map(unhex).collect();
                    Envelope::from_frames(&frames).unwrap()
                }
                None => Envelope::decode(&unhex(&message["message_hex"])).unwrap(),
            };
            assert_eq!(envelope.topic, message["envelope"]["topic"].as_str().unwrap());
            assert_eq!(envelope.sequence, message["envelope"]["sequence"]);
            seen += 1;
        }
    }
    assert!(seen > 8, "only {seen} envelopes");
}

#[test]
fn envelopes_that_disagree_with_their_frames_are_refused() {
    let messages = json_fixture("event/kv_events.json");
    let frames: Vec<Bytes> =
        messages["messages"][0]["frames_hex"].as_array().unwrap().iter().map(unhex).collect();
    assert!(Envelope::from_frames(&frames[..3]).is_err());
    for (frame, at) in [(0, 0), (1, 7), (2, 7), (3, 0), (3, 4)] {
        let mut bad = frames.clone();
        let mut bytes = bad[frame].to_vec();
        bytes[at] ^= 2;
        bad[frame] = bytes.into();
        assert!(Envelope::from_frames(&bad).is_err(), "frame {frame} byte {at}");
    }
    let mut cut = frames.clone();
    cut[3] = cut[3].slice(..3);
    assert!(Envelope::from_frames(&cut).is_err());
}

#[test]
fn domains_tiers_and_unknown_kinds() {
    let rank = WorkerRank::new(WorkerId(u64::MAX), 3);
    let decode = |tier: Value, domain: Value, data: Value| {
        let mut event = json!({"worker_id": u64::MAX, "future": [1],
            "event": {"event_id": 9, "dp_rank": 3, "data": data, "more": null}});
        for (key, value) in [("storage_tier", tier), ("residency_domain", domain)] {
            if value != json!("absent") {
                event[key] = value;
            }
        }
        let mut events = decode_kv_events(&rmp_serde::to_vec_named(&json!([event])).unwrap()).unwrap();
        assert_eq!((events[0].rank, events[0].event_id), (rank, 9));
        events.remove(0)
    };
    let removed = || json!({"removed": {"block_hashes": [7], "extra": true}});
    let stored = || {
        json!({"stored": {"blocks": [{"block_hash": 1, "tokens_hash": 2,
        "mm_extra_info": {"mm_objects": [{"mm_hash": 5, "offsets": [[0, 4]]}]}}]}})
    };

    for (name, tier) in [
        ("device", Tier::Device),
        ("host_pinned", Tier::Host),
        ("disk", Tier::Disk),
        ("external", Tier::External),
    ] {
        assert_eq!(decode(json!(name), json!("worker"), removed()).tier, tier);
    }
    let plain = decode(json!("absent"), json!("absent"), stored());
    let block = StoredBlock { engine: EngineHash(1), local: BlockHash(2) };
    assert_eq!(plain.data, KvEventData::Stored { parent: None, blocks: vec![block] });
    assert_eq!(plain.tier, Tier::Device);

    assert_eq!(decode(json!("absent"), json!("absent"), json!("cleared")).data, KvEventData::Cleared);
    assert_eq!(decode(json!("absent"), json!("worker"), json!("cleared")).data, KvEventData::Cleared);
    for (tier, domain, data) in [
        (json!("device"), json!("cache_owner"), json!("cleared")),
        (json!("device"), json!("cache_owner"), stored()),
        (json!("device"), json!("moon"), removed()),
        (json!("tape"), json!("worker"), stored()),
        (json!("device"), json!("worker"), json!("exploded")),
        (json!("device"), json!("worker"), json!({"moved": {"to": 1}})),
    ] {
        assert!(is_void(&decode(tier.clone(), domain.clone(), data)), "{tier} {domain}");
    }
    assert!(decode_kv_events(b"\xc0").is_err());
    assert!(decode_kv_events(&fixture("event/kv_events_zmtp_pub.bin")).is_err());
}

#[test]
fn captured_recovery_answers_decode_and_encode_to_the_same_bytes() {
    for name in ["tree_dump_empty", "tree_dump", "events", "events_end_ignored", "too_new", "invalid_range"] {
        let items = response_items(&format!("kv_query_{name}"));
        assert_eq!(items.len(), 1, "{name}");
        let answer = KvAnswer::decode(&items[0], Codec::Msgpack).unwrap();
        assert_eq!(answer.encode(Codec::Msgpack), items[0], "{name}");
        let by_json = KvAnswer::decode(&answer.encode(Codec::Json), Codec::Json).unwrap();
        assert_eq!(by_json, answer, "{name}");

        let frames = json_fixture(&format!("response/kv_query_{name}.json"));
        let wanted = &frames["frames"][2]["data"]["data"];
        let events = |kind: &str| -> Vec<KvEvent> {
            wanted[kind]["events"].as_array().unwrap().iter().map(expected).collect()
        };
        let last = |kind: &str| wanted[kind]["last_event_id"].as_u64().unwrap();
        match answer {
            KvAnswer::TreeDump { events: got, last_event_id } => {
                assert_eq!((got, last_event_id), (events("TreeDump"), last("TreeDump")));
            }
            KvAnswer::Events { events: got, last_event_id } => {
                assert_eq!((got, last_event_id), (events("Events"), last("Events")));
            }
            KvAnswer::TooNew { newest_available, .. } => {
                assert_eq!(newest_available, wanted["TooNew"]["newest_available"]);
            }
            KvAnswer::InvalidRange { start_id, .. } => {
                assert_eq!(start_id, wanted["InvalidRange"]["start_id"])
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn the_initial_query_equals_the_peers() {
    let frame = fixture("request/kv_query_initial.bin");
    let described = json_fixture("request/kv_query_initial.json");
    let body = &frame[frame.len() - described["body_len"].as_u64().unwrap() as usize..];
    let worker = WorkerId(described["body"]["worker_id"].as_u64().unwrap());
    let query = KvQuery::recovery(WorkerRank::new(worker, 0), None);
    assert_eq!(query.encode(Codec::Msgpack), body);
    assert_eq!(KvQuery::decode(body, Codec::Msgpack).unwrap(), query);
    assert_eq!(KvQuery::decode(&query.encode(Codec::Json), Codec::Json).unwrap(), query);
}

#[test]
fn other_answers_are_understood() {
    let failed = json!({"TreeDumpFailed": {"last_event_id": 4, "message": "busy"}});
    let decoded = KvAnswer::decode(&rmp_serde::to_vec_named(&failed).unwrap(), Codec::Msgpack).unwrap();
    assert_eq!(decoded, KvAnswer::TreeDumpFailed { last_event_id: Some(4), message: Some("busy".into()) });
    assert_eq!(KvAnswer::decode(b"{\"Error\":\"no\"}", Codec::Json).unwrap(), KvAnswer::Error("no".into()));
    assert!(KvAnswer::decode(b"{\"Status\":{}}", Codec::Json).is_err());
    let dump = |scope: Value| {
        let mut dump = json!({"events": [], "last_event_id": 3, "later": 1});
        if !scope.is_null() {
            dump["reset_scope"] = scope;
        }
        KvAnswer::decode(json!({"TreeDump": dump}).to_string().as_bytes(), Codec::Json)
    };
    for scope in [json!("all"), json!({"domain": "worker"}), json!(null)] {
        assert_eq!(dump(scope).unwrap(), KvAnswer::TreeDump { events: vec![], last_event_id: 3 });
    }
    assert!(dump(json!({"domain": "cache_owner"})).is_err(), "it would replace what it does not tell of");
}

#[test]
fn cursor_steps() {
    let mut cursor = Cursor::default();
    assert_eq!((cursor.last(), cursor.step(40)), (None, Step::Initial));
    cursor.advance(40);
    for (id, step) in [
        (41, Step::Next),
        (40, Step::Stale),
        (0, Step::Stale),
        (42, Step::Gap { from: 41 }),
        (u64::MAX, Step::Gap { from: 41 }),
    ] {
        assert_eq!(cursor.step(id), step, "{id}");
    }
    cursor.advance(39);
    assert_eq!(cursor, Cursor::at(40), "never backwards");
    assert_eq!(Cursor::at(0).step(1), Step::Next, "after an empty dump the first event is the next one");
    assert_eq!(Cursor::at(u64::MAX).step(u64::MAX), Step::Stale);
}
