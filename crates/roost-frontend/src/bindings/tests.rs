use roost_kv::{ApproximateIndex, WorkerId, WorkerRank};
use roost_router::{AffinityConfig, Config, Core, Router, Worker};

use super::*;

fn binding(session: &str, worker: u64, idle: u64) -> SavedBinding {
    SavedBinding {
        session: session.to_owned(),
        rank: WorkerRank::new(WorkerId(worker), 2),
        idle: Duration::from_secs(idle),
        promised_tokens: 7,
        sequence: u64::MAX,
        writer_id: 9,
    }
}

fn saved() -> Saved {
    let key = |model: &str, role| (Box::from(model), Box::from("sum"), role);
    Saved::from([
        (key("a/b", Role::Aggregated), vec![binding("s\"\n\u{1}ä", 1, 1), binding("t", u64::MAX, 2)]),
        (key("a/b", Role::Prefill), vec![binding("t", 3, 0)]),
    ])
}

fn registry(role: Role) -> Registry {
    let affinity = AffinityConfig { ttl: Some(Duration::from_secs(60)), ..AffinityConfig::default() };
    let core = Core::new(Config { role, affinity, ..Config::default() }, 1).unwrap();
    let router = Router::new(core);
    for id in [1, 3] {
        router.worker_joined(Worker { id: WorkerId(id), ranks: 4, ..Worker::default() });
    }
    let approximate = ApproximateIndex::new(Duration::from_secs(1), 1, Instant::now());
    let endpoint = roost_cluster::EndpointId::new("ns", "backend", "generate");
    let pool = Pool::new(roost_cluster::Role::Aggregated, endpoint, router, approximate, true);
    Registry { pools: vec![("a/b".into(), "sum".into(), Arc::new(pool))], ..Registry::default() }
}

#[test]
fn what_is_written_is_read_with_the_time_between_as_idle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bindings");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    file::write(&path, then, &saved()).unwrap();
    let mut expected = saved();
    expected.values_mut().flatten().for_each(|binding| binding.idle += Duration::from_secs(30));
    assert_eq!(file::read(&path, then + Duration::from_secs(30), 100).unwrap(), expected);
    let back = file::read(&path, then - Duration::from_secs(30), 100).unwrap();
    assert_eq!(back, saved(), "a clock that was set back");
    let some: usize = file::read(&path, then, 2).unwrap().values().map(Vec::len).sum();
    assert_eq!(some, 2);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_cut_or_foreign_file_is_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bindings");
    let now = SystemTime::now();
    file::write(&path, now, &saved()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    let left: usize = file::read(&path, now, 100).unwrap().values().map(Vec::len).sum();
    assert_eq!(left, 2);
    for foreign in ["", "hello\n", "{\"roost_bindings\":2,\"saved_at_unix_ms\":0}\n"] {
        std::fs::write(&path, foreign).unwrap();
        assert!(file::read(&path, now, 100).is_err(), "{foreign:?}");
    }
    let nowhere = folder.path().join("no/such/folder");
    assert!(file::write(&nowhere, now, &saved()).is_err());
}

#[test]
fn pools_get_what_is_theirs_before_and_after_the_file_is_read() {
    let home = |registry: &Registry, session: &str| registry.pools[0].2.router.bound(session);
    let bindings = Bindings::default();
    let early = registry(Role::Aggregated);
    bindings.attach(&early);
    assert_eq!(home(&early, "s\"\n\u{1}ä"), None);
    bindings.offer(saved());
    assert_eq!(home(&early, "s\"\n\u{1}ä"), Some(WorkerRank::new(WorkerId(1), 2)));
    // Its worker is not known: it waits, and is written again meanwhile.
    assert_eq!(home(&early, "t"), None);
    let late = registry(Role::Prefill);
    let sessions = |saved: Saved| {
        let mut names: Vec<String> = saved.into_values().flatten().map(|binding| binding.session).collect();
        names.sort();
        names
    };
    assert_eq!(sessions(bindings.collect()), ["s\"\n\u{1}ä", "t", "t"], "one more for a pool to come");
    bindings.attach(&late);
    bindings.attach(&late);
    assert_eq!(home(&late, "t"), Some(WorkerRank::new(WorkerId(3), 2)));
    assert_eq!(sessions(bindings.collect()), ["s\"\n\u{1}ä", "t", "t"]);
}

#[test]
fn the_keeper_reads_writes_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bindings");
    let config = BindingsFile { path: path.clone(), interval: Duration::from_secs(3600), limit: 10 };
    let bindings = Arc::new(Bindings::default());
    let pools = registry(Role::Aggregated);
    bindings.attach(&pools);
    let keeper = bindings.keep(config).unwrap();
    pools.pools[0].2.router.restore(vec![binding("mine", 1, 0)]);
    keeper.stop();
    let kept = file::read(&path, SystemTime::now(), 10).unwrap();
    assert_eq!(kept.into_values().flatten().map(|binding| binding.session).collect::<Vec<_>>(), ["mine"]);
}
