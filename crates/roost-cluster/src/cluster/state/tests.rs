use bytes::Bytes;
use serde_json::{Value, json};

use super::*;

fn state() -> State {
    State::new(NamespaceFilter::Exact("dynamo".into()))
}

fn endpoint() -> EndpointId {
    EndpointId::new("dynamo", "backend", "generate")
}

fn put(state: &mut State, key: RecordKey, value: &Value) {
    state.apply(Change::Put(key, Bytes::from(serde_json::to_vec(value).unwrap())));
}

fn put_instance(state: &mut State, id: u64, address: &str) {
    let record = json!({"type": "Endpoint", "namespace": "dynamo", "component": "backend", "endpoint": "generate",
        "instance_id": id, "transport": {"tcp": address}});
    put(state, RecordKey::instance(&endpoint(), id), &record);
}

fn put_card(state: &mut State, id: u64, card: Value) {
    let record = json!({"type": "Model", "namespace": "dynamo", "component": "backend", "endpoint": "generate",
        "instance_id": id, "card_json": card});
    put(state, RecordKey::card(&endpoint(), id), &record);
}

fn card(start: u32, size: u32) -> Value {
    json!({"display_name": "m", "worker_type": "prefill",
        "runtime_config": {"data_parallel_start_rank": start, "data_parallel_size": size}})
}

fn put_source(state: &mut State, publisher: u64, worker: u64, dp_rank: u32) {
    let scope = json!({"kind": "endpoint", "endpoint": {"namespace": "dynamo", "component": "backend", "name": "generate"}});
    let channel = json!({"type": "EventChannel", "scope": scope, "topic": "kv-events", "instance_id": publisher,
        "transport": {"kind": "Zmq", "config": {"endpoint": format!("tcp://127.0.0.1:{publisher}")}}});
    put(state, RecordKey::event_channel(&endpoint(), "kv-events", publisher), &channel);
    let source = json!({"type": "EventSource", "scope": scope, "topic": "kv-events", "publisher_id": publisher,
        "metadata": {"kv_state_endpoint": scope["endpoint"], "publisher_id": publisher,
            "worker": {"worker_id": worker, "dp_rank": dp_rank}}});
    put(state, RecordKey::event_source(&endpoint(), "kv-events", publisher), &source);
}

fn delete(state: &mut State, key: RecordKey) {
    state.apply(Change::Delete(key));
}

/// The updates in short form.
fn reconcile(state: &mut State) -> Vec<String> {
    let short = |update: Update| match update {
        Update::Joined(info) => format!("joined {} epoch {}", info.worker, info.epoch),
        Update::Changed(info) => format!("changed {} epoch {}", info.worker, info.epoch),
        Update::Left { worker, epoch, .. } => format!("left {worker} epoch {epoch}"),
        other => panic!("{other:?}"),
    };
    state.reconcile().into_iter().map(short).collect()
}

#[test]
fn a_worker_is_card_and_instance() {
    let mut state = state();
    put_card(&mut state, 1, card(0, 1));
    assert!(reconcile(&mut state).is_empty());
    put_instance(&mut state, 1, "127.0.0.1:9/p");
    assert_eq!(reconcile(&mut state), ["joined 1 epoch 1"]);
    assert!(reconcile(&mut state).is_empty());
    assert_eq!(state.worker(WorkerId(1)).unwrap().role, Role::Prefill);

    put_card(&mut state, 1, json!({"display_name": "other"}));
    assert_eq!(reconcile(&mut state), ["changed 1 epoch 1"]);
    put_instance(&mut state, 1, "127.0.0.1:10/p");
    assert_eq!(
        reconcile(&mut state),
        ["left 1 epoch 1", "joined 1 epoch 2"],
        "another address is another worker"
    );
    put_card(&mut state, 1, card(0, 2));
    assert_eq!(reconcile(&mut state), ["left 1 epoch 2", "joined 1 epoch 3"], "so are other ranks");

    delete(&mut state, RecordKey::instance(&endpoint(), 1));
    assert_eq!(reconcile(&mut state), ["left 1 epoch 3"]);
    put_instance(&mut state, 1, "127.0.0.1:10/p");
    assert_eq!(reconcile(&mut state), ["joined 1 epoch 4"]);
    delete(&mut state, RecordKey::card(&endpoint(), 1));
    assert_eq!(reconcile(&mut state), ["left 1 epoch 4"]);
}

#[test]
fn those_who_leave_come_before_those_who_join() {
    let mut state = state();
    for id in [1, 2] {
        put_instance(&mut state, id, "127.0.0.1:9/p");
        put_card(&mut state, id, card(0, 1));
    }
    assert_eq!(reconcile(&mut state), ["joined 1 epoch 1", "joined 2 epoch 2"]);
    put_instance(&mut state, 0, "127.0.0.1:9/p");
    put_card(&mut state, 0, card(0, 1));
    delete(&mut state, RecordKey::card(&endpoint(), 2));
    assert_eq!(reconcile(&mut state), ["left 2 epoch 2", "joined 0 epoch 3"]);
}

