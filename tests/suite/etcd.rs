//! Discovery through a real etcd: alone, with its outages, and with live peers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_cluster::discovery::Snapshot;
use roost_cluster::record::{Bucket, RecordKey};
use roost_cluster::{Discovery, DiscoveryError, EtcdConfig, EtcdDiscovery, Pem, TlsIdentity};
use roost_tests::http::PATIENCE;
use roost_tests::{Certificates, Cluster, Etcd, Gate, MODEL, Options, Peers, Request};
use roost_worker::ModelFiles;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::records::{key, seen};

/// About the shortest that etcd grants.
const SHORT: Duration = Duration::from_secs(2);
const HOLD: Duration = Duration::from_secs(10);

fn has(snapshot: &Snapshot, ids: &[u64]) -> bool {
    let found: BTreeSet<&RecordKey> = snapshot.records.keys().collect();
    let keys: Vec<RecordKey> = ids.iter().map(|id| key(*id)).collect();
    found == keys.iter().collect()
}

#[tokio::test]
async fn records_live_on_the_lease_of_their_owner() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let (one, two) = (etcd.participant(SHORT, HOLD)?, etcd.participant(SHORT, HOLD)?);
    let mut watch = two.watch();
    one.put(key(1), "{\"a\":1}".into()).await?;
    seen(&mut watch, "the record", |now| now.synced && has(now, &[1])).await?;

    // As Dynamo writes it: the key as it is, the value as it is, on the lease whose id the worker carries.
    let all = json!({"key": "djEv", "range_end": "djEw"});
    let stored = etcd.gateway("/v3/kv/range", &all).await?;
    let kv = &stored["kvs"][0];
    assert_eq!(kv["key"], "djEvaW5zdGFuY2VzL2R5bmFtby9iYWNrZW5kL2dlbmVyYXRlLzE=", "v1/instances/…/1");
    assert_eq!(kv["value"], "eyJhIjoxfQ==");
    assert_eq!(kv["lease"], one.lease_id().context("a lease")?.to_string());
    let lease = etcd.gateway("/v3/lease/timetolive", &json!({"ID": kv["lease"]})).await?;
    assert_eq!(lease["grantedTTL"], "2");

    // Replaced by its owner, refused to others, deleted by its owner only.
    one.put(key(1), "{\"a\":2}".into()).await?;
    seen(&mut watch, "the new value", |now| now.records.get(&key(1)).is_some_and(|v| v == "{\"a\":2}"))
        .await?;
    assert!(matches!(two.put(key(1), "{}".into()).await, Err(DiscoveryError::Exists { .. })));
    two.delete(key(1)).await?;
    two.put(key(2), "{}".into()).await?;
    seen(&mut watch, "both", |now| has(now, &[1, 2])).await?;
    one.delete(key(1)).await?;
    seen(&mut watch, "the deletion", |now| has(now, &[2])).await?;

    // Kept alive well beyond the time to live while owned; gone by itself when abandoned.
    one.put(key(3), "{}".into()).await?;
    tokio::time::sleep(SHORT * 2).await;
    assert!(has(&two.watch().borrow(), &[2, 3]));
    one.abandon(key(3));
    seen(&mut watch, "the end of the lease", |now| has(now, &[2])).await?;

    // A handle that ends takes its records along, all at once.
    let three = etcd.participant(Duration::from_secs(30), HOLD)?;
    three.put(key(4), "{}".into()).await?;
    three.put(RecordKey { bucket: Bucket::Cards, ..key(4) }, "{}".into()).await?;
    seen(&mut watch, "three more", |now| now.records.len() == 3).await?;
    three.close().await;
    seen(&mut watch, "none of them", |now| has(now, &[2])).await?;
    drop(two);
    let another = etcd.participant(SHORT, HOLD)?;
    let mut late = another.watch();
    seen(&mut late, "an empty store", |now| now.synced && now.records.is_empty()).await?;
    Ok(())
}

