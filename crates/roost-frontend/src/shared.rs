//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roost_cluster::{ClusterHandle, Update};
use roost_telemetry::{Registry, spans::Spans};
use roost_wire::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::admit::Admission;
use crate::bindings::Bindings;
use crate::body::Bodies;
use crate::config::Config;
use crate::feed::Replicas;
use crate::frontend::Parts;
use crate::hold::Hold;
use crate::hosted::HostedEngines;
use crate::metrics::Metrics;
use crate::models::{Models, Registry as ModelRegistry};
use crate::prepare::memory::PromptMemory;
use crate::prepare::pool::Pool;
use crate::trace::RequestTrace;

/// Handles and state of one frontend.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) models: Models,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    pub(crate) client: Arc<Client>,
    pub(crate) cluster: ClusterHandle,
    pub(crate) pool: Pool,
    pub(crate) memory: PromptMemory,
    pub(crate) admission: Admission,
    pub(crate) hold: Hold,
    pub(crate) bodies: Bodies,
    pub(crate) bindings: Arc<Bindings>,
    /// Cancelled at the end of the drain: what still runs is ended with an error.
    pub(crate) cut: CancellationToken,
    pub(crate) replicas: Option<Replicas>,
    /// Engines in this process; where there are any, there are no others.
    pub(crate) hosted: Option<Arc<dyn HostedEngines>>,
    /// Where every request is told of; `None`: nowhere.
    pub(crate) trace: Option<RequestTrace>,
    /// Who is told of spans; `None`: nobody.
    pub(crate) spans: Option<Spans>,
    leaving: AtomicBool,
    draining: AtomicBool,
    /// A model could be served at least once: from then on the process is healthy whatever workers do.
    was_ready: AtomicBool,
}

impl Shared {
    /// With what is left of the parts.
    pub(crate) fn new(config: Config, parts: Parts) -> std::io::Result<(Self, mpsc::Receiver<Update>)> {
        let Parts { client, cluster, updates, registry, metrics, replicas, hosted, trace, spans } = parts;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = config.prepare.threads.unwrap_or(cores.saturating_sub(1)).max(1);
        let shared = Shared {
            pool: Pool::new(threads, config.prepare.queue)?,
            memory: PromptMemory::new(config.prepare.memory),
            admission: Admission::new(config.http.max_inflight),
            hold: Hold::new(config.http.held_requests, config.http.model_wait),
            bodies: Bodies::new(config.http.body_stall, config.http.body_memory),
            bindings: Arc::default(),
            models: Models::default(),
            replicas,
            hosted,
            trace,
            spans,
            metrics,
            registry,
            client,
            cluster,
            config,
            cut: CancellationToken::new(),
            leaving: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            was_ready: AtomicBool::new(false),
        };
        Ok((shared, updates))
    }

    /// Called by the feed with each new registry, before it is visible.
    pub(crate) fn published(&self, registry: &ModelRegistry) {
        if !registry.ready.is_empty() {
            self.was_ready.store(true, Ordering::Release);
        }
        self.bindings.attach(registry);
    }

    pub(crate) fn was_ready(&self) -> bool {
        self.was_ready.load(Ordering::Acquire)
    }

    /// Says to balancers that others should be asked; what comes is still served.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Refuses new requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
