use std::sync::Arc;

use std::net::SocketAddr;

use roost_cluster::Role;
use roost_cluster::record::{BootstrapEndpoint, EndpointId, InstanceRecord, ModelCard, TransportAddress};
use roost_kv::WorkerId;
use roost_wire::message::StopConditions;
use serde_json::{Value, json};

use super::*;

/// A request's body as Dynamo 1.6.1 sent it.
fn captured(leg: &str) -> Value {
    let path = format!("{}/../../tests/fixtures/wire/request/{leg}.json", env!("CARGO_MANIFEST_DIR"));
    let mut json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    json["body"].take()
}

fn sent(request: &EngineRequest) -> Value {
    serde_json::to_value(request).unwrap()
}

fn prefill_worker(id: u64, port: Option<u16>, ranks: u32) -> WorkerInfo {
    let mut card = ModelCard::default();
    card.runtime_config.data_parallel_size = ranks;
    card.runtime_config.disaggregated_endpoint =
        Some(BootstrapEndpoint { bootstrap_host: Some("127.0.0.1".into()), bootstrap_port: port });
    let instance = InstanceRecord {
        component: "prefill".into(),
        endpoint: "generate".into(),
        namespace: "dynamo".into(),
        instance_id: id,
        transport: TransportAddress::Tcp(format!(
            "{}/{id:x}/generate",
            SocketAddr::from(([127, 0, 0, 1], 1))
        )),
        device_type: None,
        request_plane_codec: None,
    };
    WorkerInfo {
        worker: WorkerId(id),
        epoch: 1,
        endpoint: EndpointId::new("dynamo", "prefill", "generate"),
        target: instance.target().unwrap(),
        role: Role::Prefill,
        ranks: 0..ranks,
        card: Arc::new(card),
        mdcsum: String::new(),
        instance: Arc::new(instance),
    }
}

#[test]
fn both_legs_are_as_the_peer_sends_them() {
    let (prefill, decode) = (captured("pd_prefill_bootstrap"), captured("pd_decode_bootstrap"));
    let place = &decode["bootstrap_info"];
    let worker = decode["routing"]["prefill_worker_id"].as_u64().unwrap();
    let at = WorkerRank::new(WorkerId(worker), 1);
    let handoff = Handoff {
        bootstrap: Some(BootstrapInfo {
            bootstrap_host: place["bootstrap_host"].as_str().unwrap().into(),
            bootstrap_port: 18998,
            bootstrap_room: place["bootstrap_room"].as_u64().unwrap(),
            handoff_id: None,
        }),
        result: None,
    };
    let ids: Vec<u32> = serde_json::from_value(decode["token_ids"].clone()).unwrap();
    let base = EngineRequest {
        token_ids: ids.into(),
        stop_conditions: StopConditions { max_tokens: Some(3), ..StopConditions::default() },
        ..EngineRequest::default()
    };
    let progress = Progress::none(&base);
    for (ours, theirs) in [
        (progress.prefill(&base, at, &handoff), &prefill),
        (progress.decode(&base, 1, at, &handoff), &decode),
    ] {
        let ours = sent(&ours);
        for member in ["token_ids", "routing", "router_config_override"] {
            assert_eq!(ours[member], theirs[member], "{member}");
        }
        assert_eq!(ours["stop_conditions"]["max_tokens"], theirs["stop_conditions"]["max_tokens"]);
        for member in ["bootstrap_host", "bootstrap_port", "bootstrap_room"] {
            assert_eq!(ours["bootstrap_info"][member], theirs["bootstrap_info"][member], "{member}");
        }
    }
}

#[test]
fn each_room_is_new_and_tells_the_rank() {
    let worker = prefill_worker(1, Some(8998), 4);
    let mut rooms: Vec<u64> = (0..4000)
        .map(|n| {
            let bootstrap = Handoff::at(&worker, n % 4).bootstrap.unwrap();
            assert_eq!((bootstrap.bootstrap_host.as_str(), bootstrap.bootstrap_port), ("127.0.0.1", 8998));
            assert!(bootstrap.bootstrap_room <= i64::MAX as u64 && bootstrap.handoff_id.is_some());
            assert_eq!(bootstrap.bootstrap_room % 4, u64::from(n % 4));
            bootstrap.bootstrap_room
        })
        .collect();
    // All 63 bits are in use.
    assert_eq!(rooms.iter().fold(0, |all, room| all | room), i64::MAX as u64);
    rooms.sort_unstable();
    rooms.dedup();
    assert_eq!(rooms.len(), 4000);
}

#[test]
fn without_a_meeting_place_the_first_output_tells() {
    assert!(Handoff::at(&prefill_worker(1, None, 1), 0).bootstrap.is_none());
    let said = |disaggregated_params| PrefillResult { disaggregated_params, prompt_tokens_details: None };
    let triple = json!({"bootstrap_host": "h", "bootstrap_port": 7, "bootstrap_room": 9});
    let bootstrap = Handoff::from_result(said(triple)).bootstrap.unwrap();
    assert_eq!((bootstrap.bootstrap_port, bootstrap.bootstrap_room), (7, 9));
    let other = Handoff::from_result(said(json!("dummy")));
    assert!(other.bootstrap.is_none());
    let base = EngineRequest::default();
    let request = Progress::none(&base).decode(&base, 0, WorkerRank::new(WorkerId(1), 0), &other);
    assert_eq!(sent(&request)["prefill_result"]["disaggregated_params"], "dummy");
}

#[test]
fn a_moved_answer_is_prompt_and_counts_against_the_limits() {
    let stop = StopConditions { max_tokens: Some(10), min_tokens: Some(2), ..StopConditions::default() };
    let base =
        EngineRequest { token_ids: [1, 2, 3].into(), stop_conditions: stop, ..EngineRequest::default() };
    let progress = Progress::of(&base, &[7, 8, 9]);
    assert_eq!(progress.isl(), 6);
    let request = progress.whole(&base, 5);
    assert_eq!(&*request.token_ids, [1, 2, 3, 7, 8, 9]);
    assert_eq!((request.stop_conditions.max_tokens, request.stop_conditions.min_tokens), (Some(7), Some(0)));
    assert_eq!(request.routing.unwrap().dp_rank, Some(5));
}
