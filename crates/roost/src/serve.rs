//! `roost serve`: plane, cluster and frontend, from start to drain.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_cluster::{Announcer, AnnouncerConfig, Cluster, ClusterConfig, Discovery, NatsClient};
use roost_config::{NamespaceFilter, ProcessOptions, Serve};
use roost_frontend::metrics::Metrics;
use roost_frontend::{Frontend, Parts, PlaneRecovery, Replicas};
use roost_telemetry::Registry;
use roost_wire::{Client, ListenerConfig, ResponseListener};
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::store::Store;
use crate::{banner, descriptors, federation, listeners, nats, settings, sglang, signals};

/// Longest wait for the removal of this frontend's own records.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs until a signal, then drains.
pub(crate) fn run(options: Serve) -> Result<ExitCode> {
    roost_telemetry::logging::init(&options.log.filter, settings::log_format(&options.log))?;
    banner::show(&options.effective, &options.notices);
    if let Some(target) = options.process.fd_limit_target {
        descriptors::raise(target);
    }
    runtime(&options.process)?.block_on(async {
        let shutdown = signals::shutdown()?;
        let poll = Some(options.discovery.poll_interval);
        let store = Store::new(&options.discovery.backend, poll)?;
        let discovery = store.participant(&shutdown).await?;
        let (address, running) = start(&options, discovery, shutdown).await?;
        tracing::info!(%address, "serving");
        let drained = running.await;
        Ok(if drained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// The network runtime.
pub(crate) fn runtime(options: &ProcessOptions) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_name("roost-io");
    if let Some(threads) = options.worker_threads {
        builder.worker_threads(threads);
    }
    if let Some(threads) = options.max_blocking_threads {
        builder.max_blocking_threads(threads);
    }
    builder.build().context("cannot start the runtime")
}

/// Binds, connects everything, and returns the address with the running frontend; the future tells whether every
/// answer could end.
pub(crate) async fn start(
    options: &Serve,
    discovery: Arc<dyn Discovery>,
    shutdown: CancellationToken,
) -> Result<(SocketAddr, impl Future<Output = bool> + use<>)> {
    let access = Access::open(&options.door)?;
    let (address, listener) = listeners::tcp(&options.http, access.tls.clone())?;
    let mut listening = vec![listener];
    let socket = options.door.unix_socket.as_deref().map(listeners::unix).transpose()?;
    let socket = socket.map(|(file, listener)| {
        listening.push(listener);
        file
    });
    let home = settings::response_address(&options.plane)?;
    let transport = crate::transport::plane(&options.plane.tls)?;
    let responses = ResponseListener::bind(ListenerConfig {
        bind: home,
        transport: transport.clone(),
        backlog: options.plane.listen_backlog,
        ..ListenerConfig::default()
    })
    .with_context(|| format!("cannot listen for workers on {home}"))?;
    tracing::info!(address = %responses.address(), "workers call home here");
    let client = Arc::new(Client::new(settings::client(&options.plane, transport), responses));
    let stop_cluster = CancellationToken::new();
    let own = roost_cluster::events::random_publisher_id();
    let nats =
        options.events.nats.as_ref().map(|options| nats::connect(options, &stop_cluster)).transpose()?;
    let replicas = replicas(options, own, home.ip(), nats.clone(), &discovery, &stop_cluster);
    let announcer = replicas.as_ref().map(|replicas| replicas.announcer.clone());
    let (cluster, updates) = Cluster::start(
        ClusterConfig { own_publisher: Some(own), nats, ..cluster_config(options) },
        Arc::clone(&discovery),
        Arc::new(PlaneRecovery::new(Arc::clone(&client))),
        stop_cluster.clone(),
    );
    let (hosted, updates) = match sglang::config(options)? {
        None => (None, updates),
        Some(servers) => {
            let (hosted, updates) =
                roost_hosted::start(servers, Arc::clone(&discovery), updates, &stop_cluster)
                    .context("--sglang-file")?;
            (Some(hosted), updates)
        }
    };
    let mut registry = Registry::new(&options.metrics.prefix);
    federation::start(&options.metrics.federation, &mut registry, &stop_cluster)?;
    registry.build_info(env!("CARGO_PKG_VERSION"))?;
    let metrics = Metrics::new(&registry, &crate::settings::metrics(&options.metrics))?;
    let (trace, trace_keeper) = settings::trace(options.trace.as_ref())?;
    let (spans, span_keeper) = settings::spans(options.spans.as_ref())?;
    let frontend = Frontend::new(
        settings::frontend(options, &access),
        Parts { client, cluster, updates, registry, metrics, replicas, hosted, trace, spans },
    )
    .context("cannot start the prepare threads")?;
    let running = async move {
        let drained = frontend.run(listening, shutdown).await;
        drop(socket);
        if let Some(keeper) = span_keeper {
            keeper.stop().await;
        }
        if let Some(keeper) = trace_keeper {
            // A panic has been logged.
            let _written = tokio::task::spawn_blocking(|| keeper.stop()).await;
        }
        stop_cluster.cancel();
        if let Some(announcer) = announcer {
            // A store that is away must not hold up the end; the records expire by themselves.
            let _expired = tokio::time::timeout(FAREWELL, announcer.stopped()).await;
        }
        drop(discovery);
        drained
    };
    Ok((address, running))
}

/// What this frontend shares with others: bindings where there is affinity, bookings if asked for.
fn replicas(
    options: &Serve,
    id: u64,
    address: IpAddr,
    nats: Option<NatsClient>,
    discovery: &Arc<dyn Discovery>,
    stop: &CancellationToken,
) -> Option<Replicas> {
    let (bindings, sequences) = (shares_bindings(options), options.events.replica_sync);
    if !bindings && !sequences {
        return None;
    }
    let host = options.events.host.clone();
    let config = AnnouncerConfig {
        publisher_id: id,
        bind: if host.is_some() { IpAddr::from([0, 0, 0, 0]) } else { address },
        advertise_host: host,
        nats,
    };
    let announcer = Announcer::start(config, Arc::clone(discovery), stop.clone());
    Some(Replicas { announcer, id, bindings, sequences })
}

fn shares_bindings(options: &Serve) -> bool {
    let affinity = &options.router.affinity;
    affinity.decode_ttl.is_some() || affinity.prefill_ttl.is_some()
}

fn cluster_config(options: &Serve) -> ClusterConfig {
    ClusterConfig {
        namespaces: match &options.discovery.namespaces {
            NamespaceFilter::All => roost_cluster::NamespaceFilter::All,
            NamespaceFilter::Exact(name) => roost_cluster::NamespaceFilter::Exact(name.clone()),
            NamespaceFilter::Prefix(prefix) => roost_cluster::NamespaceFilter::Prefix(prefix.clone()),
        },
        // Engines in this process tell of their caches themselves.
        kv_events: options.router.kv_events && options.sglang.is_none(),
        sequences: options.events.replica_sync,
        bindings: shares_bindings(options),
        update_capacity: options.events.queue_capacity,
        ..ClusterConfig::default()
    }
}
