//! The pump: cluster updates, in order, become registry, router and index calls. Nothing else connects them.

mod replicas;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use roost_cluster::record::WorkerType;
use roost_cluster::{EndpointId, Role, Update, WorkerInfo, events};
use roost_kv::{WorkerId, WorkerRank};
use roost_router::{Core, Router};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use replicas::Replicas;

use crate::loader::{Loaded, Loader};
use crate::models::{Assets, Model, Pool, Registry, Versions};
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
}

struct Set {
    mdcsum: String,
    role: Role,
    first: Arc<WorkerInfo>,
    pool: Arc<Pool>,
    model: Option<Arc<Model>>,
    workers: HashMap<WorkerId, Arc<WorkerInfo>>,
}

struct Member {
    name: String,
    mdcsum: String,
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
                        self.shared.metrics.kv_applied(&applied);
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
            Update::Sequences { events, .. } => {
                for event in events {
                    if let Some(pool) = self.pool_of_any(event.rank.worker) {
                        let mut event = replicas::sequence(event);
                        event.rank.worker = pool.engine_of(event.rank.worker);
                        pool.router.apply_sequence(&event);
                    }
                }
            }
            Update::Binding { scope, event } => self.bound_elsewhere(&scope, event),
            Update::Synced => tracing::debug!("discovery has delivered its initial state"),
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
        let member = Member { name: name.clone(), mdcsum: info.mdcsum.clone(), epoch: info.epoch };
        self.members.insert(info.worker, member);
        let position =
            self.sets.get(&name).and_then(|sets| sets.iter().position(|set| set.mdcsum == info.mdcsum));
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
        {
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
        let pool = Pool::new(info.role, router, approximate, route.kv_events);
        let mut set = Set {
            mdcsum: info.mdcsum.clone(),
            role: info.role,
            first: Arc::clone(info),
            pool: Arc::new(pool),
            model: None,
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
        Arc::new(Model {
            name: card.display_name.as_str().into(),
            mdcsum: set.mdcsum.as_str().into(),
            assets,
            pool: Arc::clone(&set.pool),
            prefill: ArcSwapOption::empty(),
            metrics,
            block_size: self
                .shared
                .config
                .route
                .block_size
                .or(card.block_size_tokens())
                .unwrap_or(DEFAULT_BLOCK),
            context_length: card.context_length_tokens(),
        })
    }

    fn left(&mut self, worker: WorkerId) {
        let Some(member) = self.members.remove(&worker) else { return };
        tracing::info!(worker = format_args!("{:x}", worker.0), model = member.name, "worker left");
        let Some(sets) = self.sets.get_mut(&member.name) else { return };
        for set in sets.iter_mut().filter(|set| set.mdcsum == member.mdcsum) {
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
                let mut sets = self.sets.values().flatten();
                match sets.find(|set| set.mdcsum == loaded.mdcsum && set.model.is_none()) {
                    Some(waiting) => self.loader.retry(&waiting.first, loaded.attempt + 1),
                    None => self.loader.forget(&loaded.mdcsum),
                }
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
        for set in sets.values_mut().flatten().filter(|set| set.mdcsum == loaded.mdcsum) {
            set.model = Some(self.build(set, Arc::clone(&assets)));
            tracing::info!(model = loaded.model, seconds = loaded.took.as_secs_f64(), "model ready");
        }
        self.sets = sets;
        self.publish();
    }

    /// Lists each model of which a loaded worker set can serve. Sets of several cards serve side by side.
    fn publish(&self) {
        let mut registry = Registry::default();
        let enough = self.seen >= self.shared.config.route.min_initial_workers;
        for (name, sets) in &self.sets {
            let prefill = sets.iter().find(|set| set.role == Role::Prefill);
            let can_serve = |set: &&Set| set.answers() && (prefill.is_some() || !self.needs_prefill(set));
            let serving: Vec<(&Set, &Arc<Model>)> =
                sets.iter().filter(can_serve).filter_map(|set| Some((set, set.model.as_ref()?))).collect();
            let reason = match Versions::new(serving.iter().map(|(_, model)| Arc::clone(model)).collect()) {
                Some(_) if !enough => "waiting for the initial number of workers",
                Some(versions) => {
                    let own = self.shared.config.models.name.as_deref();
                    for (set, model) in serving {
                        model
                            .prefill
                            .store(prefill.filter(|_| set.splits()).map(|set| Arc::clone(&set.pool)));
                        model.metrics.ready(true);
                        for alias in set.first.card.aliases.iter().map(String::as_str).chain(own) {
                            registry.ready.insert(alias.into(), versions.clone());
                        }
                        registry.list_pool(name, set);
                    }
                    if let Some(set) = prefill {
                        registry.list_pool(name, set);
                    }
                    registry.ready.insert(name.as_str().into(), versions);
                    continue;
                }
                None if sets.iter().any(|set| can_serve(&set)) => "its files are being loaded",
                None if sets.iter().any(Set::answers) => "it has decode workers but no prefill worker",
                None => "it has no worker that answers, only prefill workers",
            };
            registry.waiting.insert(name.as_str().into(), reason);
        }
        for gone in self.shared.models.snapshot().ready.values() {
            let gone = gone.oldest();
            if !registry.ready.contains_key(&gone.name) {
                gone.metrics.ready(false);
            }
        }
        self.shared.published(&registry);
        self.shared.models.publish(registry);
    }

    /// Whether the workers of a set cannot serve without prefill workers.
    fn needs_prefill(&self, set: &Set) -> bool {
        let needs = &set.first.card.needs;
        let asked = needs.iter().flatten().any(|needed| *needed == WorkerType::Prefill);
        asked && !self.shared.config.route.decode_without_prefill
    }

    fn pool_of(&self, worker: WorkerId, epoch: u64) -> Option<&Pool> {
        let member = self.members.get(&worker).filter(|member| member.epoch == epoch)?;
        let sets = self.sets.get(&member.name)?;
        sets.iter().find(|set| set.mdcsum == member.mdcsum).map(|set| &*set.pool)
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
/// Tokens per block when neither card nor options say.
const DEFAULT_BLOCK: u32 = 16;

impl Registry {
    fn list_pool(&mut self, name: &str, set: &Set) {
        self.pools.push((name.into(), set.mdcsum.as_str().into(), Arc::clone(&set.pool)));
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
