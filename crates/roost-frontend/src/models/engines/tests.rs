use std::net::SocketAddr;

use roost_cluster::record::{EndpointId, InstanceRecord, ModelCard, TransportAddress};
use roost_cluster::{Role, WorkerInfo};
use serde_json::json;

use super::*;

fn info(id: u64, engine: Option<&str>) -> Arc<WorkerInfo> {
    let mut card = ModelCard::default();
    if let Some(engine) = engine {
        card.runtime_config.runtime_data.insert(GATEWAY_ENGINE.into(), json!(engine));
    }
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let instance = InstanceRecord {
        component: "backend".into(),
        endpoint: "generate".into(),
        namespace: "dynamo".into(),
        instance_id: id,
        transport: TransportAddress::Tcp(format!("{address}/{id:x}/dynamo/backend/generate")),
        device_type: None,
        request_plane_codec: None,
    };
    Arc::new(WorkerInfo {
        worker: WorkerId(id),
        epoch: id,
        endpoint: EndpointId::new("dynamo", "backend", "generate"),
        target: instance.target().unwrap(),
        role: Role::Decode,
        ranks: 0..16,
        card: Arc::new(card),
        mdcsum: String::new(),
        instance: Arc::new(instance),
    })
}

#[test]
fn gateways_of_one_engine_are_one_worker_used_in_turn() {
    let mut engines = Engines::default();
    assert_eq!(engines.add(&info(1, Some("host:1"))), Some(WorkerId(1)));
    for id in 2..=8 {
        assert_eq!(engines.add(&info(id, Some("host:1"))), None);
    }
    assert_eq!(engines.add(&info(9, Some("host:2"))), Some(WorkerId(9)));
    assert_eq!(engines.add(&info(10, None)), Some(WorkerId(10)));
    assert_eq!(engines.add(&info(11, None)), Some(WorkerId(11)), "no engine named: each its own");
    let engine = engines.get(WorkerId(1)).unwrap();
    let now = Instant::now();
    let mut seen: Vec<u64> = (0..8).map(|_| engine.pick(now, None, &[]).unwrap().info.worker.0).collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(engine.pick(now, Some(WorkerId(5)), &[]).unwrap().info.worker, WorkerId(5));
    assert_eq!(engines.of_instance(WorkerId(5)), Some(WorkerId(1)));
    assert_eq!(engines.instances().count(), 11);
}

#[test]
fn an_engine_is_there_until_its_last_instance_has_left() {
    let mut engines = Engines::default();
    engines.add(&info(1, Some("host:1")));
    engines.add(&info(2, Some("host:1")));
    let gone =
        engines.get(WorkerId(1)).unwrap().pick(Instant::now(), Some(WorkerId(1)), &[]).unwrap().gone.clone();
    assert_eq!(engines.remove(WorkerId(1)), None);
    assert!(gone.is_cancelled());
    let engine = engines.get(WorkerId(1)).expect("still reached by the other");
    assert_eq!(engine.pick(Instant::now(), None, &[]).unwrap().info.worker, WorkerId(2));
    assert_eq!(engines.remove(WorkerId(2)), Some(WorkerId(1)));
    assert_eq!((engines.instances().count(), engines.remove(WorkerId(2))), (0, None));
}

#[test]
fn a_failed_instance_comes_last_for_a_while() {
    let mut engines = Engines::default();
    engines.add(&info(1, Some("host:1")));
    engines.add(&info(2, Some("host:1")));
    let engine = engines.get(WorkerId(1)).unwrap();
    let now = Instant::now();
    engine.pick(now, Some(WorkerId(1)), &[]).unwrap().avoid(now);
    assert!(engine.has_other_ways(now, WorkerId(1)) && !engine.has_other_ways(now, WorkerId(2)));
    for _ in 0..4 {
        assert_eq!(engine.pick(now, None, &[]).unwrap().info.worker, WorkerId(2));
    }
    assert_eq!(engine.pick(now, None, &[WorkerId(2)]).unwrap().info.worker, WorkerId(1), "better than none");
    assert!(engine.pick(now, None, &[WorkerId(1), WorkerId(2)]).is_none());
    assert!(engine.is_exhausted(&[WorkerId(1), WorkerId(2)]) && !engine.is_exhausted(&[WorkerId(1)]));
    let later = now + AVOID;
    let mut seen = [(); 2].map(|()| engine.pick(later, None, &[]).unwrap().info.worker.0);
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
}
