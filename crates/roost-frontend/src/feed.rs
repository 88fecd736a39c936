//! The pump: cluster updates, in order, become registry, router and index calls. Nothing else connects them.

mod listing;
mod pages;
mod pairs;
mod replicas;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use roost_cluster::{EndpointId, Role, Update, WorkerInfo, events};
use roost_kv::{WorkerId, WorkerRank};
use roost_router::{Core, Router};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use replicas::Replicas;

use crate::loader::{Loaded, Loader};
use crate::models::{Assets, Model, Pool};
use crate::shared::Shared;

/// Text assets kept after their last worker has gone, so that its return costs no load.
const KEPT_ASSETS: usize = 8;
/// Finished loads that may wait for the pump.
const LOADED_QUEUE: usize = 16;
/// How often time alone has its effects: bindings and bookings expire.
const TICK: Duration = Duration::from_millis(500);

/// Owner of the registry's contents: which workers serve which model.
pub(crate) struct Feed {
    shared: Arc<Shared>,
    /// Where connections and loads run: not on the feed's own thread.
    io: Handle,
    loader: Loader,
    /// Worker sets by model name, oldest first: equal cards make one set.
    sets: HashMap<String, Vec<Set>>,
    /// Where a worker belongs.
    members: HashMap<WorkerId, Member>,
    /// Assets by card checksum, most recent last.
    assets: Vec<(String, Arc<Assets>)>,
    /// Workers seen so far, until the initial number is reached.
    seen: usize,
    /// Discovery has told of all workers that were there at the start.
    synced: bool,
}

/// Workers that are one set: those with equal cards. Where prefill and decode workers belong together by namespace, those
/// of one namespace.
#[derive(Clone, PartialEq, Eq)]
struct SetKey {
    mdcsum: String,
    namespace: Option<String>,
}

struct Set {
    key: SetKey,
    role: Role,
    first: Arc<WorkerInfo>,
    pool: Arc<Pool>,
    model: Option<Arc<Model>>,
    /// Its files could not be loaded; that is tried again.
    failed: bool,
    workers: HashMap<WorkerId, Arc<WorkerInfo>>,
}

struct Member {
    name: String,
    key: SetKey,
    epoch: u64,
}

impl Feed {
    pub(crate) fn new(shared: Arc<Shared>, io: Handle) -> (Self, mpsc::Receiver<Loaded>) {
        let (tx, rx) = mpsc::channel(LOADED_QUEUE);
        let loader =
            Loader::new(shared.config.models.clone(), Arc::clone(shared.memory.segments()), tx, io.clone());
        let feed = Feed {
            shared,
            io,
            loader,
            sets: HashMap::new(),
            members: HashMap::new(),
            assets: Vec::new(),
            seen: 0,
            synced: false,
        };
        (feed, rx)
    }

