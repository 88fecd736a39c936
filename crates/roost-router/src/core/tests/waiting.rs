//! Requests that wait for room.

use super::*;
use crate::{QueueConfig, QueuePolicy, Submitted, TicketId};

/// Two workers that compute 1000 tokens at once, one request of which fills a worker.
fn pool(change: impl FnOnce(&mut QueueConfig)) -> Pool {
    let mut pool = Pool::with(0, |config| {
        config.queue.threshold = Some(1.0);
        change(&mut config.queue);
    });
    for id in 1..=2 {
        let worker = Worker { id: WorkerId(id), max_batched_tokens: Some(1000), ..Worker::default() };
        pool.core.worker_joined(pool.now, worker);
    }
    pool
}

#[derive(Clone, Copy, Default)]
struct Ask<'a> {
    tokens: u32,
    pin: Option<u64>,
    session: Option<&'a str>,
    exclude: &'a [WorkerId],
    strict: u32,
}

impl Pool {
    fn submit(&mut self, ask: Ask<'_>, ticket: Option<TicketId>) -> Result<Submitted, Rejection> {
        let (sequence, overlap) = (Arc::from([]), Overlap::default());
        let request = Request {
            pin: pin(ask.pin, None),
            session: ask.session,
            exclude: ask.exclude,
            strict_priority: ask.strict,
            ..Request::new(ask.tokens, 16, &sequence, &overlap)
        };
        self.core.submit(self.now, &request, ticket)
    }

    fn placed(&mut self, ask: Ask<'_>, ticket: Option<TicketId>) -> Placement {
        match self.submit(ask, ticket).unwrap() {
            Submitted::Placed(placement) => placement,
            Submitted::Waits(_) => panic!("waits"),
        }
    }

    fn waits(&mut self, ask: Ask<'_>) -> TicketId {
        match self.submit(ask, None).unwrap() {
            Submitted::Waits(ticket) => ticket,
            Submitted::Placed(placement) => panic!("placed on {}", placement.rank),
        }
    }

    /// Fills both workers.
    fn fill(&mut self) -> [Placement; 2] {
        [1, 2].map(|id| self.placed(Ask { tokens: 2000, pin: Some(id), ..Ask::default() }, None))
    }
}

const ANY: Ask<'static> = Ask { tokens: 2000, pin: None, session: None, exclude: &[], strict: 0 };

#[test]
fn a_request_waits_while_every_worker_has_prefill_to_do() {
    let mut pool = pool(|_| {});
    let [first, second] = pool.fill();
    let [a, b] = [pool.waits(ANY), pool.waits(ANY)];
    assert_eq!(pool.core.snapshot(pool.now).queue.requests, 2);
    assert!(!pool.core.is_called(a));
    pool.core.first_token(pool.now, second.booking);
    assert!(pool.core.is_called(a) && !pool.core.is_called(b), "one worker has room: one request goes");
    assert_eq!(pool.placed(ANY, Some(a)).rank.worker, WorkerId(2));
    assert!(!pool.core.is_called(b), "the room was taken");
    pool.core.finish(pool.now, first.booking, End::Cancelled);
    assert_eq!(pool.placed(ANY, Some(b)).rank.worker, WorkerId(1));
    assert_eq!(pool.core.snapshot(pool.now).queue.requests, 0);
}

#[test]
fn a_newcomer_does_not_overtake() {
    let mut pool = pool(|_| {});
    let [first, _] = pool.fill();
    let early = pool.waits(ANY);
    pool.core.first_token(pool.now, first.booking);
    // Worker 1 has room, and it is spoken for.
    let late = pool.waits(ANY);
    assert!(pool.core.is_called(early) && !pool.core.is_called(late));
    assert_eq!(pool.placed(ANY, Some(early)).rank.worker, WorkerId(1));
}

#[test]
fn a_pinned_request_waits_for_its_worker_and_holds_up_no_other() {
    let mut pool = pool(|_| {});
    let [_, second] = pool.fill();
    let pinned = pool.waits(Ask { pin: Some(1), ..ANY });
    let free = pool.waits(ANY);
    pool.core.first_token(pool.now, second.booking);
    assert!(pool.core.is_called(free) && !pool.core.is_called(pinned));
    pool.placed(ANY, Some(free));
}

#[test]
fn a_bound_session_waits_for_its_worker_until_that_is_gone() {
    let mut pool = pool(|_| {});
    let own = pool.placed(Ask { tokens: 10, session: Some("s"), ..Ask::default() }, None);
    pool.core.finish(pool.now, own.booking, End::Ok);
    let other = 3 - own.rank.worker.0;
    pool.placed(Ask { pin: Some(own.rank.worker.0), ..ANY }, None);
    let turn = Ask { session: Some("s"), ..ANY };
    let ticket = pool.waits(turn);
    assert!(!pool.core.is_called(ticket), "the other worker is idle, but the cache is not there");
    pool.core.worker_left(pool.now, own.rank.worker);
    assert!(pool.core.is_called(ticket));
    assert_eq!(pool.placed(turn, Some(ticket)).rank.worker, WorkerId(other));
}

#[test]
fn priority_decides_and_those_who_leave_make_way() {
    let mut pool = pool(|queue| queue.policy = QueuePolicy::Fcfs);
    let [first, _] = pool.fill();
    let plain = pool.waits(ANY);
    let urgent = pool.waits(Ask { strict: 1, ..ANY });
    pool.core.first_token(pool.now, first.booking);
    assert!(pool.core.is_called(urgent) && !pool.core.is_called(plain));
    pool.core.leave(pool.now, urgent);
    assert!(pool.core.is_called(plain), "the room of one that left after its call goes to the next");
}

