use std::sync::Arc;
use std::time::Duration;

use roost_cluster::record::Bucket;
use roost_wire::{CallError, StreamError};
use tokio::net::TcpStream;

use super::harness::{Harness, collect, ids, request, within};
use crate::{BootstrapEndpoint, Role, Script, Step, WorkerConfig, WorkerServer};

/// Every record has the keys that the peer's worker of the same shape writes, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_have_the_shape_of_the_peers() {
    const FIXTURE: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/wire/discovery/sglang_agg.json"
    ));
    let fixture: serde_json::Value = serde_json::from_str(FIXTURE).unwrap();
    let harness = Harness::with(|settings| {
        settings.engine.tool_call_parser = Some("hermes".into());
        settings.engine.reasoning_parser = Some("qwen3".into());
    })
    .await;
    for bucket in Bucket::ALL {
        let theirs: Vec<&serde_json::Value> = fixture["records"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|record| record["bucket"] == bucket.path())
            .map(|record| &record["value"])
            .filter(|value| value["endpoint"] != "clear_kv_blocks")
            .collect();
        let ours = harness.records(bucket);
        assert_eq!(ours.len(), theirs.len(), "{bucket}");
        for their in theirs {
            let same_kind = |value: &serde_json::Value| {
                value["topic"] == their["topic"]
                    && value["endpoint"]
                        .as_str()
                        .map(|name| name.split("_source_").next().unwrap().to_owned())
                        == their["endpoint"]
                            .as_str()
                            .map(|name| name.split("_source_").next().unwrap().to_owned())
            };
            let (_, our) = ours.iter().find(|(_, value)| same_kind(value)).unwrap();
            assert_same_keys(our, their, bucket.path());
        }
    }
}