    /// Runs on a thread of its own, for a worker's whole cache may come as one update and must not hold up a
    /// network thread. The receiver resolves when it has ended.
    pub(crate) fn start(
        self,
        updates: mpsc::Receiver<Update>,
        loaded: mpsc::Receiver<Loaded>,
        stop: CancellationToken,
    ) -> std::io::Result<oneshot::Receiver<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (ended, fed) = oneshot::channel();
        std::thread::Builder::new().name("feed".into()).spawn(move || {
            runtime.block_on(self.run(updates, loaded, stop));
            // Nobody waits any more when the frontend was dropped.
            let _dropped = ended.send(());
        })?;
        Ok(fed)
    }

    /// Runs until `stop` or the end of the updates.
    async fn run(
        mut self,
        mut updates: mpsc::Receiver<Update>,
        mut loaded: mpsc::Receiver<Loaded>,
        stop: CancellationToken,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(result) = loaded.recv() => self.loaded(result),
                update = updates.recv() => match update {
                    Some(update) => self.update(update),
                    None => break,
                },
                _ = tick.tick() => self.tick(),
            }
        }
    }

    fn update(&mut self, update: Update) {
        match update {
            Update::Joined(info) => self.joined(info),
            Update::Changed(info) => {
                self.left(info.worker);
                self.joined(info);
            }
            Update::Left { worker, .. } => {
                self.left(worker);
                self.publish();
            }
            Update::KvReset { rank, epoch } => {
                // Of an engine's gateways only the first speaks for its cache.
                let pool = self.pool_of(rank.worker, epoch);
                if let Some(pool) = pool.filter(|pool| pool.engine_of(rank.worker) == rank.worker) {
                    pool.index.remove_rank(rank);
                }
            }
            Update::Kv { rank, epoch, events } => {
                let pool = self.pool_of(rank.worker, epoch);
                if let Some(pool) = pool.filter(|pool| pool.engine_of(rank.worker) == rank.worker) {
                    for event in &events {
                        let applied = pool.index.apply(event);
                        self.shared.metrics.kv_applied(&event.data, &applied);
                    }
                }
            }
            Update::Load { rank, epoch, kv_used_blocks, .. } => {
                if let (Some(pool), Some(used)) = (self.pool_of(rank.worker, epoch), kv_used_blocks) {
                    let rank = WorkerRank::new(pool.engine_of(rank.worker), rank.dp_rank);
                    pool.router.load(rank, used, None);
                }
            }
            Update::KvSilent { worker, epoch, silent } => {
                if let Some(pool) = self.pool_of(worker, epoch) {
                    pool.set_silent(worker, silent);
                }
            }
            Update::SequencesEnded { scope, publisher } => self.teller_left(&scope, publisher),
            Update::Sequences { publisher, events, .. } => {
                for event in events {
                    if let Some(pool) = self.pool_of_any(event.rank.worker) {
                        let mut event = replicas::sequence(event);
                        event.rank.worker = pool.engine_of(event.rank.worker);
                        pool.router.apply_sequence(&event, publisher);
                    }
                }
            }
            Update::Binding { scope, event } => self.bound_elsewhere(&scope, event),
            Update::Synced => {
                tracing::debug!("discovery has delivered its initial state");
                self.synced = true;
                self.publish();
            }
        }
    }

    fn joined(&mut self, info: Arc<WorkerInfo>) {
        let name = info.card.display_name.clone();
        tracing::info!(
            worker = format_args!("{:x}", info.worker.0),
            model = name,
            role = info.role.as_str(),
            address = %info.target.address,
            ranks = info.ranks.len(),
            "worker joined"
        );
        self.seen += 1;
        let key = SetKey::of(&info);
        let position = self.sets.get(&name).and_then(|sets| sets.iter().position(|set| set.key == key));
        self.members.insert(info.worker, Member { name: name.clone(), key, epoch: info.epoch });
        let position = match position {
            Some(position) => position,
            None => {
                let set = self.new_set(&info);
                let sets = self.sets.entry(name.clone()).or_default();
                if sets.iter().any(|other| other.role == set.role) {
                    tracing::warn!(
                        model = name,
                        mdcsum = info.mdcsum,
                        "a worker has another card than the ones that serve; both versions serve"
                    );
                }
                sets.push(set);
                sets.len() - 1
            }
        };
        let set = &mut self.sets.get_mut(&name).expect("inserted above")[position];
        set.add(&info);
        if self.shared.hosted.is_none() {
            let _io = self.io.enter();
            self.shared.client.warm(info.target.address);
        }
        self.publish();
    }

    fn new_set(&mut self, info: &Arc<WorkerInfo>) -> Set {
        let route = &self.shared.config.route;
        let mut config = route.router.clone();
        config.role = match info.role {
            Role::Prefill => roost_router::Role::Prefill,
            Role::Decode => roost_router::Role::Decode,
            Role::Aggregated | Role::Encode => roost_router::Role::Aggregated,
        };
        if info.role == Role::Prefill {
            config.affinity.ttl = route.prefill_affinity_ttl;
        }
        let core = Core::new(config, route.seed).expect("checked when the frontend was made");
        let router = Router::new(core);
        if let Some(replicas) = &self.shared.replicas {
            replicas.share(&router, &info.endpoint);
        }
        let approximate =
            roost_kv::ApproximateIndex::new(route.approximate_ttl, APPROXIMATE_BLOCKS, Instant::now());
        let pool = Pool::new(info.role, info.endpoint.clone(), router, approximate, route.kv_events);
        let mut set = Set {
            key: SetKey::of(info),
            role: info.role,
            first: Arc::clone(info),
            pool: Arc::new(pool),
            model: None,
            failed: false,
            workers: HashMap::new(),
        };
        if !set.answers() {
            // Prompts are made once, for the workers that answer.
            return set;
        }
        match self.assets.iter().find(|(sum, _)| *sum == info.mdcsum) {
            Some((_, assets)) => set.model = Some(self.build(&set, Arc::clone(assets))),
            None => self.loader.load(info),
        }
        set
    }

    fn build(&self, set: &Set, assets: Arc<Assets>) -> Arc<Model> {
        let card = Arc::clone(&set.first.card);
        let metrics = self.shared.metrics.model(&card.display_name);
        metrics.card(&card);
        let cut = pages::used(&card, &self.shared.config.route);
        pages::warn(&set.first, cut, &self.shared.config.route);
        Arc::new(Model {
            name: card.display_name.as_str().into(),
            mdcsum: set.key.mdcsum.as_str().into(),
            assets,
            pool: Arc::clone(&set.pool),
            prefill: ArcSwapOption::empty(),
            metrics,
            cut,
            context_length: card.context_length_tokens(),
        })
    }

    fn left(&mut self, worker: WorkerId) {
        let Some(member) = self.members.remove(&worker) else { return };
        tracing::info!(worker = format_args!("{:x}", worker.0), model = member.name, "worker left");
        let Some(sets) = self.sets.get_mut(&member.name) else { return };
        for set in sets.iter_mut().filter(|set| set.key == member.key) {
            if let Some(info) = set.remove(worker) {
                self.shared.client.forget(&crate::plane::target(&info.target));
            }
        }
        sets.retain(|set| !set.workers.is_empty());
        if sets.is_empty() {
            self.sets.remove(&member.name);
        }
    }

    fn loaded(&mut self, loaded: Loaded) {
        let assets = match loaded.result {
            Ok(assets) => Arc::new(assets),
            Err(error) => {
                tracing::error!(
                    model = loaded.model,
                    error,
                    attempt = loaded.attempt,
                    "cannot load the model's files; will try again"
                );
                let mut sets = self.sets.values_mut().flatten();
                match sets.find(|set| set.key.mdcsum == loaded.mdcsum && set.model.is_none()) {
                    Some(waiting) => {
                        waiting.failed = true;
                        self.loader.retry(&waiting.first, loaded.attempt + 1);
                    }
                    None => self.loader.forget(&loaded.mdcsum),
                }
                self.publish();
                return;
            }
        };
        self.loader.forget(&loaded.mdcsum);
        self.assets.retain(|(sum, _)| *sum != loaded.mdcsum);
        self.assets.push((loaded.mdcsum.clone(), Arc::clone(&assets)));
        if self.assets.len() > KEPT_ASSETS {
            self.assets.remove(0);
        }
        let mut sets = std::mem::take(&mut self.sets);
        for set in sets.values_mut().flatten().filter(|set| set.key.mdcsum == loaded.mdcsum) {
            set.model = Some(self.build(set, Arc::clone(&assets)));
            tracing::info!(model = loaded.model, seconds = loaded.took.as_secs_f64(), "model ready");
        }
        self.sets = sets;
        self.publish();
    }

    fn pool_of(&self, worker: WorkerId, epoch: u64) -> Option<&Pool> {
        let member = self.members.get(&worker).filter(|member| member.epoch == epoch)?;
        let sets = self.sets.get(&member.name)?;
        sets.iter().find(|set| set.key == member.key).map(|set| &*set.pool)
    }

    fn pool_of_any(&self, worker: WorkerId) -> Option<&Pool> {
        self.pool_of(worker, self.members.get(&worker)?.epoch)
    }

    fn bound_elsewhere(&self, scope: &EndpointId, event: events::BindingEvent) {
        let mut event = replicas::binding(event);
        if let Some(pool) = self.pool_of_any(event.worker) {
            event.worker = pool.engine_of(event.worker);
            pool.router.apply_binding(&event);
            return;
        }
        // Its worker may be one of these soon.
        for set in self.sets.values().flatten().filter(|set| set.first.endpoint == *scope) {
            set.pool.router.apply_binding(&event);
        }
    }

    fn teller_left(&self, scope: &EndpointId, publisher: u64) {
        for set in self.sets.values().flatten().filter(|set| set.first.endpoint == *scope) {
            set.pool.router.teller_left(publisher);
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for set in self.sets.values().flatten() {
            set.pool.router.expire();
            set.pool.approximate.expire(now);
        }
    }
}

