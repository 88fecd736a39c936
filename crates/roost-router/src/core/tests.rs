use std::time::Duration;

use roost_kv::hash::BASE_SEED;
use roost_kv::{Blocks, EngineHash, Index, KvEvent, KvEventData, Overlap, StoredBlock, Tier};

use super::*;
use crate::{AffinityConfig, AffinityOutcome, Mode, Pin, Placement, RebindReason, Rejection, Request, Role};

mod bound;
mod faults;
mod properties;
mod sessions;
mod spread;
mod waiting;

/// A pool of workers with caches that remember every prompt, driven on a clock of its own.
struct Pool {
    core: Core,
    index: Index,
    now: Instant,
    block_size: u32,
    /// Tokens handed out for unique prompts.
    unique: u32,
}

/// A prompt under construction.
#[derive(Clone, Default)]
struct Turn<'a> {
    session: Option<&'a str>,
    parent: Option<&'a str>,
    pin: Pin,
    exclude: &'a [WorkerId],
    tokens: Vec<u32>,
}

impl<'a> Turn<'a> {
    fn of(session: &'a str, tokens: Vec<u32>) -> Self {
        Self { session: Some(session), tokens, ..Self::default() }
    }

    fn plain(tokens: Vec<u32>) -> Self {
        Self { tokens, ..Self::default() }
    }
}

impl Pool {
    /// A pool in mode kv with affinity of a minute.
    fn new(workers: u64) -> Self {
        Self::with(workers, |_| {})
    }

    fn with(workers: u64, change: impl FnOnce(&mut Config)) -> Self {
        let affinity = AffinityConfig { ttl: Some(Duration::from_secs(60)), ..AffinityConfig::default() };
        let mut config = Config { mode: Mode::Kv, affinity, ..Config::default() };
        change(&mut config);
        let now = Instant::now();
        let core = Core::new(config, 42).unwrap();
        let mut pool = Self { core, index: Index::new(), now, block_size: 16, unique: 1 << 20 };
        (1..=workers).for_each(|id| pool.join(id));
        pool
    }

    fn join(&mut self, id: u64) {
        self.core.worker_joined(self.now, Worker { id: WorkerId(id), ..Worker::default() });
    }

    /// Returns tokens that no other prompt contains.
    fn fresh(&mut self, count: u32) -> Vec<u32> {
        self.unique += count;
        (self.unique - count..self.unique).collect()
    }

    fn place(&mut self, turn: &Turn<'_>) -> Result<Placement, Rejection> {
        let blocks = Blocks::compute(&turn.tokens, self.block_size, BASE_SEED);
        let overlap = self.index.overlap(&blocks.sequence);
        let isl_tokens = u32::try_from(turn.tokens.len()).unwrap();
        let request = Request {
            session: turn.session,
            parent: turn.parent,
            pin: turn.pin,
            exclude: turn.exclude,
            ..Request::new(isl_tokens, self.block_size, &blocks.sequence, &overlap)
        };
        self.core.place(self.now, &request)
    }

    /// Records the prompt as cached where it went.
    fn cache(&self, rank: WorkerRank, tokens: &[u32]) {
        let blocks = Blocks::compute(tokens, self.block_size, BASE_SEED);
        let block = |(local, sequence): (&roost_kv::BlockHash, &roost_kv::SequenceHash)| StoredBlock {
            engine: EngineHash(sequence.0),
            local: *local,
        };
        let blocks = blocks.local.iter().zip(blocks.sequence.iter()).map(block).collect();
        let data = KvEventData::Stored { parent: None, blocks };
        self.index.apply(&KvEvent { event_id: 1, rank, tier: Tier::Device, data });
    }

    /// Places a turn and begins to stream it.
    fn start(&mut self, turn: &Turn<'_>) -> Placement {
        let placement = self.place(turn).unwrap();
        self.core.committed(self.now, placement.booking);
        self.core.first_token(self.now, placement.booking);
        self.cache(placement.rank, &turn.tokens);
        placement
    }

    /// Serves a turn from end to end and returns its worker.
    fn serve(&mut self, turn: &Turn<'_>) -> u64 {
        let placement = self.start(turn);
        self.core.finish(self.now, placement.booking, End::Ok);
        placement.rank.worker.0
    }

    /// Serves one first turn per session and returns the sessions per worker.
    fn open_sessions(&mut self, names: impl Iterator<Item = String>, prefix: &[u32], own: u32) -> Vec<usize> {
        let mut sessions = vec![0; self.core.fleet.members.len()];
        for name in names {
            let tokens = [prefix.to_vec(), self.fresh(own)].concat();
            sessions[self.serve(&Turn::of(&name, tokens)) as usize - 1] += 1;
        }
        sessions
    }

