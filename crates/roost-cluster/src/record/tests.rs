use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;

fn fixture(name: &str) -> Value {
    let path: PathBuf =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/wire/discovery")).join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn recode(bucket: &str, json: &[u8]) -> (RecordKey, Vec<u8>) {
    match bucket {
        "v1/instances" => {
            let record = InstanceRecord::decode(json).unwrap();
            (record.key(), record.encode())
        }
        "v1/mdc" => {
            let record = CardRecord::decode(json).unwrap();
            (record.key(), record.encode())
        }
        "v1/event_channels" => {
            let record = EventChannelRecord::decode(json).unwrap();
            (record.key(), record.encode())
        }
        "v1/event_sources" => {
            let record = EventSourceRecord::decode(json).unwrap();
            (record.key(), record.encode())
        }
        other => panic!("unknown bucket {other}"),
    }
}

#[test]
fn captured_records_round_trip() {
    let mut seen = 0;
    for name in ["mocker_agg", "mocker_pd", "sglang_agg", "sglang_agg_json_codec", "sglang_pd"] {
        let fixture = fixture(&format!("{name}.json"));
        for entry in fixture["records"].as_array().unwrap() {
            let stored = serde_json::to_vec(&entry["value"]).unwrap();
            let bucket = entry["bucket"].as_str().unwrap();
            let (key, encoded) = recode(bucket, &stored);
            assert_eq!(key.key, entry["key"], "{name}");
            assert_eq!(key.bucket.path(), bucket, "{name}");
            assert_eq!(serde_json::from_slice::<Value>(&encoded).unwrap(), entry["value"], "{name} {key}");
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} records checked");
}

#[test]
fn mdcsum_equals_the_peers() {
    let vectors = fixture("mdcsum_vectors.json");
    for vector in vectors["vectors"].as_array().unwrap() {
        let card: ModelCard = serde_json::from_value(vector["card_json"].clone()).unwrap();
        assert_eq!(card.mdcsum(), vector["mdc_sum"].as_str().unwrap(), "{}", vector["run"]);
    }
}

#[test]
fn ids_keep_all_64_bits() {
    let record = InstanceRecord {
        component: "backend".into(),
        endpoint: "generate".into(),
        namespace: "dynamo".into(),
        instance_id: u64::MAX,
        transport: TransportAddress::Tcp("127.0.0.1:1/x".into()),
        device_type: None,
        request_plane_codec: None,
    };
    assert_eq!(InstanceRecord::decode(&record.encode()).unwrap().instance_id, u64::MAX);
    assert_eq!(record.key().key, "dynamo/backend/generate/ffffffffffffffff");
}

#[test]
fn targets() {
    let with = |address: &str| InstanceRecord {
        component: "c".into(),
        endpoint: "e".into(),
        namespace: "n".into(),
        instance_id: 1,
        transport: TransportAddress::Tcp(address.into()),
        device_type: None,
        request_plane_codec: None,
    };
    let target = with("127.0.0.1:18461/1/n/c/e").target().unwrap();
    assert_eq!(target.address, "127.0.0.1:18461".parse().unwrap());
    assert_eq!(target.path, "1/n/c/e");
    assert_eq!(target.codec, Codec::Json, "no codec in the record means json");
    assert_eq!(with("tcp://[::1]:9/1/n/c/e").target().unwrap().address, "[::1]:9".parse().unwrap());
    for bad in ["host:1/x", "127.0.0.1/x", "127.0.0.1:1", ""] {
        assert!(with(bad).target().is_err(), "{bad}");
    }
    let nats = InstanceRecord { transport: TransportAddress::NatsTcp("subject".into()), ..with("") };
    assert!(nats.target().unwrap_err().to_string().contains("not tcp"));
}

#[test]
fn path_segments_are_escaped() {
    let endpoint = EndpointId::new("a/b", "c%d", "e");
    assert_eq!(instance_path(&endpoint, 0xab), "ab/a%2Fb/c%25d/e");
    assert_eq!(
        RecordKey::event_channel(&endpoint, "kv_metrics", 15).key,
        "namespace/a%2Fb/component/c%25d/endpoint/e/topic/kv_metrics/f"
    );
}

#[test]
fn card_with_only_what_a_frontend_needs() {
    let record = json!({"type": "Model", "namespace": "dynamo", "component": "backend", "endpoint": "generate",
        "instance_id": 7, "card_json": {"display_name": "m", "model_type": "Chat | Completions",
        "needs": null, "runtime_config": null, "worker_type": null, "future": {"id": 18446744073709551615u64}}});
    let card = CardRecord::decode(&serde_json::to_vec(&record).unwrap()).unwrap().card;
    assert!(card.model_type.chat() && card.model_type.completions() && !card.model_type.has("Prefill"));
    assert_eq!(card.runtime_config, RuntimeConfig::default());
    assert_eq!(card.block_size_tokens(), None);
    assert_eq!(card.other["future"]["id"], u64::MAX);
}

#[test]
fn context_length_order() {
    let mut card = ModelCard { context_length: Some(3), ..ModelCard::default() };
    assert_eq!(card.context_length_tokens(), 3);
    card.architectural_max_context_length = Some(2);
    assert_eq!(card.context_length_tokens(), 2);
    card.runtime_config.context_length = Some(0);
    assert_eq!(card.context_length_tokens(), 2, "0 means unknown");
    card.runtime_config.context_length = Some(1);
    assert_eq!(card.context_length_tokens(), 1);
}

#[test]
fn refused_records_say_why() {
    let wrong = br#"{"type":"Model","namespace":"n"}"#;
    assert!(matches!(InstanceRecord::decode(wrong), Err(RecordError::Type { .. })));
    assert!(matches!(InstanceRecord::decode(b"{\"type\":"), Err(RecordError::Shape { .. })));
    let old = br#"{"type":"EventChannel","namespace":"n","component":"c","topic":"kv-events","instance_id":1,
        "transport":{"kind":"Zmq","config":{"endpoint":"tcp://127.0.0.1:1"}}}"#;
    assert!(matches!(EventChannelRecord::decode(old), Err(RecordError::Shape { .. })));
}
