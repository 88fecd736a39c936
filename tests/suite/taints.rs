//! Properties of workers by which requests choose (`nvext.routing_constraints`), and the topology of KV transfers.

use std::collections::BTreeSet;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, worker_of};
use roost_worker::Role;
use serde_json::{Map, Value, json};

/// Adds a worker whose card says this of its `runtime_config`.
async fn worker(cluster: &mut Cluster, role: Role, says: Value) -> Result<u64> {
    let files = cluster.files()?;
    let says: Map<String, Value> = serde_json::from_value(says)?;
    Ok(cluster.start_worker(role, MODEL, files, |engine| engine.runtime_config = says).await?.id())
}

fn asking(constraints: &Value, number: usize) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": format!("{number} @@hello@@")}],
        "nvext": {"routing_constraints": constraints}})
}

/// The workers that answer twelve requests with these constraints, which nobody has in a cache.
async fn served_by(cluster: &Cluster, from: usize, constraints: &Value) -> Result<BTreeSet<u64>> {
    let mut seen = BTreeSet::new();
    for number in from..from + 12 {
        let reply = cluster.chat_body(&asking(constraints, number)).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        seen.insert(worker_of(&reply.json()?));
    }
    Ok(seen)
}

#[tokio::test]
async fn a_request_runs_where_its_taints_are() -> Result<()> {
    let mut cluster = Options::new(1).start().await?;
    let plain = cluster.workers[0].id();
    let gold = worker(&mut cluster, Role::Aggregated, json!({"taints": ["gold", "gpu=h100"]})).await?;
    let silver = worker(&mut cluster, Role::Aggregated, json!({"taints": ["silver", "gpu=h100"]})).await?;
    cluster.wait_for_workers(MODEL, 3).await?;
    for (from, constraints, workers) in [
        (100, json!({"required_taints": ["gold"]}), vec![gold]),
        (200, json!({"required_taints": ["gpu=h100"]}), vec![gold, silver]),
        (300, json!({"required_taints": ["gpu=h100", "silver"]}), vec![silver]),
        (400, json!({}), vec![plain, gold, silver]),
    ] {
        let seen = served_by(&cluster, from, &constraints).await?;
        assert_eq!(seen, BTreeSet::from_iter(workers), "{constraints}");
    }
    // A session that was elsewhere moves.
    let bound = async |constraints: Value| -> Result<u64> {
        let reply = cluster.chat_body(&asking(&constraints, 0)).session("s").send().await?;
        Ok(worker_of(&reply.json()?))
    };
    assert_eq!(bound(json!({"required_taints": ["gold"]})).await?, gold);
    assert_eq!(bound(json!({})).await?, gold);
    assert_eq!(bound(json!({"required_taints": ["silver"]})).await?, silver);
    // The worker is told, and what nobody has is said to be missing.
    let told = cluster.workers[cluster.index_of(gold)].journal().requests();
    let told = told.iter().filter_map(|seen| seen.request.routing.as_ref()?.routing_constraints.clone());
    assert!(told.into_iter().any(|asked| asked == json!({"required_taints": ["gold"]})));
    let nowhere = asking(&json!({"required_taints": ["absent"]}), 0);
    let reply = cluster.chat_body(&nowhere).send().await?;
    assert_eq!(reply.status, 503, "{}", reply.text());
    cluster.until_idle().await
}

#[tokio::test]
async fn taints_that_are_only_preferred_weigh() -> Result<()> {
    let mut cluster = Options::new(0).start().await?;
    let gold = worker(&mut cluster, Role::Aggregated, json!({"taints": ["gold"]})).await?;
    let other = worker(&mut cluster, Role::Aggregated, json!({"taints": []})).await?;
    cluster.wait_for_workers(MODEL, 2).await?;
    // Prompts of some length: a share of no cost is no cost.
    let long = |number: usize, weight: f64| {
        let mut body = asking(&json!({"preferred_taints": {"gold": weight}}), number);
        body["messages"][0]["content"] = format!("{number} {} @@hello@@", "x".repeat(1000)).into();
        body
    };
    for (weight, home) in [(1.0, gold), (-1.0, other)] {
        for number in 0..8 {
            let reply =
                cluster.chat_body(&long(number * 100 + usize::from(weight < 0.0), weight)).send().await?;
            assert_eq!(worker_of(&reply.json()?), home, "weight {weight}");
        }
    }
    Ok(())
}

/// A prefill worker whose cache may only go to its own zone gets a decode worker there.
#[tokio::test]
async fn caches_stay_in_their_topology_domain() -> Result<()> {
    let mut cluster = Options::split(0, 0).start().await?;
    let zone = |zone: &str, enforcement: &str| {
        let mut says = json!({"taints": [format!("dynamo.topology/zone={zone}")],
            "topology_domains": {"zone": zone}, "kv_transfer_domain": "zone", "kv_transfer_enforcement": enforcement});
        if enforcement == "preferred" {
            says["kv_transfer_preferred_weight"] = json!(0.9);
        }
        says
    };
    let mut pairs = BTreeSet::new();
    for name in ["a", "b"] {
        let prefill = worker(&mut cluster, Role::Prefill, zone(name, "required")).await?;
        let decode = worker(&mut cluster, Role::Decode, zone(name, "required")).await?;
        pairs.insert((prefill, decode));
    }
    cluster.wait_for_role(MODEL, Role::Prefill, 2).await?;
    cluster.wait_for_role(MODEL, Role::Decode, 2).await?;
    let mut seen = BTreeSet::new();
    for number in 0..24 {
        let reply = cluster.chat_body(&asking(&json!({}), number)).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json()?;
        let prefill = answer["nvext"]["worker_id"]["prefill_worker_id"].as_u64().expect("asked for");
        seen.insert((prefill, worker_of(&answer)));
    }
    assert_eq!(seen, pairs, "each zone for itself, and both are used");
    // The decode workers of zone b leave: prompts computed there have nowhere to go, those of zone a have.
    let gone = cluster.workers.len() - 1;
    cluster.workers.remove(gone).shutdown().await;
    cluster.wait_for_role(MODEL, Role::Decode, 1).await?;
    let reply = cluster
        .chat_body(&asking(&json!({"required_taints": ["dynamo.topology/zone=a"]}), 99))
        .send()
        .await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    cluster.until_idle().await
}
