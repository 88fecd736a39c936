//! The replay: sessions send turns, the core places them, the simulated ranks compute, their events fill the index.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use roost_kv::{
    EngineHash, Index, KvEvent, KvEventData, SequenceHash, StoredBlock, Tier, WorkerId, WorkerRank,
};
use roost_router::{Config, ConfigError, Core, End, Placement, Request, Submitted, TicketId, Worker};

use crate::fleet::{Begun, Job, Rank};
use crate::report::{Outcome, Tally};
use crate::{FleetConfig, Prompts, Start, Trace};

#[cfg(test)]
mod tests;

/// Between two looks at waiting times and balance.
const TICK: Duration = Duration::from_secs(1);

/// A refused request is given up after so many attempts, a second apart.
const ATTEMPTS: u32 = 10;

/// How fast the sessions of a trace come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Sessions at the same time, sub-agents and sessions with recorded times not counted; 0: all. When the last one
    /// has begun, the replay ends: what follows is a fleet that runs dry.
    pub lanes: usize,
    /// They begin spread over this time. What is sent within it is not measured.
    pub ramp: Duration,
    /// The longest pause between two turns.
    pub longest_pause: Duration,
    /// Factor on pauses and recorded times.
    pub scale: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { lanes: 0, ramp: Duration::from_secs(300), longest_pause: Duration::from_secs(300), scale: 1.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready { session: usize },
    Again { request: usize },
    Prefilled { rank: usize, request: usize },
    Answered { rank: usize, request: usize },
    Tick,
}

/// A session that runs.
struct Running {
    prompts: Prompts,
    turn: usize,
    /// Sub-agents that the next turn waits for.
    children: usize,
}

/// A request on its way.
struct Flight {
    session: usize,
    blocks: Arc<[SequenceHash]>,
    prompt_tokens: u32,
    output_tokens: u32,
    ready: Duration,
    placed: Duration,
    attempts: u32,
    placement: Option<Placement>,
    cached: u32,
    /// Leading blocks the best rank had when it was placed.
    best: u32,
    /// Leading blocks that any rank ever computed.
    possible: u32,
}

/// Runs a trace. `seed` determines every random choice of the router.
pub fn replay(
    trace: &Trace,
    name: &str,
    config: Config,
    fleet: &FleetConfig,
    pace: &Pace,
    seed: u64,
) -> Result<Outcome, ConfigError> {
    let mut replay = Replay::new(trace, config, fleet, pace, seed)?;
    replay.begin();
    while let Some(Reverse((at, _, event))) = replay.events.pop() {
        replay.now = at;
        replay.pending -= usize::from(event != Event::Tick);
        match event {
            Event::Ready { session } => replay.send(session),
            Event::Again { request } => replay.submit(request, None),
            Event::Prefilled { rank, request } => replay.prefilled(rank, request),
            Event::Answered { rank, request } => replay.answered(rank, request),
            Event::Tick => replay.tick(),
        }
        replay.call_waiting();
        if replay.is_over() {
            break;
        }
    }
    Ok(replay.outcome(name))
}

struct Replay<'a> {
    trace: &'a Trace,
    fleet: &'a FleetConfig,
    pace: &'a Pace,
    core: Core,
    index: Index,
    ranks: Vec<Rank>,
    /// Real time at the beginning: the core counts in it, only differences matter.
    base: Instant,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    scheduled: u64,
    /// Events other than ticks that are to come.
    pending: usize,
    /// Sessions that wait for a lane.
    queue: VecDeque<usize>,
    has_lanes: bool,
    children: HashMap<(usize, usize), Vec<usize>>,
    sessions: HashMap<usize, Running>,
    flights: HashMap<usize, Flight>,
    sent: usize,
    tickets: HashMap<TicketId, usize>,
    called: Vec<TicketId>,
    /// Every block that was ever computed.
    computed: HashSet<SequenceHash, foldhash::fast::FixedState>,
    tally: Tally,
}

// === impl Replay: sessions ===

