//! One server: looked for, taken in, watched, let go, and looked for again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use roost_cluster::record::{CardRecord, InstanceRecord, TransportAddress, instance_path};
use roost_cluster::{Discovery, EndpointId, Registration, Update, WorkerRecords};
use roost_kv::{KvEvent, WorkerId, WorkerRank};
use roost_sglang::{EngineOptions, Probe, Server, ServerInfo, SglangEngine};
use roost_worker::{Engine, KvChange};
use tokio_util::sync::CancellationToken;

use crate::engines::Engines;
use crate::members::{Named, Part};
use crate::model;
use crate::tap::Tap;

/// How long answers of a server that is no longer named may go on.
const FAREWELL: Duration = Duration::from_secs(3600);
/// Longest pause before a server that cannot be used is asked again.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Changes of a cache that go on together.
const BATCH: usize = 256;

/// What is the same for all servers.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) model_path: Option<PathBuf>,
    pub(super) kv_events: bool,
    pub(super) api_key: Option<String>,
    pub(super) probe_interval: Duration,
    pub(super) discovery: Arc<dyn Discovery>,
    pub(super) engines: Arc<Engines>,
    pub(super) tap: Tap,
}

/// A server that is in use. Dropping it takes it out.
struct Joined<'a> {
    setting: &'a Setting,
    worker: WorkerId,
    engine: Arc<SglangEngine>,
    registration: Option<Registration>,
    following: CancellationToken,
}

/// Why a server is no longer used.
enum Left {
    /// Nobody is there: what runs on it is lost.
    Gone,
    /// It says that it is not ready, or is not wanted any more: what runs may end.
    Leaving,
}