#[test]
fn a_full_queue_and_a_long_wait_are_refused() {
    let mut pool = pool(|queue| {
        queue.capacity = 1;
        queue.max_wait = Duration::from_secs(5);
    });
    pool.fill();
    let ticket = pool.waits(ANY);
    assert_eq!(pool.submit(ANY, None).unwrap_err(), Rejection::QueueFull { limit: 1 });
    pool.sleep(5);
    assert_eq!(pool.core.expire(pool.now).waiting, 1);
    assert!(pool.core.is_called(ticket));
    assert_eq!(pool.submit(ANY, Some(ticket)).unwrap_err(), Rejection::WaitedTooLong);
    let stats = pool.core.stats();
    assert_eq!((stats.queued, stats.rejected_queue_full, stats.rejected_waited), (1, 1, 1));
}

#[test]
fn retries_and_pools_without_threshold_never_wait() {
    let mut queued = pool(|_| {});
    queued.fill();
    let exclude = [WorkerId(1)];
    assert_eq!(queued.placed(Ask { exclude: &exclude, ..ANY }, None).rank.worker, WorkerId(2));
    let mut plain = pool(|queue| queue.threshold = None);
    plain.fill();
    plain.placed(ANY, None);
}

#[test]
fn overloaded_workers_refuse_at_once() {
    let mut pool = pool(|_| {});
    let limit = BusyThresholds { active_prefill_tokens: Some(1500), ..BusyThresholds::default() };
    pool.core.set_busy_thresholds(limit).unwrap();
    pool.fill();
    assert_eq!(pool.submit(ANY, None).unwrap_err(), Rejection::Overloaded);
}

#[test]
fn nobody_waits_for_ever_when_all_workers_leave() {
    let mut pool = pool(|_| {});
    pool.fill();
    let tickets = [pool.waits(ANY), pool.waits(ANY)];
    for id in 1..=2 {
        pool.core.worker_left(pool.now, WorkerId(id));
    }
    for ticket in tickets {
        assert!(pool.core.is_called(ticket));
        assert_eq!(pool.submit(ANY, Some(ticket)).unwrap_err(), Rejection::NoWorkers);
    }
}

#[test]
fn what_needs_no_prompt_to_be_refused_is_known_before() {
    fn full_for(pool: &Pool, session: Option<&str>, worker: Option<u64>) -> Option<Rejection> {
        pool.core.full_for(pool.now, session, pin(worker, None))
    }
    let mut pool = pool(|queue| queue.capacity = 1);
    assert_eq!(full_for(&pool, None, None), None);
    let own = pool.placed(Ask { tokens: 10, session: Some("s"), ..Ask::default() }, None);
    pool.core.finish(pool.now, own.booking, End::Ok);
    let home = own.rank.worker.0;
    let filling = pool.placed(Ask { pin: Some(home), ..ANY }, None);
    let waiting = pool.waits(Ask { session: Some("s"), ..ANY });
    // One worker is full and the only place is taken: who may use the other is served, once nobody is before it.
    let full = Some(Rejection::QueueFull { limit: 1 });
    assert_eq!(full_for(&pool, Some("s"), None), full);
    assert_eq!(full_for(&pool, None, Some(home)), full);
    let agree = |pool: &mut Pool, ask: Ask<'_>| {
        let before = full_for(pool, ask.session, ask.pin);
        let after = pool.submit(ask, None).err();
        assert_eq!(before, after, "{:?} {:?}", ask.session, ask.pin);
    };
    agree(&mut pool, Ask { session: Some("s"), ..ANY });
    agree(&mut pool, Ask { pin: Some(home), ..ANY });
    pool.core.leave(pool.now, waiting);
    assert_eq!(full_for(&pool, Some("s"), None), None, "it may wait");
    pool.core.finish(pool.now, filling.booking, End::Ok);

    pool.core.config.queue.threshold = None;
    let busy = crate::BusyThresholds { active_prefill_tokens: Some(100), ..Default::default() };
    pool.core.set_busy_thresholds(busy).unwrap();
    pool.placed(Ask { pin: Some(1), ..ANY }, None);
    assert_eq!(full_for(&pool, None, None), None);
    assert_eq!(full_for(&pool, None, Some(1)), Some(Rejection::PinOverloaded { worker: WorkerId(1) }));
    agree(&mut pool, Ask { pin: Some(1), ..ANY });
    pool.placed(Ask { pin: Some(2), ..ANY }, None);
    assert_eq!(full_for(&pool, None, None), Some(Rejection::Overloaded));
    assert_eq!(full_for(&pool, Some("s"), None), Some(Rejection::Overloaded));
    assert_eq!(full_for(&pool, None, Some(9)), None, "that worker is not full, it is not there");
    agree(&mut pool, ANY);

    let before = pool.core.stats();
    pool.core.turned_away(Rejection::Overloaded);
    pool.core.turned_away(Rejection::QueueFull { limit: 1 });
    let after = pool.core.stats();
    assert_eq!(after.rejected_overloaded, before.rejected_overloaded + 1);
    assert_eq!(after.rejected_queue_full, before.rejected_queue_full + 1);
    assert_eq!(after.received, before.received + 2);
}