#[tokio::test]
async fn a_record_deleted_by_others_comes_back() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let owner = etcd.participant(SHORT, HOLD)?;
    owner.put(key(1), "{}".into()).await?;
    let another = etcd.participant(SHORT, HOLD)?;
    let mut watch = another.watch();
    seen(&mut watch, "the record", |now| has(now, &[1])).await?;
    let name = json!({"key": "djEvaW5zdGFuY2VzL2R5bmFtby9iYWNrZW5kL2dlbmVyYXRlLzE="});
    etcd.gateway("/v3/kv/deleterange", &name).await?;
    seen(&mut watch, "the deletion", |now| has(now, &[])).await?;
    seen(&mut watch, "the return", |now| has(now, &[1])).await?;
    // The whole lease is taken away: record and lease return, under the same id.
    let lease = owner.lease_id().context("a lease")?.to_string();
    etcd.gateway("/v3/lease/revoke", &json!({"ID": lease})).await?;
    seen(&mut watch, "the loss", |now| has(now, &[])).await?;
    seen(&mut watch, "the return", |now| has(now, &[1])).await?;
    let ttl = etcd.gateway("/v3/lease/timetolive", &json!({"ID": lease})).await?;
    assert_eq!(ttl["grantedTTL"], "2", "{ttl}");
    Ok(())
}

#[tokio::test]
async fn a_listing_of_many_pages_is_whole() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let owner = etcd.participant(Duration::from_secs(30), HOLD)?;
    for id in 0..1100 {
        owner.put(key(id), "{}".into()).await?;
    }
    let another = etcd.participant(SHORT, HOLD)?;
    let mut watch = another.watch();
    let all = seen(&mut watch, "everything", |now| now.synced).await?;
    assert_eq!(all.records.len(), 1100);
    Ok(())
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_cut_or_lists_again_when_that_is_compacted_away() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let owner = etcd.participant(Duration::from_secs(30), HOLD)?;
    let gate = Gate::to(etcd.address()).await?;
    let config = EtcdConfig::new(vec![gate.address().to_string()]);
    let watcher = EtcdDiscovery::open(EtcdConfig { hold: Duration::ZERO, ..config })?;
    let mut watch = watcher.watch();
    for id in 1..=3 {
        owner.put(key(id), "{}".into()).await?;
    }
    seen(&mut watch, "all three", |now| has(now, &[1, 2, 3])).await?;
    for compacted in [false, true] {
        gate.shut();
        let away = seen(&mut watch, "the outage", |now| now.unreachable_since.is_some()).await?;
        assert!(has(&away, &[1, 2, 3]), "the last known records stay");
        owner.put(key(9), "{}".into()).await?;
        owner.delete(key(1)).await?;
        if compacted {
            etcd.compact().await?;
        }
        gate.open();
        let back = |now: &Arc<Snapshot>| now.unreachable_since.is_none() && has(now, &[2, 3, 9]);
        seen(&mut watch, "what happened meanwhile", back).await?;
        owner.delete(key(9)).await?;
        owner.put(key(1), "{}".into()).await?;
        seen(&mut watch, "later changes", |now| has(now, &[1, 2, 3])).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_owner_that_was_cut_off_registers_again_as_the_same() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let gate = Gate::to(etcd.address()).await?;
    let config = EtcdConfig::new(vec![gate.address().to_string()]);
    let owner = EtcdDiscovery::open(EtcdConfig { lease_ttl: SHORT, ..config })?;
    owner.put(key(1), "{}".into()).await?;
    owner.put(key(2), "{}".into()).await?;
    let another = etcd.participant(SHORT, HOLD)?;
    let mut watch = another.watch();
    seen(&mut watch, "the records", |now| has(now, &[1, 2])).await?;
    gate.shut();
    seen(&mut watch, "the end of the lease", |now| has(now, &[])).await?;
    // It takes a record back meanwhile: an error for now, and not forgotten.
    let refused = owner.delete(key(2)).await;
    assert!(matches!(refused, Err(DiscoveryError::Unreachable { .. })), "{refused:?}");
    gate.open();
    seen(&mut watch, "the return", |now| has(now, &[1])).await?;
    let lease = json!({"ID": owner.lease_id().context("a lease")?.to_string(), "keys": true});
    let lease = etcd.gateway("/v3/lease/timetolive", &lease).await?;
    assert_eq!(lease["keys"].as_array().map(Vec::len), Some(1), "{lease}");
    Ok(())
}