#[test]
fn records_of_no_use_are_passed_over() {
    let mut state = state();
    put_instance(&mut state, 1, "no address");
    put_card(&mut state, 1, card(0, 1));
    assert!(reconcile(&mut state).is_empty());
    put_instance(&mut state, 1, "127.0.0.1:9/p");
    assert_eq!(reconcile(&mut state), ["joined 1 epoch 1"]);

    put(&mut state, RecordKey::card(&endpoint(), 1), &json!({"type": "Model"}));
    assert!(reconcile(&mut state).is_empty(), "the last good card stays");
    put_card(&mut state, 2, card(0, MAX_RANKS + 1));
    put_instance(&mut state, 2, "127.0.0.1:9/p");
    assert!(reconcile(&mut state).is_empty());
    assert_eq!(state.bad_records(), 2);

    let adapter = RecordKey {
        key: format!("{}/lora", RecordKey::card(&endpoint(), 1).key),
        ..RecordKey::card(&endpoint(), 1)
    };
    let record = json!({"type": "Model", "namespace": "dynamo", "component": "backend", "endpoint": "generate",
        "instance_id": 1, "card_json": {"display_name": "adapter"}});
    put(&mut state, adapter, &record);
    let elsewhere = EndpointId::new("elsewhere", "backend", "generate");
    let foreign = json!({"type": "Endpoint", "namespace": "elsewhere", "component": "backend", "endpoint": "generate",
        "instance_id": 3, "transport": {"tcp": "127.0.0.1:9/p"}});
    put(&mut state, RecordKey::instance(&elsewhere, 3), &foreign);
    assert!(reconcile(&mut state).is_empty());
    assert_eq!(state.instances().len(), 2);
}

#[test]
fn one_worker_id_has_one_card() {
    let mut state = state();
    put_instance(&mut state, 1, "127.0.0.1:9/p");
    put_card(&mut state, 1, card(0, 1));
    let other = EndpointId::new("dynamo", "prefill", "generate");
    let record = |kind: &str, rest: Value| {
        let mut record = json!({"type": kind, "namespace": "dynamo", "component": "prefill", "endpoint": "generate", "instance_id": 1});
        record.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        record
    };
    put(
        &mut state,
        RecordKey::instance(&other, 1),
        &record("Endpoint", json!({"transport": {"tcp": "127.0.0.1:9/q"}})),
    );
    put(
        &mut state,
        RecordKey::card(&other, 1),
        &record("Model", json!({"card_json": {"display_name": "m"}})),
    );
    assert_eq!(reconcile(&mut state), ["joined 1 epoch 1"]);
    assert_eq!(state.worker(WorkerId(1)).unwrap().endpoint, endpoint());
    delete(&mut state, RecordKey::card(&endpoint(), 1));
    assert_eq!(reconcile(&mut state), ["left 1 epoch 1", "joined 1 epoch 2"]);
}

#[test]
fn feeds_follow_sources_of_joined_workers_and_their_ranks() {
    let ranks = |state: &mut State| -> (Vec<(u64, u32, u64)>, usize) {
        let (plans, ambiguous) = state.feeds(&interest(true));
        let ranks = plans.into_iter().map(|plan| match plan.content {
            Content::Kv { rank, epoch, recovery: None } => (rank.worker.0, rank.dp_rank, epoch),
            other => panic!("{other:?}"),
        });
        (ranks.collect(), ambiguous)
    };
    let mut state = state();
    put_source(&mut state, 101, 1, 8);
    assert_eq!(ranks(&mut state), (vec![], 0), "no worker yet");
    put_instance(&mut state, 1, "127.0.0.1:9/p");
    put_card(&mut state, 1, card(8, 8));
    state.reconcile();
    assert_eq!(ranks(&mut state), (vec![(1, 8, 1)], 0));
    put_source(&mut state, 102, 1, 15);
    put_source(&mut state, 103, 1, 16);
    put_source(&mut state, 104, 1, 0);
    assert_eq!(ranks(&mut state), (vec![(1, 8, 1), (1, 15, 1)], 0), "ranks 8 to 15 only");
    put_source(&mut state, 105, 1, 8);
    assert_eq!(ranks(&mut state), (vec![(1, 15, 1)], 1));
    delete(&mut state, RecordKey::event_source(&endpoint(), "kv-events", 101));
    assert_eq!(ranks(&mut state), (vec![(1, 8, 1), (1, 15, 1)], 0));
    delete(&mut state, RecordKey::event_channel(&endpoint(), "kv-events", 102));
    assert_eq!(ranks(&mut state), (vec![(1, 8, 1)], 0), "a source without its channel waits");
    assert_eq!(state.feeds(&interest(false)), (vec![], 0));
}

fn interest(kv_events: bool) -> Interest {
    Interest { kv_events, sequences: false, bindings: false, own_publisher: None, nats: false }
}
