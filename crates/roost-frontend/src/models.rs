//! The model registry: an immutable snapshot by name, replaced by `feed`.

mod engines;
mod versions;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use roost_cluster::{EndpointId, Role, WorkerInfo};
use roost_kv::{ApproximateIndex, Cut, Index, Overlap, SequenceHash, WorkerId};
use roost_parser::ParserSpec;
use roost_router::Router;
use roost_template::ChatTemplate;
use roost_tokenizer::Tokenizer;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use self::engines::Engines;
pub(crate) use self::engines::{Engine, Instance};
pub(crate) use self::versions::Versions;
use crate::metrics::ModelMetrics;

/// Names that can be asked for. Readers take a snapshot; `feed` is the only writer.
#[derive(Debug, Default)]
pub(crate) struct Models {
    current: ArcSwap<Registry>,
    changed: Notify,
}

/// One state of the registry.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Servable models by name and alias.
    pub(crate) ready: HashMap<Box<str>, Versions>,
    /// The pools that serve: the model's own name, the checksum of the card, the pool.
    pub(crate) pools: Vec<(Box<str>, Box<str>, Arc<Pool>)>,
    /// Names that workers announce and that cannot be served yet.
    pub(crate) waiting: HashMap<Box<str>, Waiting>,
    /// All workers that were there at the start are known.
    pub(crate) synced: bool,
}

/// Why a name cannot be served yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    /// For people.
    pub(crate) reason: &'static str,
    /// It will be over soon by itself, so that a request may wait for it.
    pub(crate) passes: bool,
}

/// What a name leads to.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// It can be served.
    Ready(Versions),
    /// Workers announce it, or may do so as soon as they are known; it cannot be served yet.
    Waiting(Waiting),
    /// Nobody announces it.
    Unknown,
}

/// A servable model: text assets, workers, counters.
#[derive(Debug)]
pub(crate) struct Model {
    /// Served name.
    pub(crate) name: Box<str>,
    /// Checksum of that card, sent with each request.
    pub(crate) mdcsum: Box<str>,
    /// Tokenizer, template, end-of-sequence ids.
    pub(crate) assets: Arc<Assets>,
    /// Workers that answer (aggregated or decode), index and router.
    pub(crate) pool: Arc<Pool>,
    /// Prefill workers, while there are any and the workers that answer want them.
    pub(crate) prefill: ArcSwapOption<Pool>,
    /// Counters with the model's labels.
    pub(crate) metrics: Arc<ModelMetrics>,
    /// How the workers that answer cut prompts into blocks.
    pub(crate) cut: Cut,
    /// Tokens of prompt and answer together; 0 is unknown.
    pub(crate) context_length: u32,
}

/// What turns messages into ids and ids into text.
#[derive(Debug)]
pub(crate) struct Assets {
    /// Encoder and decoder.
    pub(crate) tokenizer: Tokenizer,
    /// Chat template, or why there is none: such a model still completes raw prompts.
    pub(crate) template: Result<ChatTemplate, String>,
    /// End-of-sequence ids.
    pub(crate) eos: Vec<u32>,
    /// How reasoning and tool calls are read; off when the card names no parser.
    pub(crate) parsers: ParserSpec,
}

/// The workers of one model in one role, and what they hold.
#[derive(Debug)]
pub(crate) struct Pool {
    /// What the workers do.
    pub(crate) role: Role,
    /// Where the first of them is served.
    pub(crate) endpoint: EndpointId,
    /// Decisions.
    pub(crate) router: Router,
    /// Residency by the workers' events.
    pub(crate) index: Index,
    /// Residency by routed prompts, for workers without events.
    pub(crate) approximate: ApproximateIndex,
    /// Whether events are listened to at all.
    pub(crate) kv_events: bool,
    engines: ArcSwap<Engines>,
    /// Workers whose events ought to come and do not. Changed by the feed alone.
    silent: ArcSwap<HashSet<WorkerId>>,
}

impl Models {
    /// The current state.
    pub(crate) fn snapshot(&self) -> Arc<Registry> {
        self.current.load_full()
    }

    /// Looks a name up.
    pub(crate) fn lookup(&self, name: &str) -> Lookup {
        let current = self.current.load();
        match (current.ready.get(name), current.waiting.get(name)) {
            (Some(versions), _) => Lookup::Ready(versions.clone()),
            (None, Some(waiting)) => Lookup::Waiting(*waiting),
            (None, None) if current.synced => Lookup::Unknown,
            (None, None) => {
                Lookup::Waiting(Waiting { reason: "workers are still being looked for", passes: true })
            }
        }
    }

