//! Objects as controllers write them.

use serde_json::{Value, json};

/// The label by which Dynamo's operator marks what belongs to it.
const LABELS: [(&str, &str); 2] =
    [("nvidia.com/dynamo-discovery-backend", "kubernetes"), ("nvidia.com/dynamo-discovery-enabled", "true")];

fn labels() -> Value {
    LABELS
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// An EndpointSlice.
pub(super) fn slice(name: &str, pods: &[(&str, &str, bool)]) -> Value {
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|(pod, uid, ready)| {
            json!({
                "addresses": ["10.1.2.3"],
                "conditions": {"ready": ready, "serving": ready, "terminating": false},
                "nodeName": "node-1",
                "targetRef": {"kind": "Pod", "namespace": super::NAMESPACE, "name": pod, "uid": uid},
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "generateName": "workers-", "labels": labels()},
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 9090, "protocol": "TCP"}],
    })
}

/// A pod.
pub(super) fn pod(name: &str, uid: &str, containers: &[(&str, bool)]) -> Value {
    let statuses: Vec<Value> = containers
        .iter()
        .map(|(container, ready)| json!({"name": container, "ready": ready, "restartCount": 0}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "uid": uid, "labels": labels()},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "podIP": "10.1.2.3", "containerStatuses": statuses},
    })
}