    fn sleep(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn idle(&self) -> bool {
        let ranks = self.core.snapshot(self.now).ranks;
        ranks.iter().all(|rank| (rank.active_blocks, rank.prefill_tokens, rank.active_requests) == (0, 0, 0))
    }
}

fn worker(placement: &Placement) -> u64 {
    placement.rank.worker.0
}

fn pin(worker: Option<u64>, dp_rank: Option<u32>) -> Pin {
    Pin { worker: worker.map(WorkerId), dp_rank }
}

#[test]
fn a_prompt_goes_where_its_cache_is() {
    let mut pool = Pool::new(3);
    let tokens = pool.fresh(1000);
    let first = pool.serve(&Turn::plain(tokens.clone()));
    let placement = pool.place(&Turn::plain([tokens, vec![1; 100]].concat())).unwrap();
    assert_eq!(worker(&placement), first);
    assert_eq!((placement.overlap_blocks, placement.cached_tokens), (62, 992));
    let stats = pool.core.stats();
    assert_eq!((stats.best_cached_tokens, stats.selected_cached_tokens), (992, 992));
}

#[test]
fn pending_prefill_outweighs_the_number_of_requests() {
    // C-KV-09: one request of 200,000 tokens in prefill against four of 100.
    let mut pool = Pool::new(2);
    let long = pool.fresh(200_000);
    pool.place(&Turn { pin: pin(Some(1), None), ..Turn::plain(long) }).unwrap();
    for _ in 0..4 {
        let short = pool.fresh(100);
        pool.place(&Turn { pin: pin(Some(2), None), ..Turn::plain(short) }).unwrap();
    }
    let cold = pool.fresh(4000);
    assert_eq!(worker(&pool.place(&Turn::plain(cold)).unwrap()), 2);
}

#[test]
fn prompts_shorter_than_a_block_spread() {
    // C-KV-05.
    let mut pool = Pool::with(3, |config| config.affinity.ttl = None);
    pool.block_size = 64;
    let mut served = [0; 3];
    for _ in 0..60 {
        let tokens = pool.fresh(20);
        served[pool.serve(&Turn::plain(tokens)) as usize - 1] += 1;
    }
    assert!(served.iter().all(|count| *count <= 34), "{served:?}");
    let mut at_once = [0; 3];
    for _ in 0..60 {
        let tokens = pool.fresh(20);
        at_once[worker(&pool.place(&Turn::plain(tokens)).unwrap()) as usize - 1] += 1;
    }
    assert!(at_once.iter().all(|count| (17..=23).contains(count)), "{at_once:?}");
}

#[test]
fn ties_after_prefill_go_to_the_worker_with_fewer_requests() {
    let mut pool = Pool::with(3, |config| config.affinity.ttl = None);
    pool.block_size = 64;
    let mut streaming = [0; 3];
    for _ in 0..60 {
        let tokens = pool.fresh(20);
        streaming[worker(&pool.start(&Turn::plain(tokens))) as usize - 1] += 1;
    }
    assert_eq!(streaming, [20, 20, 20]);
}

#[test]
fn ranks_belong_to_the_worker_that_announces_them() {
    // C-KV-06: A has ranks 0 to 7, B 8 to 15.
    let mut pool = Pool::new(0);
    for (id, start_rank) in [(1, 0), (2, 8)] {
        let worker = Worker { id: WorkerId(id), start_rank, ranks: 8, ..Worker::default() };
        pool.core.worker_joined(pool.now, worker);
    }
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let tokens = pool.fresh(100);
        used.insert(pool.place(&Turn::plain(tokens)).unwrap().rank);
    }
    let all = (0..16).map(|dp_rank| WorkerRank::new(WorkerId(1 + u64::from(dp_rank / 8)), dp_rank));
    assert!(used.into_iter().eq(all));
    let mut pinned = |pin| pool.place(&Turn { pin, ..Turn::default() }).map(|placement| placement.rank);
    assert_eq!(pinned(pin(None, Some(12))), Ok(WorkerRank::new(WorkerId(2), 12)));
    assert_eq!(pinned(pin(None, Some(3))), Ok(WorkerRank::new(WorkerId(1), 3)));
    assert_eq!(pinned(pin(None, Some(16))), Err(Rejection::UnknownRank { worker: None, dp_rank: 16 }));
    let wrong = Rejection::UnknownRank { worker: Some(WorkerId(1)), dp_rank: 12 };
    assert_eq!(pinned(pin(Some(1), Some(12))), Err(wrong));
    assert_eq!(pinned(pin(Some(9), None)), Err(Rejection::UnknownWorker { worker: WorkerId(9) }));
}

