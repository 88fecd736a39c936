//! Discovery through Kubernetes: against a scripted API server, and with live peers at it. No real one has been met.

mod live;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_cluster::discovery::Snapshot;
use roost_cluster::record::RecordKey;
use roost_cluster::{
    Discovery, DiscoveryError, KubernetesConfig, KubernetesDiscovery, KubernetesMode, Pem, PodIdentity,
    TlsIdentity,
};
use roost_tests::http::PATIENCE;
use roost_tests::kubernetes::Asked;
use roost_tests::{Certificates, Gate, KubeApi, MODEL, Options};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::records::{key, seen};

fn has(snapshot: &Snapshot, ids: &[u64]) -> bool {
    let found: BTreeSet<&RecordKey> = snapshot.records.keys().collect();
    let keys: Vec<RecordKey> = ids.iter().map(|id| key(*id)).collect();
    snapshot.synced && found == keys.iter().collect()
}

/// A participant in a pod, with one record under this id.
async fn worker(api: &KubeApi, pod: &str, uid: &str, id: u64) -> Result<Arc<KubernetesDiscovery>> {
    let worker = KubernetesDiscovery::open(api.config(Some((pod, uid))))?;
    worker.put(key(id), json!({"type": "Endpoint", "instance_id": id}).to_string().into()).await?;
    Ok(worker)
}

fn lists(asked: &[Asked], collection: &str) -> usize {
    let of = |asked: &&Asked| asked.method == "GET" && asked.target.contains(collection);
    asked.iter().filter(of).filter(|asked| !asked.target.contains("watch=true")).count()
}

fn watches(asked: &[Asked], collection: &str) -> Vec<String> {
    let of = |asked: &&Asked| asked.target.contains(collection) && asked.target.contains("watch=true");
    let position = |asked: &Asked| {
        let (_, position) = asked.target.split_once("resourceVersion=")?;
        Some(position.split('&').next()?.to_owned())
    };
    asked.iter().filter(of).filter_map(position).collect()
}

#[tokio::test]
async fn records_count_while_their_pod_is_ready() -> Result<()> {
    let api = KubeApi::start().await?;
    let one = worker(&api, "worker-0", "uid-0", 1).await?;
    assert_eq!(one.lease_id(), Some(0x4_3710_f49c_0cff), "as Dynamo computes it for this name");

    // Written as Dynamo writes it.
    let asked = api.asked();
    let patch = asked.iter().find(|asked| asked.method == "PATCH").context("a write")?;
    assert_eq!(
        patch.target,
        "/apis/nvidia.com/v1alpha1/namespaces/serving/dynamoworkermetadatas/worker-0\
         ?force=true&fieldManager=dynamo-worker"
    );
    assert_eq!(patch.headers["content-type"], "application/apply-patch+yaml");
    let stored = api.stored("worker-0").context("stored")?;
    let owner = json!([{"apiVersion": "v1", "blockOwnerDeletion": false, "controller": true,
        "kind": "Pod", "name": "worker-0", "uid": "uid-0"}]);
    assert_eq!(stored["metadata"]["ownerReferences"], owner);
    assert_eq!(stored["spec"]["data"]["endpoints"]["dynamo/backend/generate/1"]["instance_id"], 1);

    let looker = KubernetesDiscovery::open(api.config(None))?;
    let mut watch = looker.watch();
    looker.ready(PATIENCE).await?;
    assert!(has(&watch.borrow(), &[]), "nothing says that the pod is ready");
    api.slice("workers-x", &[("worker-0", "uid-0", true), ("worker-1", "uid-1", true)]);
    seen(&mut watch, "the ready pod", |now| has(now, &[1])).await?;
    let two = worker(&api, "worker-1", "uid-1", 2).await?;
    seen(&mut watch, "both", |now| has(now, &[1, 2])).await?;
    api.slice("workers-x", &[("worker-0", "uid-0", false), ("worker-1", "uid-1", true)]);
    seen(&mut watch, "only the other", |now| has(now, &[2])).await?;
    api.slice("workers-x", &[("worker-0", "uid-0", true), ("worker-1", "uid-1", true)]);
    seen(&mut watch, "both again", |now| has(now, &[1, 2])).await?;

    // A slice that is not Dynamo's says nothing, here as little as to Dynamo.
    api.write(
        "endpointslices",
        "other",
        json!({"metadata": {"name": "other"}, "endpoints": [
        {"conditions": {"ready": true}, "targetRef": {"name": "worker-1", "uid": "another"}}]}),
    );

    // Taken back by their owner; left behind as by a crash they stay until the pod is gone.
    one.delete(key(1)).await?;
    seen(&mut watch, "the deletion", |now| has(now, &[2])).await?;
    one.put(key(3), "{}".into()).await?;
    seen(&mut watch, "a new record", |now| has(now, &[2, 3])).await?;
    one.close().await;
    seen(&mut watch, "the end", |now| has(now, &[2])).await?;
    two.abandon(key(2));
    two.close().await;
    assert!(has(&looker.watch().borrow(), &[2]));
    // What the garbage collector does when the pod is deleted.
    api.delete("dynamoworkermetadatas", "worker-1");
    seen(&mut watch, "nobody", |now| has(now, &[])).await?;
    Ok(())
}