    /// The versions that every request is for, if only one model is served.
    pub(crate) fn only(&self) -> Option<Versions> {
        let current = self.current.load();
        let (name, ..) = current.pools.first()?;
        let only = current.waiting.is_empty() && current.pools.iter().all(|(other, ..)| other == name);
        only.then(|| current.ready.get(name).cloned()).flatten()
    }

    /// Resolves with the next state.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Replaces the state.
    pub(crate) fn publish(&self, registry: Registry) {
        self.current.store(Arc::new(registry));
        self.changed.notify_waiters();
    }
}

impl Model {
    /// Whether a worker of this model, in either leg, is that instance.
    fn has_instance(&self, instance: WorkerId) -> bool {
        let prefill = self.prefill.load_full();
        let pools = std::iter::once(&self.pool).chain(&prefill);
        pools.into_iter().any(|pool| pool.engines().of_instance(instance).is_some())
    }

    /// Whether a session is bound to a worker of this model.
    fn is_home_of(&self, session: &str) -> bool {
        self.pool.router.bound(session).is_some()
            || self.prefill.load().as_ref().is_some_and(|pool| pool.router.bound(session).is_some())
    }
}

impl Pool {
    pub(crate) fn new(
        role: Role,
        endpoint: EndpointId,
        router: Router,
        approximate: ApproximateIndex,
        kv_events: bool,
    ) -> Self {
        Pool {
            role,
            endpoint,
            router,
            index: Index::new(),
            approximate,
            kv_events,
            engines: ArcSwap::default(),
            silent: ArcSwap::default(),
        }
    }

    /// The engines as they are now.
    pub(crate) fn engines(&self) -> Arc<Engines> {
        self.engines.load_full()
    }

    /// An engine by the router's name.
    pub(crate) fn engine(&self, id: WorkerId) -> Option<Arc<Engine>> {
        self.engines.load().get(id).cloned()
    }

    /// The router's name of the engine behind an instance; one that is not known is its own.
    pub(crate) fn engine_of(&self, instance: WorkerId) -> WorkerId {
        self.engines.load().of_instance(instance).unwrap_or(instance)
    }

    /// Takes an instance in. For `feed` only.
    pub(crate) fn join(&self, info: &Arc<WorkerInfo>) {
        let mut engines = Engines::clone(&self.engines.load());
        let new = engines.add(info);
        self.engines.store(Arc::new(engines));
        let runtime = &info.card.runtime_config;
        if let Some(id) = new {
            self.router.worker_joined(roost_router::Worker {
                id,
                start_rank: info.ranks.start,
                ranks: info.ranks.end - info.ranks.start,
                total_kv_blocks: runtime.total_kv_blocks,
                max_batched_tokens: runtime.max_num_batched_tokens,
                max_num_seqs: runtime.max_num_seqs,
                taints: runtime.taints().map(str::to_owned).collect(),
            });
        }
    }

    /// Lets an instance go, and its engine if no other leads there. For `feed` only.
    pub(crate) fn leave(&self, instance: WorkerId) {
        let mut engines = Engines::clone(&self.engines.load());
        let gone = engines.remove(instance);
        self.engines.store(Arc::new(engines));
        if let Some(id) = gone {
            self.router.worker_left(id);
            self.index.remove_worker(id);
            self.approximate.remove_worker(id);
        }
    }

    /// How much of a prompt each rank holds: by events where a worker publishes them, else by what was routed.
    pub(crate) fn overlap(&self, prompt: &[SequenceHash]) -> Overlap {
        let exact = if self.kv_events { self.index.overlap(prompt) } else { Overlap::default() };
        if self.approximate.is_empty() {
            return exact;
        }
        exact.max(&self.approximate.overlap(Instant::now(), prompt))
    }

    /// Whether a worker's residency is known from its own events.
    pub(crate) fn has_events(&self, worker: &WorkerInfo) -> bool {
        self.kv_events
            && worker.card.runtime_config.kv_event_publishing_enabled
            && !self.silent.load().contains(&worker.worker)
    }

    /// Whether a worker's events ought to come and do not.
    pub(crate) fn is_silent(&self, worker: WorkerId) -> bool {
        self.silent.load().contains(&worker)
    }

    /// Instances whose residency ought to be known from their own events and is not.
    pub(crate) fn without_events(&self) -> usize {
        match self.kv_events {
            true => self.engines().instances().filter(|instance| !self.has_events(&instance.info)).count(),
            false => 0,
        }
    }

    /// Says whether a worker's events are missing. When they come again, guesses give way to them.
    pub(crate) fn set_silent(&self, worker: WorkerId, silent: bool) {
        if self.silent.load().contains(&worker) == silent {
            return;
        }
        let mut workers = HashSet::clone(&self.silent.load());
        if silent {
            workers.insert(worker);
        } else {
            workers.remove(&worker);
            self.approximate.remove_worker(worker);
        }
        self.silent.store(Arc::new(workers));
    }
}