impl<'a> Replay<'a> {
    fn new(
        trace: &'a Trace,
        config: Config,
        fleet: &'a FleetConfig,
        pace: &'a Pace,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let base = Instant::now();
        let mut core = Core::new(config, seed)?;
        let blocks = fleet.cache_tokens / u64::from(trace.block_size.max(1));
        for worker in 0..u64::from(fleet.workers) {
            let worker = Worker {
                id: WorkerId(worker),
                ranks: fleet.ranks,
                total_kv_blocks: Some(blocks),
                max_batched_tokens: Some(fleet.max_batched_tokens),
                ..Worker::default()
            };
            core.worker_joined(base, worker);
        }
        let mut children = HashMap::<_, Vec<usize>>::new();
        for (number, session) in trace.sessions.iter().enumerate() {
            if let Some(origin) = session.origin {
                children.entry((origin.session, origin.turn)).or_default().push(number);
            }
        }
        let ranks = fleet.workers as usize * fleet.ranks.max(1) as usize;
        Ok(Self {
            trace,
            fleet,
            pace,
            core,
            index: Index::new(),
            ranks: (0..ranks).map(|_| Rank::new(fleet, trace.block_size)).collect(),
            base,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            scheduled: 0,
            pending: 0,
            queue: VecDeque::new(),
            has_lanes: false,
            children,
            sessions: HashMap::new(),
            flights: HashMap::new(),
            sent: 0,
            tickets: HashMap::new(),
            called: Vec::new(),
            computed: HashSet::default(),
            tally: Tally::default(),
        })
    }

