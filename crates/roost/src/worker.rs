//! `roost worker`: a plain SGLang server behind the worker plane.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use roost_cluster::NatsClient;
use roost_config::{ProcessOptions, Worker};
use roost_sglang::{EngineOptions, Probe, Server, ServerUrl, SglangEngine};
use roost_wire::Transport;
use roost_worker::{RunningWorker, WorkerServer};
use tokio_util::sync::CancellationToken;

use crate::store::Store;
use crate::{banner, fleet, serve, settings, signals};

/// How long a leaving worker goes on accepting, so that frontends notice first.
const GRACE: Duration = Duration::from_millis(500);
/// How long its open answers may go on.
const DRAIN: Duration = Duration::from_secs(30);

/// Runs until a signal: registered while the server is ready.
pub(crate) fn run(options: Worker) -> Result<ExitCode> {
    roost_telemetry::logging::init(&options.log.filter, settings::log_format(&options.log))?;
    banner::show(&options.effective, &options.notices);
    let process = ProcessOptions { worker_threads: None, max_blocking_threads: None, fd_limit_target: None };
    serve::runtime(&process)?.block_on(async {
        let shutdown = signals::shutdown()?;
        let url: ServerUrl = options.engine.parse().context("--engine")?;
        let server = Server::new(url, options.api_key.as_deref()).context("--engine-api-key")?;
        let host = Host {
            store: Store::new(&options.plane.discovery, None)?,
            transport: crate::transport::plane(&options.plane.tls)?,
            nats: match &options.plane.nats {
                Some(nats) if options.kv_events => {
                    Some(crate::nats::connect(nats, &CancellationToken::new())?)
                }
                _ => None,
            },
            options,
            server,
        };
        host.run(&shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}

struct Host {
    options: Worker,
    server: Server,
    store: Store,
    transport: Transport,
    nats: Option<NatsClient>,
}

impl Host {
    async fn run(&self, shutdown: &CancellationToken) -> Result<()> {
        loop {
            let looking = roost_hosted::watch_for(&self.server, self.options.probe_interval);
            let Some(info) = shutdown.run_until_cancelled(looking).await else { return Ok(()) };
            info.remarks.iter().for_each(|remark| tracing::warn!(server = %self.server.url(), "{remark}"));
            let mut options =
                EngineOptions::new(roost_hosted::files(&info, self.options.model_path.as_deref())?);
            options.model_name.clone_from(&self.options.model_name);
            options.bootstrap_host.clone_from(&self.options.bootstrap_host);
            options.bootstrap_port = self.options.bootstrap_port;
            options.kv_events = self.options.kv_events;
            let engine = Arc::new(SglangEngine::start(self.server.clone(), &info, options));
            let worker = self.register(&engine, shutdown).await?;
            let watching = roost_hosted::watch_over(&self.server, self.options.probe_interval);
            let left = shutdown.run_until_cancelled(watching).await;
            if matches!(left, Some(Probe::Unreachable | Probe::Late)) {
                // What runs there is lost, and says so at once.
                engine.give_up();
            }
            worker.drain(GRACE, DRAIN).await;
            if left.is_none() {
                return Ok(());
            }
        }
    }

    async fn register(
        &self,
        engine: &Arc<SglangEngine>,
        shutdown: &CancellationToken,
    ) -> Result<RunningWorker> {
        let discovery = self.store.participant(shutdown).await?;
        let (nats, kv_events) = (self.nats.clone(), self.options.kv_events);
        let config =
            fleet::worker_config(&self.options.plane, discovery, &self.transport, nats, kv_events, 0);
        let engine: Arc<dyn roost_worker::Engine> = Arc::<SglangEngine>::clone(engine);
        WorkerServer::start(engine, config).await.context("cannot start the worker")
    }
}