/// Looks after a server until `leave`.
pub(super) async fn run(named: Named, setting: Arc<Setting>, leave: CancellationToken) {
    let server = match Server::new(named.url.clone(), setting.api_key.as_deref()) {
        Ok(server) => server,
        Err(error) => {
            tracing::error!(server = %named.url, %error, "the API key cannot be sent (--sglang-api-key)");
            return;
        }
    };
    let mut pause = setting.probe_interval;
    while let Some(info) = leave.run_until_cancelled(model::watch_for(&server, setting.probe_interval)).await
    {
        match join(&named, &setting, &server, &info).await {
            Ok(joined) => {
                pause = setting.probe_interval;
                let left = leave.run_until_cancelled(joined.watch()).await.unwrap_or(Left::Leaving);
                joined.leave(&left).await;
            }
            Err(error) => {
                tracing::error!(server = %named.url, error = format!("{error:#}"), "this SGLang server cannot be used");
                leave.run_until_cancelled(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
}

async fn join<'a>(
    named: &Named,
    setting: &'a Setting,
    server: &Server,
    info: &ServerInfo,
) -> Result<Joined<'a>> {
    if !named.part.is(info.role) {
        bail!(
            "it was started as {} and is given as {}; name it with the option of its role",
            role_name(info.role),
            named.part.option()
        );
    }
    for remark in &info.remarks {
        tracing::warn!(server = %named.url, "{remark}");
    }
    let mut options = EngineOptions::new(model::files(info, setting.model_path.as_deref())?);
    options.kv_events = setting.kv_events;
    if let Part::Prefill(port) = named.part {
        options.bootstrap_port = port;
    }
    let engine = Arc::new(SglangEngine::start(server.clone(), info, options));
    let worker = worker_id(named);
    let records = records(named, worker, engine.card()).await?;
    setting.engines.insert(worker, Arc::clone(&engine));
    let following = CancellationToken::new();
    let mut joined = Joined { setting, worker, engine, registration: None, following };
    joined.registration = Some(
        Registration::register(Arc::clone(&setting.discovery), &records)
            .await
            .context("it cannot be registered; is another server named twice?")?,
    );
    tracing::info!(
        server = %named.url,
        worker = format_args!("{:x}", worker.0),
        model = info.model_name,
        version = info.version,
        role = role_name(info.role),
        ranks = info.dp_size,
        page = info.block_size,
        context = info.context_length,
        kv_events = joined.engine.card().publishes_kv_events,
        "SGLang server taken in"
    );
    joined.follow();
    Ok(joined)
}

impl Joined<'_> {
    /// Passes on what the engine says of its cache and its load.
    fn follow(&self) {
        for dp_rank in self.engine.card().ranks() {
            let rank = WorkerRank::new(self.worker, dp_rank);
            if let Some(changes) = self.engine.kv_changes(dp_rank) {
                let passing = pass_changes(self.setting.tap.clone(), rank, changes);
                tokio::spawn(self.following.clone().run_until_cancelled_owned(passing));
            }
        }
        let passing = pass_load(self.setting.tap.clone(), self.worker, self.engine.load());
        tokio::spawn(self.following.clone().run_until_cancelled_owned(passing));
    }

    /// Resolves when the server is not to be used any more.
    async fn watch(&self) -> Left {
        match model::watch_over(self.engine.server(), self.setting.probe_interval).await {
            Probe::NotReady => Left::Leaving,
            _ => Left::Gone,
        }
    }

    async fn leave(mut self, how: &Left) {
        self.following.cancel();
        if let Some(registration) = self.registration.take()
            && let Err(error) = registration.shutdown().await
        {
            tracing::warn!(%error, "a server's records were not removed");
        }
        self.setting.engines.remove(self.worker);
        let engine = Arc::clone(&self.engine);
        match how {
            Left::Gone => engine.give_up(),
            // Answers hold nothing of the engine but its end, which is its last owner's to tell.
            Left::Leaving => drop(tokio::spawn(async move {
                tokio::time::sleep(FAREWELL).await;
                drop(engine);
            })),
        }
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.following.cancel();
        self.setting.engines.remove(self.worker);
    }
}

async fn pass_changes(mut tap: Tap, rank: WorkerRank, changes: roost_worker::KvChanges) {
    let Some(epoch) = tap.epoch(rank.worker).await else { return };
    let mut changes = changes.ready_chunks(BATCH);
    let mut next = 0u64;
    while let Some(batch) = changes.next().await {
        let events = batch
            .into_iter()
            .map(|KvChange { tier, data }| {
                next += 1;
                KvEvent { event_id: next, rank, tier, data }
            })
            .collect();
        if !tap.send(Update::Kv { rank, epoch, events }).await {
            return;
        }
    }
}

async fn pass_load(
    mut tap: Tap,
    worker: WorkerId,
    mut load: tokio::sync::watch::Receiver<Vec<roost_worker::RankLoad>>,
) {
    let Some(epoch) = tap.epoch(worker).await else { return };
    while load.changed().await.is_ok() {
        let ranks = load.borrow_and_update().clone();
        for rank in ranks {
            let update = Update::Load {
                rank: WorkerRank::new(worker, rank.dp_rank),
                epoch,
                active_decode_blocks: Some(rank.active_blocks),
                active_prefill_tokens: Some(rank.active_prefill_tokens),
                kv_used_blocks: Some(rank.used_blocks),
            };
            if !tap.send(update).await {
                return;
            }
        }
    }
}

/// The same for a server after each restart, of it or of this process: sessions that were bound to it find it again.
fn worker_id(named: &Named) -> WorkerId {
    WorkerId(xxhash_rust::xxh3::xxh3_64(named.url.to_string().as_bytes()) >> 1)
}

async fn records(named: &Named, worker: WorkerId, card: &roost_worker::EngineCard) -> Result<WorkerRecords> {
    let endpoint = EndpointId::new("sglang", card.role.default_component(), "generate");
    let address = format!("{}/{}", named.url.authority(), instance_path(&endpoint, worker.0));
    Ok(WorkerRecords {
        side_endpoints: Vec::new(),
        channels: Vec::new(),
        sources: Vec::new(),
        generate: InstanceRecord {
            component: endpoint.component.clone(),
            endpoint: endpoint.name.clone(),
            namespace: endpoint.namespace.clone(),
            instance_id: worker.0,
            transport: TransportAddress::Tcp(address),
            device_type: None,
            request_plane_codec: None,
        },
        card: CardRecord {
            namespace: endpoint.namespace,
            component: endpoint.component,
            endpoint: endpoint.name,
            instance_id: worker.0,
            card: card.hosted().await?,
        },
    })
}

fn role_name(role: roost_worker::Role) -> &'static str {
    match role {
        roost_worker::Role::Aggregated => "aggregated",
        roost_worker::Role::Prefill => "prefill",
        roost_worker::Role::Decode => "decode",
    }
}