    fn begin(&mut self) {
        let roots = |start: fn(&Start) -> bool| {
            let sessions = self.trace.sessions.iter().enumerate();
            let first =
                move |session: &crate::Session| session.turns.first().is_some_and(|turn| start(&turn.start));
            sessions.filter(move |(_, session)| session.origin.is_none() && first(session)).map(|(n, _)| n)
        };
        let timed: Vec<usize> = roots(|start| matches!(start, Start::At(_))).collect();
        self.queue = roots(|start| matches!(start, Start::After(_))).collect();
        for session in timed {
            self.open(session, Duration::ZERO, Prompts::new(session));
        }
        self.has_lanes = self.pace.lanes > 0 && self.pace.lanes < self.queue.len();
        let lanes =
            if self.pace.lanes == 0 { self.queue.len() } else { self.pace.lanes.min(self.queue.len()) };
        for lane in 0..lanes {
            if let Some(session) = self.queue.pop_front() {
                let from = self.pace.ramp.mul_f64(lane as f64 / lanes as f64);
                self.open(session, from, Prompts::new(session));
            }
        }
        self.schedule(TICK, Event::Tick);
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.pending += usize::from(event != Event::Tick);
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    /// Begins a session `from` that time.
    fn open(&mut self, session: usize, from: Duration, prompts: Prompts) {
        self.sessions.insert(session, Running { prompts, turn: 0, children: 0 });
        self.next_turn(session, from);
    }

    /// Sends the session's next turn when its pause, counted from `from`, is over; ends it if there is none.
    fn next_turn(&mut self, session: usize, from: Duration) {
        let Some(running) = self.sessions.get(&session) else { return };
        let Some(turn) = self.trace.sessions[session].turns.get(running.turn) else {
            self.close(session);
            return;
        };
        let at = match turn.start {
            Start::At(at) => at.mul_f64(self.pace.scale).max(from),
            Start::After(pause) => from + pause.mul_f64(self.pace.scale).min(self.pace.longest_pause),
        };
        self.schedule(at, Event::Ready { session });
    }

    fn close(&mut self, session: usize) {
        self.sessions.remove(&session);
        match self.trace.sessions[session].origin {
            Some(origin) => {
                let Some(parent) = self.sessions.get_mut(&origin.session) else { return };
                parent.children -= 1;
                if parent.children == 0 {
                    self.next_turn(origin.session, self.now);
                }
            }
            None => {
                if let Some(next) = self.queue.pop_front() {
                    self.open(next, self.now, Prompts::new(next));
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.pending == 0 && self.tickets.is_empty() || self.has_lanes && self.queue.is_empty()
    }
}

// === impl Replay: requests ===

impl Replay<'_> {
    fn send(&mut self, session: usize) {
        let Some(running) = self.sessions.get_mut(&session) else { return };
        let turn = &self.trace.sessions[session].turns[running.turn];
        running.turn += 1;
        let flight = Flight {
            session,
            blocks: running.prompts.next(turn).into(),
            prompt_tokens: turn.prompt_tokens,
            output_tokens: turn.output_tokens.max(1),
            ready: self.now,
            placed: self.now,
            attempts: 0,
            placement: None,
            cached: 0,
            best: 0,
            possible: 0,
        };
        let request = self.sent;
        self.sent += 1;
        self.flights.insert(request, flight);
        self.submit(request, None);
    }

    fn submit(&mut self, request: usize, ticket: Option<TicketId>) {
        let Some(flight) = self.flights.get_mut(&request) else { return };
        let session = &self.trace.sessions[flight.session];
        let overlap = self.index.overlap(&flight.blocks);
        let asked = Request {
            session: Some(session.id.as_str()).filter(|id| !id.is_empty()),
            parent: session.parent.as_deref(),
            ..Request::new(flight.prompt_tokens, self.trace.block_size, &flight.blocks, &overlap)
        };
        let now = self.base + self.now;
        match self.core.submit(now, &asked, ticket) {
            Ok(Submitted::Placed(placement)) => {
                let computed = &self.computed;
                flight.possible = flight.blocks.partition_point(|block| computed.contains(block)) as u32;
                flight.best = overlap.max_device();
                flight.placed = self.now;
                self.core.committed(now, placement.booking);
                let rank = placement.rank.worker.0 as usize * self.fleet.ranks.max(1) as usize
                    + placement.rank.dp_rank as usize;
                flight.placement = Some(placement);
                let job = Job {
                    request,
                    blocks: Arc::clone(&flight.blocks),
                    prompt_tokens: flight.prompt_tokens,
                    output_tokens: flight.output_tokens,
                };
                self.ranks[rank].accept(job);
                self.work(rank);
            }
            Ok(Submitted::Waits(ticket)) => _ = self.tickets.insert(ticket, request),
            Err(_) => {
                flight.attempts += 1;
                self.tally.refused += 1;
                if flight.attempts < ATTEMPTS {
                    self.schedule(self.now + TICK, Event::Again { request });
                } else {
                    self.tally.given_up += 1;
                    self.end(request);
                }
            }
        }
    }

    /// Lets a rank begin what it can.
    fn work(&mut self, rank: usize) {
        let Some(Begun { job, cached, evicted, takes }) = self.ranks[rank].begin(self.fleet) else { return };
        if !evicted.is_empty() {
            let blocks = evicted.iter().map(|block| EngineHash(block.0)).collect();
            self.apply(rank, KvEventData::Removed { blocks });
        }
        if let Some(flight) = self.flights.get_mut(&job.request) {
            flight.cached = cached;
        }
        self.schedule(self.now + takes, Event::Prefilled { rank, request: job.request });
    }

    fn prefilled(&mut self, rank: usize, request: usize) {
        let Some(flight) = self.flights.get(&request) else { return };
        let (blocks, cached) = (Arc::clone(&flight.blocks), flight.cached as usize);
        if cached < blocks.len() {
            let content = self.sessions.get(&flight.session).map_or(&[][..], |s| s.prompts.content());
            let new = blocks.iter().zip(content).skip(cached);
            let stored = new.map(|(block, &local)| StoredBlock { engine: EngineHash(block.0), local });
            let stored = stored.collect();
            let parent = cached.checked_sub(1).map(|last| EngineHash(blocks[last].0));
            self.apply(rank, KvEventData::Stored { parent, blocks: stored });
            self.computed.extend(blocks[cached..].iter().copied());
        }
        let Some(flight) = self.flights.get(&request) else { return };
        if let Some(placement) = &flight.placement {
            self.core.first_token(self.base + self.now, placement.booking);
        }
        if flight.ready >= self.pace.ramp {
            let block = u64::from(self.trace.block_size);
            self.tally.requests += 1;
            self.tally.prompt_tokens += u64::from(flight.prompt_tokens);
            self.tally.cached_tokens += u64::from(flight.cached) * block;
            self.tally.best_tokens += u64::from(flight.best) * block;
            self.tally.possible_tokens += u64::from(flight.possible.max(flight.cached)) * block;
            self.tally.first_token.push((self.now - flight.ready).as_secs_f64());
            self.tally.wait.push((flight.placed - flight.ready).as_secs_f64());
        }
        let job = self.job(request);
        let takes = self.ranks[rank].decode(self.fleet, &job);
        self.schedule(self.now + takes, Event::Answered { rank, request });
        self.work(rank);
    }

    fn answered(&mut self, rank: usize, request: usize) {
        let job = self.job(request);
        self.ranks[rank].finish(&job);
        if let Some(placement) = self.flights.get(&request).and_then(|flight| flight.placement.as_ref()) {
            self.core.finish(self.base + self.now, placement.booking, End::Ok);
        }
        self.work(rank);
        self.end(request);
    }

    /// A request is over: its session goes on, or its sub-agents do.
    fn end(&mut self, request: usize) {
        let Some(flight) = self.flights.remove(&request) else { return };
        let session = flight.session;
        let Some(running) = self.sessions.get_mut(&session) else { return };
        let started = self.children.get(&(session, running.turn - 1)).cloned().unwrap_or_default();
        running.children = started.len();
        let fork = |&child: &usize| {
            let inherited = self.trace.sessions[child].origin.map_or(0, |origin| origin.inherited);
            running.prompts.fork(child, inherited)
        };
        let prompts: Vec<Prompts> = started.iter().map(fork).collect();
        if started.is_empty() {
            self.next_turn(session, self.now);
        }
        for (child, prompts) in started.into_iter().zip(prompts) {
            self.open(child, self.now, prompts);
        }
    }

    fn job(&self, request: usize) -> Job {
        let flight = &self.flights[&request];
        Job {
            request,
            blocks: Arc::clone(&flight.blocks),
            prompt_tokens: flight.prompt_tokens,
            output_tokens: flight.output_tokens,
        }
    }
}

// === impl Replay: events and time ===

impl Replay<'_> {
    fn apply(&self, rank: usize, data: KvEventData) {
        let ranks = self.fleet.ranks.max(1) as usize;
        let rank = WorkerRank::new(WorkerId((rank / ranks) as u64), (rank % ranks) as u32);
        self.index.apply(&KvEvent { event_id: 1, rank, tier: Tier::Device, data });
    }

    fn call_waiting(&mut self) {
        loop {
            let mut called = std::mem::take(&mut self.called);
            self.core.take_called(&mut called);
            if called.is_empty() {
                self.called = called;
                return;
            }
            for ticket in called.drain(..) {
                if let Some(request) = self.tickets.remove(&ticket) {
                    self.submit(request, Some(ticket));
                }
            }
            self.called = called;
        }
    }

    fn tick(&mut self) {
        let now = self.base + self.now;
        self.core.expire(now);
        let seconds = self.now.as_secs();
        if self.now >= self.pace.ramp && seconds.is_multiple_of(10) {
            let snapshot = self.core.snapshot(now);
            let ranks = snapshot.ranks.iter();
            self.tally.sessions.sample(ranks.clone().map(|rank| rank.bindings as f64));
            self.tally.running.sample(ranks.map(|rank| f64::from(rank.active_requests)));
        }
        self.schedule(self.now + TICK, Event::Tick);
    }

    fn outcome(mut self, name: &str) -> Outcome {
        let computed: Vec<f64> = self.ranks.iter().map(|rank| rank.computed as f64).collect();
        self.tally.computed.sample(computed.into_iter());
        self.tally.outcome(name, self.now, &self.core.stats())
    }
}
