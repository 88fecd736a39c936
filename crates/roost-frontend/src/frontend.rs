//! Build, run, drain.

use std::sync::Arc;
use std::time::Duration;

use roost_cluster::{ClusterHandle, Update};
use roost_telemetry::{Registry, spans::Spans};
use roost_wire::Client;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Config;
use crate::feed::{Feed, Replicas};
use crate::hosted::HostedEngines;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::trace::RequestTrace;
use crate::{Listener, accept, routes};

/// What a frontend is built from.
#[derive(Debug)]
pub struct Parts {
    /// The request plane.
    pub client: Arc<Client>,
    /// The cluster's snapshots.
    pub cluster: ClusterHandle,
    /// The cluster's changes, in order.
    pub updates: mpsc::Receiver<Update>,
    /// Where `/metrics` comes from.
    pub registry: Registry,
    /// Metric handles, made on that registry.
    pub metrics: Metrics,
    /// The other frontends of the deployment; `None` to stand alone.
    pub replicas: Option<Replicas>,
    /// Engines that are called without the plane: all of them, or `None` for workers on the plane.
    pub hosted: Option<Arc<dyn HostedEngines>>,
    /// Where every request is told of; `None`: nowhere.
    pub trace: Option<RequestTrace>,
    /// Who is told of spans; `None`: nobody.
    pub spans: Option<Spans>,
}

/// How long answers that are cut may take to tell their clients.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// One OpenAI-compatible frontend.
#[derive(Debug)]
pub struct Frontend {
    shared: Arc<Shared>,
    updates: mpsc::Receiver<Update>,
}

impl Frontend {
    /// Checks the configuration and starts the prepare threads; nothing is served yet.
    ///
    /// # Errors
    /// The router's options contradict each other, or no thread can be started.
    pub fn new(config: Config, parts: Parts) -> std::io::Result<Self> {
        config.route.router.validate().map_err(std::io::Error::other)?;
        if let Some(rule) = &config.route.local_prefill {
            rule.validate().map_err(std::io::Error::other)?;
        }
        let (shared, updates) = Shared::new(config, parts)?;
        Ok(Frontend { shared: Arc::new(shared), updates })
    }

    /// Serves `listeners` until `shutdown`, then leaves in steps. At once it says that it is not ready, and every answer
    /// closes its connection. After the configured notice it takes no more connections, after another it closes idle
    /// connections, after a third it refuses new requests. Answers that still run when the configured drain is over,
    /// counted from `shutdown`, are ended with an error. Returns whether there were none.
    pub async fn run(self, listeners: Vec<Listener>, shutdown: CancellationToken) -> bool {
        let Frontend { shared, updates } = self;
        let stop_feed = CancellationToken::new();
        let (feed, loaded) = Feed::new(Arc::clone(&shared), Handle::current());
        let fed = match feed.start(updates, loaded, stop_feed.clone()) {
            Ok(fed) => fed,
            Err(error) => {
                tracing::error!(%error, "cannot start the feed's thread");
                return false;
            }
        };
        let leaving = accept::Leaving::default();
        let keeper = match shared.config.route.bindings_file.clone().map(|file| shared.bindings.keep(file)) {
            None => None,
            Some(Ok(keeper)) => Some(keeper),
            Some(Err(error)) => {
                tracing::error!(%error, "cannot start the thread that keeps bindings: they end with the process");
                None
            }
        };
        let drain = shared.config.http.drain;
        let served = routes::build(&shared);
        let serving =
            accept::serve(listeners, served, &shared.config.http, shared.metrics.clone(), leaving.clone());
        let mut serving = std::pin::pin!(serving);
        let watched = AbortOnDropHandle::new(tokio::spawn({
            let metrics = shared.metrics.clone();
            async move { metrics.watch_runtime().await }
        }));
        tokio::select! {
            () = &mut serving => {}
            () = shutdown.cancelled() => {}
        }
        let mut began = tokio::time::Instant::now();
        let deadline = began + drain;
        shared.leave();
        let notice = shared.config.http.notice;
        let mut ended = false;
        for step in [&leaving.close, &leaving.stop] {
            began += notice;
            ended = ended || tokio::time::timeout_at(began.min(deadline), &mut serving).await.is_ok();
            step.cancel();
        }
        // What was on its way when the idle connections were closed is served, too: the last request of its connection.
        ended = ended || tokio::time::timeout_at((began + notice).min(deadline), &mut serving).await.is_ok();
        shared.drain();
        let drained = ended || tokio::time::timeout_at(deadline, &mut serving).await.is_ok();
        if !drained {
            tracing::warn!(
                seconds = drain.as_secs_f64(),
                requests = shared.metrics.active_requests(),
                "answers were still running at the end of the drain; they are cut"
            );
            shared.cut.cancel();
            // Time for the last words.
            let _told = tokio::time::timeout(LAST_WORDS, serving).await;
        }
        if let Some(keeper) = keeper {
            // While the workers are still known; a panic has been logged.
            let _kept = tokio::task::spawn_blocking(|| keeper.stop()).await;
        }
        drop(watched);
        stop_feed.cancel();
        // It ends at once; if it has panicked, its side of the channel is gone as well.
        let _ended = fed.await;
        drained
    }
}
