//! What needs no API server. The behaviour against one is in the end-to-end suite.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::identity::{instance_id, resource_of_container};
use super::join::Join;
use super::objects::{
    Collection, Object as _, PodObject, Readiness, Records, RecordsObject, SliceObject, application,
};
use super::*;
use crate::record::{Bucket, CardRecord, EventChannelRecord, InstanceRecord};

/// What Dynamo 1.6.1's mocker applies, once for its pod and once for a container of it.
const OF_A_POD: &str = include_str!("../../../../../tests/fixtures/wire/discovery/kubernetes_pod.json");
const OF_A_CONTAINER: &str =
    include_str!("../../../../../tests/fixtures/wire/discovery/kubernetes_container.json");

fn object<T: serde::de::DeserializeOwned>(json: &Value) -> T {
    serde_json::from_value(json.clone()).expect("an object of the API")
}

fn written(text: &str) -> BTreeMap<RecordKey, Bytes> {
    let object: RecordsObject = serde_json::from_str(text).expect("the fixture is valid");
    object.seen().records.expect("it holds records")
}

#[test]
fn identities_are_those_that_dynamo_computes() {
    // From the records of a mocker whose pod was called so.
    for (fixture, resource) in [(OF_A_POD, "worker-0"), (OF_A_CONTAINER, "worker-0-engine-0")] {
        let records = written(fixture);
        let (_, instance) = records.iter().find(|(key, _)| key.bucket == Bucket::Instances).expect("one");
        let instance = InstanceRecord::decode(instance).expect("a record");
        assert_eq!(instance.instance_id, instance_id(resource), "{resource}");
    }
    assert_eq!(resource_of_container("worker-0", "engine-0"), "worker-0-engine-0");
    assert_eq!(resource_of_container("worker-0", "main"), "worker-0");
}

#[test]
fn the_records_of_a_dynamo_worker_are_read_and_written_as_it_writes_them() {
    for (fixture, resource) in [(OF_A_POD, "worker-0"), (OF_A_CONTAINER, "worker-0-engine-0")] {
        let records = written(fixture);
        assert_eq!(records.len(), 3);
        for (key, value) in &records {
            let own_key = match key.bucket {
                Bucket::Instances => InstanceRecord::decode(value).expect("an instance").key(),
                Bucket::Cards => CardRecord::decode(value).expect("a card").key(),
                Bucket::EventChannels => EventChannelRecord::decode(value).expect("a channel").key(),
                Bucket::EventSources => unreachable!("the fixture has none"),
            };
            assert_eq!(*key, own_key);
        }
        let pod = PodIdentity { name: "worker-0".into(), uid: "uid-0".into(), container: None };
        // Our own channel records lack what Dynamo adds for readers of old; it comes with the writing.
        let ours: BTreeMap<RecordKey, Bytes> = records
            .iter()
            .map(|(key, value)| match key.bucket {
                Bucket::EventChannels => {
                    let channel = EventChannelRecord::decode(value).expect("a channel");
                    (key.clone(), Bytes::from(channel.encode()))
                }
                _ => (key.clone(), value.clone()),
            })
            .collect();
        let body = application(resource, &pod, &ours).expect("JSON");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body, serde_json::from_str::<Value>(fixture).expect("JSON"));
    }
}

#[test]
fn only_ready_endpoints_with_a_pod_are_ready() {
    let pod = |name: &str, uid: &str| json!({"kind": "Pod", "name": name, "uid": uid});
    let slice: SliceObject = object(&json!({"metadata": {"name": "s"}, "endpoints": [
        {"conditions": {"ready": true}, "targetRef": pod("a", "1")},
        {"conditions": {"ready": false}, "targetRef": pod("b", "2")},
        {"conditions": {}, "targetRef": pod("c", "3")},
        {"targetRef": pod("d", "4")},
        {"conditions": {"ready": true}},
        {"conditions": {"ready": true}, "targetRef": pod("e", "")},
        {"conditions": {"ready": true}, "targetRef": {"name": "f"}},
    ]}));
    assert_eq!(slice.seen().ready, [("a".to_owned(), "1".to_owned())]);
    let empty: SliceObject = object(&json!({"metadata": {"name": "s"}, "endpoints": null}));
    assert!(empty.seen().ready.is_empty());

    let pod: PodObject = object(
        &json!({"metadata": {"name": "p", "uid": "9"}, "status": {"containerStatuses": [
            {"name": "main", "ready": true}, {"name": "engine-0", "ready": true}, {"name": "engine-1", "ready": false},
        ]}}),
    );
    let ready = [("p".to_owned(), "9".to_owned()), ("p-engine-0".to_owned(), "9".to_owned())];
    assert_eq!(pod.seen().ready, ready);
    let pending: PodObject = object(&json!({"metadata": {"name": "p", "uid": "9"}, "status": {}}));
    assert!(pending.seen().ready.is_empty());
}

fn key(id: u64) -> RecordKey {
    RecordKey { bucket: Bucket::Instances, key: format!("n/c/e/{id:x}") }
}

fn holding(name: &str, pod_uid: &str, id: u64) -> Records {
    let records = BTreeMap::from([(key(id), Bytes::from_static(b"{}"))]);
    Records {
        name: name.into(),
        uid: Some("r".into()),
        pod_uid: Some(pod_uid.into()),
        records: Some(records),
    }
}

fn ready(object: &str, pods: &[(&str, &str)]) -> Readiness {
    let ready = pods.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()));
    Readiness { name: object.into(), ready: ready.collect() }
}