#[tokio::test]
async fn certificates_of_both_sides() -> Result<()> {
    let made = Certificates::make()?;
    let [ca_file, cert_file, key_file] =
        [made.ca_file(), made.certificate_file(), made.key_file()].map(|path| path.display().to_string());
    let (ca_file, cert_file, key_file) = (&*ca_file, &*cert_file, &*key_file);
    let arguments = [
        "--cert-file",
        cert_file,
        "--key-file",
        key_file,
        "--trusted-ca-file",
        ca_file,
        "--client-cert-auth",
    ];
    let Some(etcd) = Etcd::start_with("https", &arguments).await? else { return Ok(()) };
    let open = |ca: Option<&str>, client: Option<(&str, &str)>| {
        let tls = TlsIdentity {
            ca: ca.map(Pem::from_option),
            client: client.map(|(one, other)| (Pem::from_option(one), Pem::from_option(other))),
        };
        EtcdDiscovery::open(EtcdConfig { tls, ..EtcdConfig::new(vec![etcd.url()]) })
    };
    // As files, and as the text itself.
    let one = open(Some(ca_file), Some((cert_file, key_file)))?;
    let two = open(Some(&made.ca), Some((&made.certificate, &made.key)))?;
    one.put(key(1), "{}".into()).await?;
    let mut watch = two.watch();
    seen(&mut watch, "the record", |now| has(now, &[1])).await?;
    let second = Duration::from_secs(1);
    // Which of the two ends of the connection tells of the refusal first is a matter of chance.
    let stranger = open(Some(ca_file), None)?.ready(second).await;
    assert!(matches!(stranger, Err(DiscoveryError::Unreachable { .. })), "{stranger:?}");
    let untrusted = open(None, None)?.ready(second).await.unwrap_err().to_string();
    assert!(untrusted.contains("UnknownIssuer"), "{untrusted}");
    Ok(())
}

#[tokio::test]
async fn a_store_that_lost_its_data_is_filled_again_without_a_flap() -> Result<()> {
    let Some(mut etcd) = Etcd::start().await? else { return Ok(()) };
    let owners = [etcd.participant(SHORT, HOLD)?, etcd.participant(SHORT, HOLD)?];
    for (id, owner) in (1..).zip(&owners) {
        owner.put(key(id), "{}".into()).await?;
    }
    let watcher = etcd.participant(SHORT, HOLD)?;
    let mut watch = watcher.watch();
    seen(&mut watch, "both", |now| has(now, &[1, 2])).await?;
    // From here on no snapshot may lack a record.
    let mut every = watcher.watch();
    let flaps = tokio::spawn(async move {
        while every.changed().await.is_ok() {
            if !has(&every.borrow_and_update(), &[1, 2]) {
                return true;
            }
        }
        false
    });
    etcd.kill()?;
    seen(&mut watch, "the outage", |now| now.unreachable_since.is_some()).await?;
    // An order during the outage is carried out after it.
    let late = owners[0].put(key(1), "{}".into());
    etcd.wipe()?;
    etcd.run().await?;
    late.await?;
    // Both are back in the store itself, as somebody sees who did not know them.
    let another = etcd.participant(SHORT, HOLD)?;
    let mut fresh = another.watch();
    seen(&mut fresh, "both again", |now| has(now, &[1, 2])).await?;
    seen(&mut watch, "the store", |now| now.unreachable_since.is_none()).await?;
    drop((watcher, watch));
    assert!(!flaps.await?, "a record was missed for a moment");
    Ok(())
}

