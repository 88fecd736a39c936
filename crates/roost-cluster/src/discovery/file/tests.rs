use std::fs;
use std::path::Path;
use std::time::SystemTime;

use tempfile::TempDir;
use tokio::time::timeout;

use super::store::Store;
use super::*;
use crate::record::{Bucket, EndpointId};

/// Far above what any step takes; only a broken implementation waits that long.
const DEADLINE: Duration = Duration::from_secs(20);

fn config(root: &Path) -> FileDiscoveryConfig {
    FileDiscoveryConfig { poll: Duration::from_millis(5), ..FileDiscoveryConfig::new(root) }
}

fn key(id: u64) -> RecordKey {
    RecordKey::instance(&EndpointId::new("dynamo", "backend", "worker_kv"), id)
}

fn path_of(root: &Path, key: &RecordKey) -> PathBuf {
    Store { root: root.to_owned(), ttl: Duration::from_secs(10) }.path(key)
}

async fn until(
    watch: &mut watch::Receiver<Arc<Snapshot>>,
    what: &str,
    holds: impl Fn(&Snapshot) -> bool,
) -> Arc<Snapshot> {
    let seen = timeout(DEADLINE, watch.wait_for(|snapshot| holds(snapshot))).await;
    seen.unwrap_or_else(|_| panic!("never seen: {what}")).unwrap().clone()
}

fn make_old(path: &Path, age: Duration) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn file_names_equal_the_peers() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/wire/discovery");
    let mut seen = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let fixture: serde_json::Value =
            serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        for record in fixture["records"].as_array().into_iter().flatten() {
            let (key, file_name) = (record["key"].as_str().unwrap(), record["file_name"].as_str().unwrap());
            assert_eq!(name::file_name(key), file_name);
            assert_eq!(name::key(file_name).as_deref(), Some(key));
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} names checked");
    assert_eq!(name::key(".tmp_0123456789abcdef"), None);
    assert_eq!(name::key("a%2"), None);
}

#[tokio::test]
async fn a_record_travels_and_is_deleted_on_close() {
    let root = TempDir::new().unwrap();
    let root = root.path().join("not/yet/there");
    let frontend = FileDiscovery::open(config(&root)).unwrap();
    let mut seen = frontend.watch();
    let first = until(&mut seen, "the empty store", |s| s.synced).await;
    assert!(first.records.is_empty() && first.unreachable_since.is_none());

    let worker = FileDiscovery::open(config(&root)).unwrap();
    worker.put(key(1), Bytes::from_static(b"{\"a\":1}")).await.unwrap();
    let file = path_of(&root, &key(1));
    assert!(file.ends_with("v1/instances/dynamo%2Fbackend%2Fworker%5Fkv%2F1"));
    assert_eq!(fs::read(&file).unwrap(), b"{\"a\":1}");
    until(&mut seen, "the record", |s| s.records.get(&key(1)).is_some_and(|v| v == "{\"a\":1}")).await;

    worker.put(key(1), Bytes::from_static(b"{\"a\":2}")).await.unwrap();
    until(&mut seen, "its replacement", |s| s.records.get(&key(1)).is_some_and(|v| v == "{\"a\":2}")).await;

    let names: Vec<_> =
        fs::read_dir(file.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "no temporary file stays: {names:?}");

    worker.put(key(2), Bytes::from_static(b"{}")).await.unwrap();
    worker.close().await;
    assert!(!file.exists());
    until(&mut seen, "both gone", |s| s.records.is_empty()).await;
    assert!(matches!(worker.put(key(3), Bytes::new()).await, Err(DiscoveryError::Closed)));
}

#[tokio::test]
async fn a_key_has_one_owner() {
    let root = TempDir::new().unwrap();
    let one = FileDiscovery::open(config(root.path())).unwrap();
    let two = FileDiscovery::open(config(root.path())).unwrap();
    one.put(key(1), Bytes::from_static(b"1")).await.unwrap();
    assert!(matches!(two.put(key(1), Bytes::from_static(b"2")).await, Err(DiscoveryError::Exists { .. })));
    two.delete(key(1)).await.unwrap();
    assert_eq!(fs::read(path_of(root.path(), &key(1))).unwrap(), b"1", "not the owner, nothing deleted");
    one.delete(key(1)).await.unwrap();
    two.put(key(1), Bytes::from_static(b"2")).await.unwrap();
    assert_eq!(fs::read(path_of(root.path(), &key(1))).unwrap(), b"2");
}

#[tokio::test]
async fn the_owner_refreshes_and_restores() {
    let root = TempDir::new().unwrap();
    let short = FileDiscoveryConfig { ttl: Duration::from_millis(60), ..config(root.path()) };
    let worker = FileDiscovery::open(short).unwrap();
    worker.put(key(1), Bytes::from_static(b"{}")).await.unwrap();
    let file = path_of(root.path(), &key(1));

    let first = fs::metadata(&file).unwrap().modified().unwrap();
    wait("a younger file", || fs::metadata(&file).is_ok_and(|m| m.modified().unwrap() > first)).await;
    fs::remove_file(&file).unwrap();
    wait("the record again", || fs::read(&file).is_ok_and(|content| content == b"{}")).await;
}