fn effective(join: &Join) -> Vec<RecordKey> {
    join.effective().into_keys().collect()
}

#[test]
fn records_count_while_the_pod_that_wrote_them_is_ready() {
    let mut join = Join::default();
    join.records_listed(vec![holding("a", "1", 1), holding("b", "2", 2)]);
    assert!(!join.synced(), "who is ready has not been listed");
    join.readiness_listed(vec![ready("s", &[("a", "1"), ("c", "3")])]);
    assert!(join.synced());
    assert_eq!(effective(&join), [key(1)]);
    join.readiness_changed(ready("t", &[("b", "2")]));
    assert_eq!(effective(&join), [key(1), key(2)]);
    // A new pod of the same name: what the old one wrote is void until the new one has written.
    join.readiness_changed(ready("t", &[("b", "9")]));
    assert_eq!(effective(&join), [key(1)]);
    join.records_changed(holding("b", "9", 2));
    assert_eq!(effective(&join), [key(1), key(2)]);
    join.records_deleted("a");
    join.readiness_deleted("t");
    assert_eq!(effective(&join), []);
}

#[test]
fn slices_that_overlap_agree_or_cancel_each_other() {
    let mut join = Join::default();
    join.records_listed(vec![holding("a", "1", 1)]);
    join.readiness_listed(vec![ready("s", &[("a", "1")]), ready("t", &[("a", "1")])]);
    assert_eq!(effective(&join), [key(1)]);
    join.readiness_deleted("s");
    assert_eq!(effective(&join), [key(1)], "the other one still says so");
    join.readiness_changed(ready("s", &[("a", "2")]));
    assert_eq!(effective(&join), [], "two pods under one name");
    join.readiness_changed(ready("s", &[]));
    assert_eq!(effective(&join), [key(1)]);
}

#[test]
fn unreadable_records_leave_the_last_readable_ones_of_the_same_resource() {
    let emptied = |uid: &str, pod_uid: &str, data: Value| -> Records {
        let object: RecordsObject = object(&json!({
            "metadata": {"name": "a", "uid": uid, "ownerReferences": [{"kind": "Pod", "uid": pod_uid}]},
            "spec": {"data": data},
        }));
        object.seen()
    };
    let mut join = Join::default();
    join.readiness_listed(vec![ready("s", &[("a", "1")])]);
    join.records_listed(vec![holding("a", "1", 1)]);
    for data in [Value::Null, json!("garbage"), json!({"endpoints": [1]})] {
        join.records_changed(emptied("r", "1", data.clone()));
        assert_eq!(effective(&join), [key(1)], "{data}");
        join.records_listed(vec![emptied("r", "1", data.clone())]);
        assert_eq!(effective(&join), [key(1)], "{data}");
    }
    // Nulls inside are empty maps, which is something else.
    join.records_changed(emptied("r", "1", json!({"endpoints": null, "event_channels": null})));
    assert_eq!(effective(&join), []);
    join.records_listed(vec![holding("a", "1", 1)]);
    join.records_changed(emptied("another", "1", Value::Null));
    assert_eq!(effective(&join), [], "a resource made anew has no past");
}

#[test]
fn collections_are_where_dynamo_looks_for_them() {
    let path = Collection::RECORDS.path("ns1", Some("worker-0"));
    assert_eq!(path, "/apis/nvidia.com/v1alpha1/namespaces/ns1/dynamoworkermetadatas/worker-0");
    let slices = Collection::SLICES.query("ns1", "limit=500");
    assert_eq!(
        slices,
        "/apis/discovery.k8s.io/v1/namespaces/ns1/endpointslices?\
         labelSelector=nvidia.com%2Fdynamo-discovery-enabled%3Dtrue&limit=500"
    );
    assert!(
        Collection::PODS.query("ns1", "limit=500").starts_with("/api/v1/namespaces/ns1/pods?labelSelector=")
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_at_once() {
    let usual = KubernetesConfig {
        server: "http://127.0.0.1:1".into(),
        namespace: "default".into(),
        token: None,
        tls: TlsIdentity::default(),
        mode: KubernetesMode::Pod,
        pod: None,
    };
    let pod = PodIdentity { name: "p".into(), uid: "1".into(), container: None };
    let open = |config| KubernetesDiscovery::open(config).map(drop).map_err(|error| error.to_string());
    assert_eq!(open(usual.clone()), Ok(()));
    for (config, told) in [
        (KubernetesConfig { server: "ftp://a".into(), ..usual.clone() }, "ftp"),
        (KubernetesConfig { namespace: "a/b".into(), ..usual.clone() }, "a/b"),
        (
            KubernetesConfig { mode: KubernetesMode::Container, pod: Some(pod.clone()), ..usual.clone() },
            "CONTAINER_NAME",
        ),
    ] {
        let error = open(config).expect_err("refused");
        assert!(error.contains(told), "{error}");
    }
    let looker = KubernetesDiscovery::open(usual.clone()).expect("a looker");
    assert!(matches!(looker.put(key(1), "{}".into()).await, Err(DiscoveryError::Config(_))));
    assert_eq!(looker.lease_id(), None);
    let worker = KubernetesDiscovery::open(KubernetesConfig { pod: Some(pod), ..usual }).expect("a worker");
    let channel =
        RecordKey { bucket: Bucket::EventChannels, key: format!("namespace/n/topic/t/{:x}", 1u64 << 53) };
    assert!(matches!(worker.put(channel, "{}".into()).await, Err(DiscoveryError::Key { .. })));
}