#[tokio::test]
async fn a_store_that_hangs_for_longer_than_the_leases_loses_nobody() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let owner = etcd.participant(SHORT, HOLD)?;
    owner.put(key(1), "{}".into()).await?;
    let dead = etcd.participant(SHORT, HOLD)?;
    dead.put(key(2), "{}".into()).await?;
    let watcher = etcd.participant(SHORT, HOLD)?;
    let mut watch = watcher.watch();
    seen(&mut watch, "both", |now| has(now, &[1, 2])).await?;
    etcd.stop()?;
    // One owner dies meanwhile, the other goes on asking.
    dead.abandon(key(2));
    tokio::time::sleep(SHORT * 3).await;
    assert!(has(&watcher.watch().borrow(), &[1, 2]));
    etcd.resume()?;
    seen(&mut watch, "the dead one's end", |now| has(now, &[1])).await?;
    Ok(())
}

#[tokio::test]
async fn users_and_wrong_passwords() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let open = |user: Option<(&str, &str)>| {
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        EtcdDiscovery::open(EtcdConfig { user, ..EtcdConfig::new(vec![etcd.url()]) })
    };
    for (path, body) in [
        ("/v3/auth/user/add", json!({"name": "root", "password": "secret"})),
        ("/v3/auth/role/add", json!({"name": "root"})),
        ("/v3/auth/user/grant", json!({"user": "root", "role": "root"})),
        ("/v3/auth/enable", json!({})),
    ] {
        etcd.gateway(path, &body).await?;
    }
    let known = open(Some(("root", "secret")))?;
    known.ready(PATIENCE).await?;
    known.put(key(1), "{}".into()).await?;
    let wrong = open(Some(("root", "guess")))?.ready(Duration::from_secs(1)).await.unwrap_err().to_string();
    assert!(wrong.contains("authentication failed"), "{wrong}");
    let nobody = open(None)?.ready(Duration::from_secs(1)).await.unwrap_err().to_string();
    assert!(nobody.contains("user name is empty"), "{nobody}");
    Ok(())
}

async fn chat(cluster: &Cluster, session: &str) -> Result<()> {
    let reply = cluster.chat("@@hello@@").session(session).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(())
}

