use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::discovery::{MemoryDiscovery, Snapshot};
use crate::record::Bucket;

fn records() -> WorkerRecords {
    let instance = |endpoint: &str| {
        let record = json!({"namespace": "n", "component": "c", "endpoint": endpoint, "instance_id": 1,
            "transport": {"tcp": "127.0.0.1:9/p"}});
        serde_json::from_value(record).unwrap()
    };
    let endpoint = json!({"namespace": "n", "component": "c", "name": "generate"});
    let scope = json!({"kind": "endpoint", "endpoint": endpoint});
    let channel = json!({"scope": scope, "topic": "kv-events", "instance_id": 7,
        "transport": {"kind": "Zmq", "config": {"endpoint": "tcp://127.0.0.1:9"}}});
    let source = json!({"scope": scope, "topic": "kv-events", "publisher_id": 7, "metadata":
        {"kv_state_endpoint": endpoint, "publisher_id": 7, "worker": {"worker_id": 1, "dp_rank": 0}}});
    let card = json!({"namespace": "n", "component": "c", "endpoint": "generate", "instance_id": 1,
        "card_json": {"display_name": "m"}});
    WorkerRecords {
        side_endpoints: vec![instance("worker_kv_query_source_7")],
        channels: vec![serde_json::from_value(channel).unwrap()],
        sources: vec![serde_json::from_value(source).unwrap()],
        generate: instance("generate"),
        card: serde_json::from_value(card).unwrap(),
    }
}

/// Notes the order of calls.
#[derive(Debug)]
struct Noting {
    inner: Arc<MemoryDiscovery>,
    calls: Mutex<Vec<String>>,
}

impl Noting {
    fn new(inner: Arc<MemoryDiscovery>) -> Arc<Self> {
        Arc::new(Self { inner, calls: Mutex::default() })
    }

    fn note(&self, what: &str, key: &RecordKey) {
        let endpoint = if key.key.contains("worker_kv") { "side " } else { "" };
        let bucket = key.bucket.path().trim_start_matches("v1/");
        self.calls.lock().push(format!("{what} {endpoint}{bucket}"));
    }
}

impl Discovery for Noting {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
    ) -> futures_util::future::BoxFuture<'_, Result<(), DiscoveryError>> {
        self.note("put", &key);
        self.inner.put(key, value)
    }

    fn delete(&self, key: RecordKey) -> futures_util::future::BoxFuture<'_, Result<(), DiscoveryError>> {
        self.note("delete", &key);
        self.inner.delete(key)
    }

    fn release(&self, key: RecordKey) {
        self.inner.release(key);
    }

    fn abandon(&self, key: RecordKey) {
        self.inner.abandon(key);
    }

    fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.inner.watch()
    }
}

#[tokio::test]
async fn the_card_comes_last_and_goes_first() {
    let store = Noting::new(MemoryDiscovery::new());
    let registration = Registration::register(store.clone(), &records()).await.unwrap();
    let order = ["side instances", "event_channels", "event_sources", "instances", "mdc"];
    let puts: Vec<String> = order.iter().map(|name| format!("put {name}")).collect();
    assert_eq!(*store.calls.lock(), puts);
    assert_eq!(store.watch().borrow().records.len(), 5);

    store.calls.lock().clear();
    let mut other = records().card;
    other.card.slug = "x".into();
    registration.replace_card(&other).await.unwrap();
    assert_eq!(store.watch().borrow().records[&other.key()], other.encode());

    store.calls.lock().clear();
    registration.shutdown().await.unwrap();
    let deletes: Vec<String> = order.iter().rev().map(|name| format!("delete {name}")).collect();
    assert_eq!(*store.calls.lock(), deletes);
    assert!(store.watch().borrow().records.is_empty());
}

#[tokio::test]
async fn a_refused_registration_leaves_nothing() {
    let store = MemoryDiscovery::new();
    let other = store.participant();
    other.put(records().card.key(), Bytes::from_static(b"{}")).await.unwrap();
    let refused = Registration::register(store.clone(), &records()).await;
    assert!(matches!(refused, Err(DiscoveryError::Exists { key }) if key.bucket == Bucket::Cards));
    assert_eq!(store.watch().borrow().records.len(), 1, "only the other one's");
}

#[tokio::test]
async fn dropping_removes_and_abandoning_does_not() {
    let store = MemoryDiscovery::new();
    drop(Registration::register(store.clone(), &records()).await.unwrap());
    assert!(store.watch().borrow().records.is_empty());
    Registration::register(store.clone(), &records()).await.unwrap().abandon();
    assert_eq!(store.watch().borrow().records.len(), 5);
    store.expire();
    assert!(store.watch().borrow().records.is_empty());
}