#[tokio::test]
async fn a_new_pod_of_an_old_name_is_another_one() -> Result<()> {
    let api = KubeApi::start().await?;
    let old = worker(&api, "worker-0", "uid-0", 1).await?;
    api.slice("workers-x", &[("worker-0", "uid-0", true)]);
    let looker = KubernetesDiscovery::open(api.config(None))?;
    let mut watch = looker.watch();
    seen(&mut watch, "the old pod", |now| has(now, &[1])).await?;
    old.abandon(key(1));
    drop(old);
    api.slice("workers-x", &[("worker-0", "uid-9", true)]);
    seen(&mut watch, "nobody", |now| has(now, &[])).await?;
    let _new = worker(&api, "worker-0", "uid-9", 2).await?;
    seen(&mut watch, "the new pod", |now| has(now, &[2])).await?;
    Ok(())
}

#[tokio::test]
async fn a_watch_goes_on_where_it_ended_and_lists_again_when_that_is_forgotten() -> Result<()> {
    let api = KubeApi::start().await?;
    api.slice("workers-x", &[("worker-0", "uid-0", true), ("worker-1", "uid-1", true)]);
    let _one = worker(&api, "worker-0", "uid-0", 1).await?;
    let looker = KubernetesDiscovery::open(api.config(None))?;
    let mut watch = looker.watch();
    seen(&mut watch, "the first", |now| has(now, &[1])).await?;
    let before = api.asked();
    assert!(watches(&before, "endpointslices").iter().all(|position| *position != "0"));

    // An end of the watch, and history that is still there.
    api.cut();
    let two = worker(&api, "worker-1", "uid-1", 2).await?;
    seen(&mut watch, "the second", |now| has(now, &[1, 2])).await?;
    let asked: Vec<Asked> =
        api.asked().into_iter().filter(|asked| asked.headers["user-agent"].starts_with("roost/")).collect();
    // The new participant lists once; nobody else does.
    assert_eq!(lists(&asked, "dynamoworkermetadatas"), 1);
    assert!(!watches(&asked, "dynamoworkermetadatas").is_empty());

    // A bookmark moves the position although nothing of ours has changed.
    let stored = api.stored("worker-1").context("stored")?;
    let written: u64 = stored["metadata"]["resourceVersion"].as_str().context("version")?.parse()?;
    let moved = async {
        loop {
            // A watch that has just ended is begun anew after a moment, and the bookmark is for those that stand.
            api.bookmark();
            tokio::time::sleep(Duration::from_millis(50)).await;
            api.cut();
            let asked = api.asked();
            assert_eq!(lists(&asked, "endpointslices"), 0, "nothing has to be listed again");
            let positions = watches(&asked, "endpointslices");
            if positions.iter().any(|position| position.parse::<u64>().is_ok_and(|at| at > written)) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, moved).await.context("the position never moves")?;

    // History that is gone, told within the watch and by its status.
    for by_status in [false, true] {
        api.asked();
        if by_status {
            api.refuse("WATCH", "dynamoworkermetadatas", 410, "Expired", 3);
        } else {
            api.compact();
        }
        api.cut();
        two.put(key(7), json!({"again": by_status}).to_string().into()).await?;
        let value = json!({"again": by_status}).to_string();
        seen(&mut watch, "the change", |now| now.records.get(&key(7)).is_some_and(|held| *held == value))
            .await?;
        assert!(lists(&api.asked(), "dynamoworkermetadatas") > 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_listing_of_many_pages_is_whole() -> Result<()> {
    let api = KubeApi::start().await?;
    api.limit_pages(7);
    let names: Vec<String> = (0..100).map(|n| format!("worker-{n}")).collect();
    let pods: Vec<(&str, &str, bool)> = names.iter().map(|name| (name.as_str(), "uid", true)).collect();
    api.slice("workers-x", &pods);
    for (n, name) in names.iter().enumerate() {
        let records = json!({"endpoints": {format!("dynamo/backend/generate/{n:x}"): {}}});
        let owner = json!([{"kind": "Pod", "name": name, "uid": "uid", "apiVersion": "v1"}]);
        let metadata = json!({"name": name, "ownerReferences": owner});
        api.write("dynamoworkermetadatas", name, json!({"metadata": metadata, "spec": {"data": records}}));
    }
    // One of the pages is asked for too late.
    api.refuse("GET", "dynamoworkermetadatas", 410, "Expired", 1);
    let looker = KubernetesDiscovery::open(api.config(None))?;
    let mut watch = looker.watch();
    let all = seen(&mut watch, "everything", |now| now.synced).await?;
    assert_eq!(all.records.len(), 100);
    assert!(lists(&api.asked(), "dynamoworkermetadatas") >= 15);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_away_costs_nobody_and_orders_wait() -> Result<()> {
    let api = KubeApi::start().await?;
    let gate = Gate::to(api.address()).await?;
    let through = |pod| KubernetesConfig { server: format!("http://{}", gate.address()), ..api.config(pod) };
    api.slice("workers-x", &[("worker-0", "uid-0", true)]);
    let owner = KubernetesDiscovery::open(through(Some(("worker-0", "uid-0"))))?;
    owner.put(key(1), "{}".into()).await?;
    owner.put(key(2), "{}".into()).await?;
    let looker = KubernetesDiscovery::open(through(None))?;
    let mut watch = looker.watch();
    seen(&mut watch, "both", |now| has(now, &[1, 2])).await?;
    gate.shut();
    let during = seen(&mut watch, "the outage", |now| now.unreachable_since.is_some()).await?;
    assert!(has(&during, &[1, 2]), "absence of the server is not absence of the workers");
    let late = owner.put(key(3), "{}".into());
    let refused = owner.delete(key(2)).await;
    assert!(matches!(refused, Err(DiscoveryError::Unreachable { .. })), "{refused:?}");
    let never = KubernetesDiscovery::open(through(None))?.ready(Duration::from_millis(300)).await;
    assert!(matches!(never, Err(DiscoveryError::Unreachable { .. })), "{never:?}");
    gate.open();
    late.await?;
    seen(&mut watch, "the return", |now| has(now, &[1, 3]) && now.unreachable_since.is_none()).await?;
    Ok(())
}

#[tokio::test]
async fn records_that_others_delete_come_back_and_refusals_are_told() -> Result<()> {
    let api = KubeApi::start().await?;
    api.slice("workers-x", &[("worker-0", "uid-0", true)]);
    let owner = worker(&api, "worker-0", "uid-0", 1).await?;
    let looker = KubernetesDiscovery::open(api.config(None))?;
    let mut watch = looker.watch();
    seen(&mut watch, "the record", |now| has(now, &[1])).await?;
    api.delete("dynamoworkermetadatas", "worker-0");
    seen(&mut watch, "the loss", |now| has(now, &[])).await?;
    seen(&mut watch, "the return", |now| has(now, &[1])).await?;

    // Rights that are missing, and a server in trouble.
    api.refuse("PATCH", "dynamoworkermetadatas", 403, "Forbidden", 1);
    let refused = owner.put(key(2), "{}".into()).await.unwrap_err().to_string();
    assert!(refused.contains("403 Forbidden") && refused.contains("PATCH /apis/nvidia.com"), "{refused}");
    for status in [500, 503, 429, 409] {
        api.refuse("PATCH", "dynamoworkermetadatas", status, "Trouble", 1);
    }
    owner.put(key(3), "{}".into()).await?;
    seen(&mut watch, "what was not refused", |now| has(now, &[1, 3])).await?;
    api.refuse("GET", "endpointslices", 403, "Forbidden", usize::MAX);
    let blind = KubernetesDiscovery::open(api.config(None))?;
    let told = blind.ready(Duration::from_millis(300)).await.unwrap_err().to_string();
    assert!(told.contains("GET /apis/discovery.k8s.io/v1/namespaces/serving/endpointslices"), "{told}");
    Ok(())
}

#[tokio::test]
async fn tls_and_a_token_that_is_replaced() -> Result<()> {
    let certificates = Certificates::make()?;
    let api = KubeApi::start_tls(&certificates, "first").await?;
    api.slice("workers-x", &[("worker-0", "uid-0", true)]);
    let folder = TempDir::new()?;
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n")?;
    let open = |ca: Option<Pem>, token: Option<&std::path::Path>| {
        KubernetesDiscovery::open(KubernetesConfig {
            token: token.map(Into::into),
            tls: TlsIdentity { ca, client: None },
            ..api.config(Some(("worker-0", "uid-0")))
        })
    };
    let trusted = Some(Pem::File(certificates.ca_file()));
    let known = open(trusted.clone(), Some(&token))?;
    known.ready(PATIENCE).await?;
    known.put(key(1), "{}".into()).await?;
    let mut watch = known.watch();
    seen(&mut watch, "the record", |now| has(now, &[1])).await?;

    let soon = Duration::from_secs(1);
    let stranger = open(None, Some(&token))?.ready(soon).await.unwrap_err().to_string();
    assert!(stranger.contains("UnknownIssuer"), "{stranger}");
    let nobody = open(trusted, None)?.ready(soon).await.unwrap_err().to_string();
    assert!(nobody.contains("401 Unauthorized"), "{nobody}");

    // The server asks for a new token before the file holds it.
    api.ask_for("second");
    let late = known.put(key(2), "{}".into());
    api.cut();
    seen(&mut watch, "the outage", |now| now.unreachable_since.is_some()).await?;
    std::fs::write(&token, "second\n")?;
    late.await?;
    seen(&mut watch, "the return", |now| has(now, &[1, 2]) && now.unreachable_since.is_none()).await?;
    Ok(())
}

#[tokio::test]
async fn containers_of_a_pod_register_one_by_one() -> Result<()> {
    let api = KubeApi::start().await?;
    let open = |container: Option<&str>| {
        let pod = container.map(|container| PodIdentity {
            name: "worker-0".into(),
            uid: "uid-0".into(),
            container: Some(container.into()),
        });
        KubernetesDiscovery::open(KubernetesConfig {
            pod,
            mode: KubernetesMode::Container,
            ..api.config(None)
        })
    };
    // Left from before a restart of the container: nothing of it may be believed.
    let owner = json!([{"kind": "Pod", "name": "worker-0", "uid": "uid-0", "apiVersion": "v1"}]);
    let stale = json!({"metadata": {"name": "worker-0-engine-0", "ownerReferences": owner},
        "spec": {"data": {"endpoints": {"dynamo/backend/generate/9": {}}}}});
    api.write("dynamoworkermetadatas", "worker-0-engine-0", stale);
    api.pod("worker-0", "uid-0", &[("main", true), ("engine-0", true), ("engine-1", true)]);
    let looker = open(None)?;
    let mut watch = looker.watch();
    seen(&mut watch, "what is left", |now| has(now, &[9])).await?;

    let engine = open(Some("engine-0"))?;
    seen(&mut watch, "its end", |now| has(now, &[])).await?;
    engine.put(key(1), "{}".into()).await?;
    let main = open(Some("main"))?;
    main.put(key(2), "{}".into()).await?;
    seen(&mut watch, "both", |now| has(now, &[1, 2])).await?;
    assert_eq!(api.resources(), ["worker-0", "worker-0-engine-0"].map(str::to_owned).into());
    let controller = |name: &str| -> Option<Value> {
        Some(api.stored(name)?["metadata"]["ownerReferences"][0]["controller"].clone())
    };
    assert_eq!(controller("worker-0"), Some(json!(true)));
    assert_eq!(controller("worker-0-engine-0"), Some(json!(false)));
    api.pod("worker-0", "uid-0", &[("main", true), ("engine-0", false)]);
    seen(&mut watch, "one of them", |now| has(now, &[2])).await?;
    Ok(())
}

#[tokio::test]
async fn a_whole_deployment() -> Result<()> {
    let api = KubeApi::start().await?;
    let all = [("worker-0", "uid-0", true), ("worker-1", "uid-1", true)];
    api.slice("workers-x", &all);
    let mut options = Options::new(2);
    options.kubernetes = Some(api.config(None));
    let cluster = options.start().await?;
    for turn in 0..4 {
        let reply = cluster.chat("@@hello@@").session(&format!("s{turn}")).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    // A pod that fails its probe gets nothing more, although it answers; then the server goes away as well.
    api.slice("workers-x", &[("worker-0", "uid-0", false), all[1]]);
    cluster.wait_for_workers(MODEL, 1).await?;
    api.refuse("WATCH", "endpointslices", 500, "Trouble", usize::MAX);
    api.cut();
    let gauge = async || Ok(cluster.metric_sum("roost_discovery_unreachable_seconds", "").await? > 0.0);
    cluster.until("the gauge tells how long the store has been away", gauge).await?;
    let reply = cluster.chat("@@hello@@").send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(())
}
