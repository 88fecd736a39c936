use serde_json::Value;

use super::*;

fn secs(value: f64) -> Duration {
    Duration::from_secs_f64(value)
}

fn queue(policy: QueuePolicy) -> Queue {
    Queue::new(QueueConfig { threshold: Some(1.0), policy, ..QueueConfig::default() })
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// The pop orders of the peer's queue, a single class.
#[test]
fn the_order_is_the_peers() {
    let fixture = crate::fixtures::load("routing/queue.json");
    for case in fixture["single_class"].as_array().unwrap() {
        let policy = match case["policy"].as_str().unwrap() {
            "fcfs" => QueuePolicy::Fcfs,
            "lcfs" => QueuePolicy::Lcfs,
            "wspt" => QueuePolicy::Wspt,
            other => panic!("unknown policy {other}"),
        };
        let start = Instant::now();
        let mut queue = queue(policy);
        for request in case["requests"].as_array().unwrap() {
            let claim = Claim {
                isl_tokens: number(&request["prompt_tokens"]),
                cached_tokens: number(&request["cached_tokens"]),
                strict_priority: number(&request["strict_priority"]),
                priority: request["priority_jump"].as_f64().unwrap(),
            };
            let at = start + secs(request["arrival_secs"].as_f64().unwrap());
            let id = queue.push(at, Lane::default(), claim).unwrap();
            assert_eq!(id.0, request["index"].as_u64().unwrap());
        }
        let order: Vec<u64> = std::iter::from_fn(|| queue.call(|_| true)).map(|id| id.0).collect();
        let expected: Vec<u64> =
            case["pop_order"].as_array().unwrap().iter().map(|index| index.as_u64().unwrap()).collect();
        assert_eq!(order, expected, "{policy:?}");
        assert_eq!(queue.size(), QueueSize::default());
    }
}

fn lane(worker: u64) -> Lane {
    Lane { worker: Some(WorkerId(worker)), ..Lane::default() }
}

/// `exact_lanes` of the peer's fixture. In its `head_of_line` nobody goes; here lanes never block each other.
#[test]
fn a_full_rank_holds_up_only_those_that_need_it() {
    let now = Instant::now();
    let mut queue = queue(QueuePolicy::Fcfs);
    let pinned: Vec<_> = (0..3).map(|id| queue.push(now, lane(id), Claim::default()).unwrap()).collect();
    assert_eq!(queue.call(|lane| lane.worker != Some(WorkerId(0))), Some(pinned[1]));
    let free = queue.push(now, Lane::default(), Claim::default()).unwrap();
    assert_eq!(queue.call(|lane| lane.worker.is_none()), Some(free));
    assert_eq!(queue.call(|_| false), None);
}

/// Long prompts under `wspt`, and low strict priorities, are served although better ones never end.
#[test]
fn nothing_starves_under_a_stream_of_preferred_requests() {
    let now = Instant::now();
    let mut queue = queue(QueuePolicy::Wspt);
    let long = queue.push(now, Lane::default(), Claim { isl_tokens: 200_000, ..Claim::default() }).unwrap();
    let mut turns = 0;
    loop {
        let short = Claim { isl_tokens: 100, strict_priority: 9, ..Claim::default() };
        queue.push(now, Lane::default(), short).unwrap();
        turns += 1;
        if queue.call(|_| true) == Some(long) {
            break;
        }
        assert!(turns < OLDEST_EVERY, "passed over {turns} times");
    }
    assert_eq!(turns, OLDEST_EVERY);
}

#[test]
fn the_queue_is_bounded_and_waiting_ends() {
    let now = Instant::now();
    let config = QueueConfig { capacity: 2, max_wait: secs(5.0), ..QueueConfig::default() };
    let mut queue = Queue::new(config);
    let claim = Claim { isl_tokens: 10, cached_tokens: 4, ..Claim::default() };
    let first = queue.push(now, Lane::default(), claim).unwrap();
    let second = queue.push(now + secs(1.0), lane(1), claim).unwrap();
    assert_eq!(queue.push(now, Lane::default(), claim), None);
    assert_eq!(queue.size(), QueueSize { requests: 2, isl_tokens: 20, cached_tokens: 8 });
    assert_eq!(queue.expire(now + secs(4.9)), 0);
    assert_eq!(queue.expire(now + secs(5.0)), 1);
    assert_eq!([queue.standing(first), queue.standing(second)], [Standing::Late, Standing::Waits]);
    queue.leave(first);
    queue.leave(second);
    assert_eq!(queue.size(), QueueSize::default());
    assert!(queue.lanes.is_empty() && queue.tickets.is_empty());
}

#[test]
fn one_that_left_after_its_call_no_longer_counts() {
    let now = Instant::now();
    let mut queue = queue(QueuePolicy::Fcfs);
    let id = queue.push(now, Lane::default(), Claim::default()).unwrap();
    assert_eq!(queue.call(|_| true), Some(id));
    assert_eq!((queue.called(), queue.standing(id)), (1, Standing::Turn));
    queue.leave(id);
    queue.leave(id);
    assert!(queue.is_idle());
}