/// C-DSC-02: no request fails while the store is away or when it returns, with its data or without.
#[tokio::test]
async fn sessions_do_not_notice_that_the_store_is_away() -> Result<()> {
    let Some(mut etcd) = Etcd::start().await? else { return Ok(()) };
    let mut options = Options::new(2);
    options.etcd = Some(EtcdConfig { lease_ttl: SHORT, ..EtcdConfig::new(vec![etcd.url()]) });
    let cluster = options.start().await?;
    assert_ne!(cluster.workers[0].id(), cluster.workers[1].id());
    let gauge = async || Ok(cluster.metric_sum("roost_discovery_unreachable_seconds", "").await? > 0.0);
    for lost in [false, true] {
        etcd.kill()?;
        cluster.until("the gauge tells how long the store has been away", gauge).await?;
        let end = tokio::time::Instant::now() + SHORT * 2;
        let mut turn = 0;
        while tokio::time::Instant::now() < end {
            chat(&cluster, "old").await?;
            chat(&cluster, &format!("new {lost} {turn}")).await?;
            turn += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if lost {
            etcd.wipe()?;
        }
        etcd.run().await?;
        cluster.until("the store is back", async || Ok(!gauge().await?)).await?;
        chat(&cluster, "old").await?;
        // The workers are in the store again, for those who have never seen them.
        let another = etcd.participant(SHORT, HOLD)?;
        let mut fresh = another.watch();
        seen(&mut fresh, "both workers", |now| {
            now.records.keys().filter(|key| key.bucket == Bucket::Cards).count() == 2
        })
        .await?;
        cluster.wait_for_workers(MODEL, 2).await?;
    }
    assert_eq!(cluster.metric_sum("roost_discovery_left_total", "").await?, 0.0, "nobody has left");
    // A worker that dies now leaves when its lease ends.
    cluster.workers[1].kill().await;
    for turn in 0..8 {
        chat(&cluster, &format!("after the crash {turn}")).await?;
    }
    cluster.wait_for_workers(MODEL, 1).await
}

/// A frontend of ours on an etcd that peers share.
async fn ours(etcd: &Etcd, folder: &TempDir) -> Result<Cluster> {
    let mut options = Options::new(0);
    options.etcd = Some(EtcdConfig::new(vec![etcd.url()]));
    options.config.models.cache_dir = folder.path().join("cards");
    options.start().await
}

fn ask(address: std::net::SocketAddr, content: &str) -> Request {
    let body = json!({"model": "wire-model", "max_tokens": 8, "ignore_eos": true,
        "messages": [{"role": "user", "content": content}]});
    Request::post(address, "/v1/chat/completions", &body)
}

#[tokio::test]
async fn our_frontend_serves_a_dynamo_mocker_through_etcd() -> Result<()> {
    let Some(mut etcd) = Etcd::start().await? else { return Ok(()) };
    let Some(peers) = Peers::find() else { return Ok(()) };
    let peers = peers.in_etcd(&etcd.url());
    let folder = TempDir::new()?;
    let cluster = ours(&etcd, &folder).await?;
    let blocks = ["--num-gpu-blocks-override", "4096"];
    let mocker = peers.mocker(&folder.path().join("store"), &blocks)?;
    cluster.wait_for_workers("wire-model", 1).await.with_context(|| mocker.output())?;
    let answer = ask(cluster.address, "hello").send().await?.json()?;
    assert_eq!(answer["usage"]["completion_tokens"], 8, "{answer}");
    // A crash of the store, shorter than the peer's lease: nothing is noticed on either side.
    etcd.kill()?;
    cluster
        .until("the store is away", async || {
            Ok(cluster.metric_sum("roost_discovery_unreachable_seconds", "").await? > 0.0)
        })
        .await?;
    let during = ask(cluster.address, "while it is away").send().await?;
    assert_eq!(during.status, 200, "{}", during.text());
    etcd.run().await?;
    cluster
        .until("the store is back", async || {
            Ok(cluster.metric_sum("roost_discovery_unreachable_seconds", "").await? == 0.0)
        })
        .await?;
    let after = ask(cluster.address, "and now").send().await?;
    assert_eq!(after.status, 200, "{}", after.text());
    Ok(())
}

#[tokio::test]
async fn our_worker_serves_a_dynamo_frontend_through_etcd() -> Result<()> {
    let Some(etcd) = Etcd::start().await? else { return Ok(()) };
    let Some(peers) = Peers::find() else { return Ok(()) };
    let peers = peers.in_etcd(&etcd.url());
    let folder = TempDir::new()?;
    let mut cluster = ours(&etcd, &folder).await?;
    let files = ModelFiles::in_dir(peers.model());
    for _ in 0..2 {
        cluster.add_worker_with("wire-model", files.clone()).await?;
    }
    let (frontend, address) = peers.frontend(&folder.path().join("store"), &["--router-mode", "kv"])?;
    let listed = async || {
        let reply = Request::get(address, "/v1/models").send().await;
        Ok(reply.is_ok_and(|reply| reply.text().contains("wire-model")))
    };
    let came = cluster.until("the peer lists our model", listed).await;
    assert!(came.is_ok(), "{}", frontend.output());
    let answer: Value = ask(address, "hello").send().await?.json()?;
    assert_eq!(answer["usage"]["completion_tokens"], 8, "{answer}\n{}", frontend.output());
    // Our workers leave in good order: the peer forgets the model at once, without waiting for a lease.
    for worker in std::mem::take(&mut cluster.workers) {
        worker.shutdown().await;
    }
    cluster.until("the peer lists nothing", async || Ok(!listed().await?)).await
}