/// Blocks that the approximate index of one pool may hold.
const APPROXIMATE_BLOCKS: usize = 4_000_000;

impl SetKey {
    fn of(info: &WorkerInfo) -> Self {
        let namespace = match info.role {
            Role::Prefill | Role::Decode => Some(info.endpoint.namespace.clone()),
            Role::Aggregated | Role::Encode => None,
        };
        SetKey { mdcsum: info.mdcsum.clone(), namespace }
    }
}

impl Set {
    /// Whether its workers answer requests: prefill alone gives no answer.
    fn answers(&self) -> bool {
        matches!(self.role, Role::Aggregated | Role::Decode)
    }

    /// Whether prompts are computed elsewhere if there is somewhere. Cards up to 1.3 do not name their decode
    /// workers as such.
    fn splits(&self) -> bool {
        self.role == Role::Decode || self.first.card.worker_type.is_none()
    }

    fn add(&mut self, info: &Arc<WorkerInfo>) {
        self.workers.insert(info.worker, Arc::clone(info));
        self.pool.join(info);
    }

    fn remove(&mut self, worker: WorkerId) -> Option<Arc<WorkerInfo>> {
        let info = self.workers.remove(&worker)?;
        self.pool.leave(worker);
        self.pool.set_silent(worker, false);
        Some(info)
    }
}
