use std::time::Duration;

use roost_kv::{Overlap, SequenceHash};

use super::*;
use crate::{AffinityConfig, AffinityOutcome, Config, Mode};

/// A router of two workers on a clock that stands still.
fn router() -> Router {
    let affinity = AffinityConfig { ttl: Some(Duration::from_secs(60)), ..AffinityConfig::default() };
    let config = Config { mode: Mode::Kv, affinity, ..Config::default() };
    let start = Instant::now();
    let router = Router::with_clock(Core::new(config, 1).unwrap(), move || start);
    for id in 1..=2 {
        router.worker_joined(Worker { id: WorkerId(id), ..Worker::default() });
    }
    router
}

fn load(router: &Router) -> (u64, u32) {
    let ranks = router.snapshot().ranks;
    (ranks.iter().map(|rank| rank.prefill_tokens).sum(), ranks.iter().map(|rank| rank.active_requests).sum())
}

fn place(router: &Router, session: &str) -> (Placement, Lease) {
    let sequence: Arc<[SequenceHash]> = Arc::from([]);
    let overlap = Overlap::default();
    router.place(&Request { session: Some(session), ..Request::new(100, 16, &sequence, &overlap) }).unwrap()
}

#[test]
fn a_dropped_lease_gives_the_load_back_and_leaves_no_binding() {
    let router = router();
    let (_, lease) = place(&router, "s");
    assert_eq!(load(&router), (100, 1));
    drop(lease);
    assert_eq!(load(&router), (0, 0));
    assert_eq!(router.bound("s"), None);
}

#[test]
fn a_finished_lease_is_not_given_back_again() {
    let router = router();
    let (first, lease) = place(&router, "s");
    lease.committed();
    lease.first_token();
    assert_eq!(load(&router), (0, 1));
    lease.output_tokens(5);
    lease.finish(End::Ok);
    let (second, held) = place(&router, "s");
    assert_eq!((second.rank, second.affinity), (first.rank, AffinityOutcome::Hit));
    assert_eq!(held.rank(), first.rank);
    assert_eq!(load(&router), (100, 1));
    assert!(router.unbind("s"));
}

#[test]
fn a_failure_through_the_lease_moves_the_next_turn() {
    let router = router();
    let (first, lease) = place(&router, "s");
    lease.committed();
    lease.finish(End::Ok);
    let (_, lease) = place(&router, "s");
    lease.worker_failed(Failure::Unreachable);
    assert_eq!(load(&router), (0, 0));
    let (moved, _lease) = place(&router, "s");
    assert_ne!(moved.rank, first.rank);
}

#[test]
fn many_threads_leave_nothing_behind() {
    let router = router();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let router = &router;
            scope.spawn(move || {
                for turn in 0..200 {
                    let (_, lease) = place(router, &format!("s{}", (thread + turn) % 5));
                    if turn % 3 > 0 {
                        lease.committed();
                        lease.first_token();
                    }
                    if turn % 2 == 0 {
                        lease.finish(End::Ok);
                    }
                }
            });
        }
    });
    assert_eq!(load(&router), (0, 0));
    assert_eq!(router.stats().placed, 800);
}

/// A waker that counts.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_waiting_request_is_woken_when_it_is_its_turn_and_leaves_when_dropped() {
    use std::future::Future;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::{Context, Poll};

    let mut config = Config { mode: Mode::Kv, ..Config::default() };
    config.queue.threshold = Some(1.0);
    let start = Instant::now();
    let router = Router::with_clock(Core::new(config, 1).unwrap(), move || start);
    router.worker_joined(Worker { id: WorkerId(1), max_batched_tokens: Some(100), ..Worker::default() });
    let (sequence, overlap) = (Arc::from([]), Overlap::default());
    let request = Request::new(500, 16, &sequence, &overlap);
    let submit = |waiting| router.submit(&request, waiting).unwrap();
    let Submission::Placed(_, lease) = submit(None) else { panic!("an idle worker has room") };
    let [Submission::Waits(first), Submission::Waits(second)] = [submit(None), submit(None)] else {
        panic!("the worker is full")
    };
    let woken = Arc::new(Woken::default());
    let waker = Arc::clone(&woken).into();
    let poll = |waiting: &Waiting| {
        let mut turn = std::pin::pin!(waiting.turn());
        turn.as_mut().poll(&mut Context::from_waker(&waker))
    };
    assert_eq!((poll(&first), poll(&second)), (Poll::Pending, Poll::Pending));
    drop(lease);
    assert_eq!((poll(&first), poll(&second), woken.0.load(Relaxed)), (Poll::Ready(()), Poll::Pending, 1));
    drop(first);
    assert_eq!((poll(&second), woken.0.load(Relaxed)), (Poll::Ready(()), 2));
    let Submission::Placed(_, lease) = submit(Some(second)) else { panic!("its turn") };
    assert_eq!(load(&router), (500, 1));
    drop(lease);
    assert_eq!(router.snapshot().queue.requests, 0);
}

/// Numbers of the decisions that a trace is told of, out of `count` requests.
fn traced(share: f64, count: usize) -> Vec<u64> {
    let router = router();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    assert!(router.trace_decisions(share, move |decision| list.lock().push(decision.number)));
    assert!(!router.trace_decisions(1.0, |_| panic!("the first one stays")));
    for number in 0..count {
        place(&router, &format!("s{number}")).1.finish(End::Ok);
    }
    told.lock().clone()
}

#[test]
fn a_trace_is_told_of_the_share_it_asked_for() {
    assert_eq!(traced(1.0, 20), (1..=20).collect::<Vec<_>>());
    assert!(traced(0.0, 20).is_empty());
    let quarter = traced(0.25, 4000);
    assert!((900..=1100).contains(&quarter.len()), "{} of 4000", quarter.len());
    assert_eq!(quarter, traced(0.25, 4000));
}

#[test]
fn a_trace_is_told_of_rejections_and_may_ask_the_router() {
    let router = router();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (list, asked) = (Arc::clone(&told), router.clone());
    router.trace_decisions(1.0, move |decision| {
        // Not under the router's lock.
        list.lock().push((decision.outcome, asked.snapshot().ranks.len()));
    });
    let sequence: Arc<[SequenceHash]> = Arc::from([]);
    let overlap = Overlap::default();
    let pin = crate::Pin { worker: Some(WorkerId(9)), dp_rank: None };
    let rejection = router.place(&Request { pin, ..Request::new(100, 16, &sequence, &overlap) }).unwrap_err();
    assert_eq!(*told.lock(), [(crate::Outcome::Rejected(rejection), 2)]);
}