/// Compares the keys of two objects, all the way down, except free-form ones and unset media settings.
fn assert_same_keys(ours: &serde_json::Value, theirs: &serde_json::Value, at: &str) {
    let (Some(our), Some(their)) = (ours.as_object(), theirs.as_object()) else { return };
    let keys = |object: &serde_json::Map<String, serde_json::Value>| {
        let mut keys: Vec<String> = object
            .keys()
            .filter(|key| !key.starts_with("media_") && *key != "runtime_data")
            .cloned()
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(our), keys(their), "{at}");
    for (key, value) in our {
        assert_same_keys(value, &their.get(key).cloned().unwrap_or_default(), &format!("{at}/{key}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_tells_the_truth_about_its_engine() {
    let harness = Harness::with(|settings| {
        settings.engine.role = Role::Prefill;
        settings.engine.dp_size = 2;
        settings.engine.context_length = 5000;
        settings.engine.bootstrap = Some(BootstrapEndpoint { host: "10.1.2.3".into(), port: 8998 });
        settings.worker.instance_id = Some(0x9f25_8ad3_adbf_41eb);
    })
    .await;
    let record = harness.card();
    assert_eq!((record.component.as_str(), record.instance_id), ("prefill", 11_467_724_667_926_561_259));
    let card = record.card;
    assert_eq!((card.display_name.as_str(), card.kv_cache_block_size), ("tiny", Some(4)));
    assert_eq!(
        (card.architectural_max_context_length, card.runtime_config.context_length),
        (Some(262_144), Some(5000))
    );
    assert_eq!((card.model_type.0.as_str(), card.needs.len()), ("Prefill", 1));
    assert_eq!((card.runtime_config.total_kv_blocks, card.runtime_config.data_parallel_size), (Some(256), 2));
    let bootstrap = card.runtime_config.disaggregated_endpoint.unwrap();
    assert_eq!(
        (bootstrap.bootstrap_host.as_deref(), bootstrap.bootstrap_port),
        (Some("10.1.2.3"), Some(8998))
    );
    assert!(card.runtime_config.kv_event_publishing_enabled && card.runtime_config.enable_local_indexer);
    for file in [card.model_info, card.tokenizer, card.prompt_formatter, card.gen_config] {
        let file = file.unwrap().file().clone();
        let content = std::fs::read(&file.path).unwrap();
        assert_eq!(file.size, Some(content.len() as u64));
        assert_eq!(file.checksum, format!("blake3:{}", blake3::hash(&content)));
    }
    let instances = harness.instances();
    assert_eq!(instances.len(), 3, "generate and a query endpoint per rank");
    for instance in instances {
        let target = instance.target().unwrap();
        assert_eq!(target.address, harness.worker.address());
        assert!(target.path.starts_with("9f258ad3adbf41eb/dynamo/prefill/"));
    }
    assert_eq!(harness.records(Bucket::EventSources).len(), 2);
    assert_eq!(harness.records(Bucket::EventChannels).len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_lets_open_answers_end() {
    let harness = Harness::start().await;
    let mut stream = harness.call("open", &request("@@drip@@", 30)).await.unwrap();
    within(stream.next()).await.unwrap().unwrap();
    let Harness { store, worker, client, .. } = harness;
    let (target, address) = (worker.path().to_owned(), worker.address());
    let draining = tokio::spawn(worker.drain(Duration::ZERO, Duration::from_secs(20)));
    let mut watch = roost_cluster::Discovery::watch(&*store);
    within(watch.wait_for(|snapshot| snapshot.records.is_empty())).await.unwrap();
    let target = roost_wire::Target { address, path: target.into(), codec: roost_wire::Codec::Msgpack };
    let body = request("hello", 1).encode(roost_wire::Codec::Msgpack, Default::default()).unwrap();
    // Refused by name while it drains; the listener closes only after the open answer.
    let late = within(async {
        loop {
            match client.call(&target, roost_wire::Call::new("late", body.clone())).await {
                Err(error) => return error,
                Ok(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert!(matches!(late, CallError::Unavailable(_)), "{late}");
    let (items, error) = collect(stream).await;
    assert_eq!((ids(&items).len(), error.is_none()), (29, true));
    assert!(within(draining).await.unwrap(), "everything came to its end");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_has_a_deadline() {
    let harness = Harness::start().await;
    let mut stream = harness.call("open", &request("@@drip@@", 200)).await.unwrap();
    within(stream.next()).await.unwrap().unwrap();
    assert!(!within(harness.worker.drain(Duration::ZERO, Duration::from_millis(20))).await);
    assert!(collect(stream).await.1.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_leaves_its_records_behind() {
    let harness = Harness::start().await;
    let mut stream = harness.call("open", &request("@@drip@@", 200)).await.unwrap();
    within(stream.next()).await.unwrap().unwrap();
    within(harness.worker.kill()).await;
    let (_, error) = collect(stream).await;
    assert!(matches!(error, Some(StreamError::Incomplete | StreamError::Broken(_))), "{error:?}");
    assert!(harness.call("late", &request("hello", 1)).await.is_err());
    let connected = TcpStream::connect(harness.worker.address()).await;
    assert_eq!(connected.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(harness.records(Bucket::Cards).len(), 1);
    harness.store.expire();
    assert!(harness.records(Bucket::Cards).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scripted_exit_kills_the_worker() {
    let harness = Harness::with(|settings| {
        settings
            .engine
            .scripts
            .insert("exit", Script::new([Step::text("x"), Step { exit: true, ..Step::default() }]));
    })
    .await;
    let (_, error) = harness.ask("a", &request("@@exit@@", 9)).await;
    assert!(error.is_some());
    within(harness.worker.crashed()).await;
    assert_eq!(harness.records(Bucket::Cards).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutting_down_and_dropping_remove_the_records() {
    let harness = Harness::start().await;
    let second = WorkerServer::start(harness.engine.clone(), WorkerConfig::new(harness.store.participant()))
        .await
        .unwrap();
    assert_eq!(harness.records(Bucket::Cards).len(), 2);
    let address = second.address();
    within(second.shutdown()).await;
    assert_eq!(harness.records(Bucket::Cards).len(), 1);
    assert!(TcpStream::connect(address).await.is_err());
    let Harness { store, worker, .. } = harness;
    drop(worker);
    let mut watch = roost_cluster::Discovery::watch(&*store);
    within(watch.wait_for(|snapshot| snapshot.records.is_empty())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_cannot_start_says_why_and_leaves_nothing() {
    let harness = Harness::start().await;
    let id = Some(harness.worker.id());
    let taken = WorkerConfig { instance_id: id, ..WorkerConfig::new(harness.store.participant()) };
    let refused = WorkerServer::start(harness.engine.clone(), taken).await.unwrap_err();
    assert!(refused.to_string().starts_with("cannot register: "), "{refused}");
    assert_eq!(harness.records(Bucket::EventChannels).len(), 2, "only those of the first");

    let mut everywhere = WorkerConfig::new(harness.store.participant());
    everywhere.listen.bind = ([0, 0, 0, 0], 0).into();
    let refused = WorkerServer::start(harness.engine.clone(), everywhere).await.unwrap_err();
    assert!(refused.to_string().contains("say which address to advertise"), "{refused}");

    let gone = crate::ModelFiles::in_dir("/nonexistent");
    let engine = Arc::new(crate::MockEngine::new(crate::MockConfig::new("m", gone)));
    let refused =
        WorkerServer::start(engine, WorkerConfig::new(harness.store.participant())).await.unwrap_err();
    assert!(refused.to_string().contains("/nonexistent/config.json"), "{refused}");
}