#[test]
fn a_prefill_pool_ignores_and_a_decode_pool_counts_running_blocks() {
    for (role, chosen) in [(Role::Prefill, 1), (Role::Decode, 2)] {
        let mut pool = Pool::with(2, |config| config.role = role);
        let long = pool.fresh(10_000);
        let turn = Turn { pin: pin(Some(1), None), ..Turn::plain(long.clone()) };
        pool.start(&turn);
        // Cached on worker 1, where the long request still runs.
        assert_eq!(worker(&pool.place(&Turn::plain(long)).unwrap()), chosen, "{role:?}");
    }
}

#[test]
fn generated_tokens_add_blocks_where_that_is_tracked() {
    let mut pool = Pool::with(1, |config| config.track_output_blocks = true);
    let tokens = pool.fresh(40);
    let placement = pool.start(&Turn::plain(tokens));
    let blocks = |pool: &Pool| pool.core.snapshot(pool.now).ranks[0].active_blocks;
    assert_eq!(blocks(&pool), 2);
    pool.core.output_tokens(pool.now, placement.booking, 8);
    assert_eq!(blocks(&pool), 2, "48 tokens fill the third block, which the prompt had begun");
    pool.core.output_tokens(pool.now, placement.booking, 1);
    assert_eq!(blocks(&pool), 3);
    pool.core.output_tokens(pool.now, placement.booking, 32);
    assert_eq!(blocks(&pool), 5);
    pool.core.finish(pool.now, placement.booking, End::Ok);
    assert!(pool.idle());
}

#[test]
fn the_simple_modes_stick_to_sessions_too() {
    for mode in [Mode::RoundRobin, Mode::Random, Mode::PowerOfTwo, Mode::LeastLoaded] {
        let mut pool = Pool::with(3, |config| config.mode = mode);
        let first = pool.serve(&Turn::of("s", vec![1; 40]));
        for turn in 0..6 {
            assert_eq!(pool.serve(&Turn::of("s", vec![1; 40 + turn])), first, "{mode:?}");
        }
        let others: std::collections::BTreeSet<u64> =
            (0..30).map(|_| pool.serve(&Turn::plain(vec![2; 9]))).collect();
        assert_eq!(others.len(), 3, "{mode:?}");
    }
}

#[test]
fn direct_routing_needs_a_worker() {
    let mut pool = Pool::with(2, |config| config.mode = Mode::Direct);
    assert_eq!(pool.place(&Turn::plain(vec![1])).unwrap_err(), Rejection::PinRequired);
    let turn = Turn { pin: pin(Some(2), None), ..Turn::of("s", vec![1]) };
    assert_eq!(pool.serve(&turn), 2);
    assert_eq!(pool.serve(&Turn::of("s", vec![1])), 2, "the session names the worker from now on");
}

#[test]
fn unsupported_options_are_named() {
    let config = Config { mode: Mode::DeviceAwareWeighted, ..Config::default() };
    let error = Core::new(config, 1).unwrap_err();
    assert_eq!(error.to_string(), "router mode device-aware-weighted is not supported");
    let mut config = Config::default();
    config.cost.temperature = f64::NAN;
    assert!(matches!(Core::new(config, 1), Err(ConfigError::Weight { option: "temperature", .. })));
}

#[test]
fn a_decision_says_what_it_was_based_on() {
    let mut pool = Pool::new(2);
    let tokens = pool.fresh(64);
    let first = pool.serve(&Turn::plain(tokens.clone()));
    let blocks = Blocks::compute(&tokens, 16, BASE_SEED);
    let overlap = pool.index.overlap(&blocks.sequence);
    let request =
        Request { id: Some("r-1"), session: Some("s"), ..Request::new(64, 16, &blocks.sequence, &overlap) };
    let placement = pool.core.place(pool.now, &request).unwrap();
    let decision = pool.core.decisions_about("r-1", 1).remove(0);
    assert!(Arc::ptr_eq(&decision, &placement.decision));
    assert_eq!(
        (decision.considered, decision.candidates.len(), decision.affinity),
        (2, 2, AffinityOutcome::New)
    );
    let [chosen, other] = &decision.candidates[..] else { panic!("two candidates") };
    assert_eq!((chosen.rank.worker.0, chosen.overlap.device, chosen.terms.total()), (first, 4, 4.0));
    assert_eq!((other.overlap.device, other.terms.total()), (0, 8.0));
    assert_eq!(pool.core.decisions_about("s", 1).remove(0).number, decision.number);
    pool.core.worker_left(pool.now, WorkerId(1));
    pool.core.worker_left(pool.now, WorkerId(2));
    assert_eq!(pool.core.place(pool.now, &request).unwrap_err(), Rejection::NoWorkers);
    let decision = pool.core.decisions_about("r-1", 1).remove(0);
    assert_eq!(decision.outcome, crate::Outcome::Rejected(Rejection::NoWorkers));
}