#[tokio::test]
async fn anybody_reaps_stale_records() {
    let root = TempDir::new().unwrap();
    let frontend = FileDiscovery::open(config(root.path())).unwrap();
    let mut seen = frontend.watch();
    let dead = FileDiscovery::open(config(root.path())).unwrap();
    for id in [1, 2] {
        dead.put(key(id), Bytes::from_static(b"{}")).await.unwrap();
    }
    until(&mut seen, "both records", |s| s.records.len() == 2).await;
    dead.abandon(key(1));
    // The abandoned record counts as one of a dead owner once it is old; the other one is kept alive.
    dead.put(key(3), Bytes::from_static(b"{}")).await.unwrap();
    make_old(&path_of(root.path(), &key(1)), Duration::from_secs(11));
    let now = until(&mut seen, "one gone", |s| !s.records.contains_key(&key(1))).await;
    assert_eq!(now.records.len(), 2);
    assert!(!path_of(root.path(), &key(1)).exists());
}

#[tokio::test]
async fn a_stale_record_does_not_block_its_key() {
    let root = TempDir::new().unwrap();
    let path = path_of(root.path(), &key(1));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "old").unwrap();
    make_old(&path, Duration::from_secs(11));
    let store = Store { root: root.path().to_owned(), ttl: Duration::from_secs(10) };
    store.create(&key(1), b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert!(matches!(store.create(&key(1), b"newer"), Err(DiscoveryError::Exists { .. })));
    assert!(store.reap(Bucket::Instances, &[name::file_name(&key(1).key)]).is_empty(), "young records stay");
}

#[tokio::test]
async fn partial_records_are_read_again() {
    let root = TempDir::new().unwrap();
    let frontend = FileDiscovery::open(config(root.path())).unwrap();
    let mut seen = frontend.watch();
    let path = path_of(root.path(), &key(1));
    let other = path_of(root.path(), &key(2));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "{\"a\":").unwrap();
    fs::write(&other, "{}").unwrap();
    let first = until(&mut seen, "the good record", |s| s.records.contains_key(&key(2))).await;
    assert!(!first.records.contains_key(&key(1)));
    fs::write(&path, "{\"a\":1}").unwrap();
    until(&mut seen, "the finished record", |s| s.records.get(&key(1)).is_some_and(|v| v == "{\"a\":1}"))
        .await;
}

#[tokio::test]
async fn a_store_that_is_away_keeps_its_workers() {
    let temp = TempDir::new().unwrap();
    let (root, aside) = (temp.path().join("store"), temp.path().join("aside"));
    let short = FileDiscoveryConfig { ttl: Duration::from_secs(1), ..config(&root) };
    let frontend = FileDiscovery::open(short).unwrap();
    let mut seen = frontend.watch();
    for id in [1, 2] {
        let path = path_of(&root, &key(id));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "{}").unwrap();
    }
    until(&mut seen, "both records", |s| s.records.len() == 2).await;

    fs::rename(&root, &aside).unwrap();
    let away = until(&mut seen, "the outage", |s| s.unreachable_since.is_some()).await;
    assert_eq!(away.records.len(), 2, "absence of the store is not absence of the workers");

    fs::remove_file(path_of(&aside, &key(1))).unwrap();
    make_old(&path_of(&aside, &key(2)), Duration::from_secs(60));
    fs::rename(&aside, &root).unwrap();
    let back = until(&mut seen, "the return", |s| s.unreachable_since.is_none()).await;
    assert_eq!(back.records.len(), 2, "owners get time to renew their records first");
    until(&mut seen, "the end of that time", |s| s.records.is_empty()).await;
}

#[tokio::test]
async fn a_store_made_anew_is_filled_again_without_a_flap() {
    let temp = TempDir::new().unwrap();
    let (root, trash) = (temp.path().join("store"), temp.path().join("trash"));
    let short = FileDiscoveryConfig { ttl: Duration::from_secs(1), ..config(&root) };
    let owner = FileDiscovery::open(short.clone()).unwrap();
    owner.put(key(1), Bytes::from_static(b"{}")).await.unwrap();
    // A record whose owner does not write it again, as those of Dynamo's workers.
    fs::write(path_of(&root, &key(2)), "{}").unwrap();
    let frontend = FileDiscovery::open(short).unwrap();
    let mut seen = frontend.watch();
    until(&mut seen, "both records", |s| s.records.len() == 2).await;
    let mut every = frontend.watch();
    let flaps = tokio::spawn(async move {
        while every.changed().await.is_ok() {
            if !every.borrow_and_update().records.contains_key(&key(1)) {
                return true;
            }
        }
        false
    });
    fs::rename(&root, &trash).unwrap();
    until(&mut seen, "the loss of the record that nobody renews", |s| s.records.len() == 1).await;
    assert!(path_of(&root, &key(1)).exists(), "the owner has made the store anew");
    drop((frontend, seen));
    assert!(!flaps.await.unwrap(), "the owner's record was missed for a moment");
}

async fn wait(what: &str, holds: impl Fn() -> bool) {
    let polled = timeout(DEADLINE, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    });
    polled.await.unwrap_or_else(|_| panic!("never seen: {what}"));
}
