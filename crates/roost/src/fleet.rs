//! Mock workers, as many as asked for, registered where they are looked for.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use roost_cluster::record::Codec;
use roost_cluster::{Discovery, NatsClient};
use roost_config::{AnswerMode, MockWorker, WorkerPlane, WorkerRole};
use roost_tokenizer::{Backend, Tokenizer};
use roost_wire::Transport;
use roost_worker::{
    Answer, EventsConfig, MockConfig, MockEngine, MockTiming, ModelFiles, Role, RunningWorker, ScriptBook,
    SystemConfig, TextCodec, WorkerConfig, WorkerServer,
};
use tokio_util::sync::CancellationToken;

use crate::store::Store;

/// How long a leaving worker goes on accepting, so that frontends notice first.
const GRACE: Duration = Duration::from_millis(500);
/// How long its open answers may go on.
const DRAIN: Duration = Duration::from_secs(30);

/// Running mock workers.
#[derive(Debug)]
pub(crate) struct Fleet(Vec<RunningWorker>);

/// Starts the workers that `options` describe; a model of our own goes into `scratch` when none is named.
pub(crate) async fn start(
    options: &MockWorker,
    scratch: &Path,
    store: &Store,
    shutdown: &CancellationToken,
) -> Result<Fleet> {
    let (files, codec) = match &options.model_path {
        None => (
            roost_worker::tiny_chat(scratch).context("cannot write the built-in model")?,
            TextCodec::tiny_chat(),
        ),
        Some(path) => model(path).await?,
    };
    if options.workers > 1 && store.is_one_workers() {
        bail!("a pod registers one worker in Kubernetes: start one process for each (--workers 1)");
    }
    let transport = crate::transport::plane(&options.plane.tls)?;
    let nats = match &options.plane.nats {
        Some(nats) if options.kv_events => Some(crate::nats::connect(nats, &CancellationToken::new())?),
        _ => None,
    };
    let mut workers = Vec::with_capacity(options.workers);
    for number in 0..options.workers {
        let engine = MockEngine::new(engine(options, &files, &codec, number)?);
        let discovery = store.participant(shutdown).await?;
        let worker = WorkerServer::start(
            Arc::new(engine),
            server(options, &codec, discovery, &transport, nats.clone(), number),
        )
        .await
        .with_context(|| format!("cannot start mock worker {number}"))?;
        workers.push(worker);
    }
    Ok(Fleet(workers))
}

impl Fleet {
    /// Takes the workers out in good order.
    pub(crate) async fn drain(self) {
        let drains = self.0.into_iter().map(|worker| worker.drain(GRACE, DRAIN));
        futures_util::future::join_all(drains).await;
    }
}

async fn model(path: &Path) -> Result<(ModelFiles, TextCodec)> {
    let files = ModelFiles::in_dir(path);
    let tokenizer_file = files.tokenizer.clone();
    let tokenizer =
        tokio::task::spawn_blocking(move || Tokenizer::load(&tokenizer_file, Backend::Fast, true))
            .await?
            .with_context(|| format!("cannot load the tokenizer of {} (--model-path)", path.display()))?;
    let decoder = tokenizer.clone();
    let codec = TextCodec::new(
        move |text| tokenizer.encode(text, false).unwrap_or_default(),
        move |ids| decoder.decode(ids, false),
    );
    Ok((files, codec))
}

fn engine(options: &MockWorker, files: &ModelFiles, codec: &TextCodec, number: usize) -> Result<MockConfig> {
    let scripts = match &options.script {
        None => ScriptBook::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {} (--script)", path.display()))?;
            ScriptBook::from_json(&text).with_context(|| format!("{} (--script)", path.display()))?
        }
    };
    let defaults = MockConfig::new(&options.model_name, files.clone());
    Ok(MockConfig {
        role: match options.role {
            WorkerRole::Aggregated => Role::Aggregated,
            WorkerRole::Prefill => Role::Prefill,
            WorkerRole::Decode => Role::Decode,
        },
        context_length: options.context_length.unwrap_or(defaults.context_length),
        block_size: options.block_size,
        total_blocks: usize::try_from(options.kv_blocks).unwrap_or(usize::MAX),
        max_num_seqs: usize::try_from(options.max_num_seqs).unwrap_or(usize::MAX),
        dp_size: options.data_parallel_size,
        kv_events: options.kv_events,
        timing: MockTiming {
            prefill_tokens_per_s: options.prefill_tokens_per_second,
            itl: options.inter_token_latency,
            speed: options.speed,
            ..MockTiming::default()
        },
        answer: match options.answer {
            AnswerMode::Readable => Answer::Echo,
            AnswerMode::Random => defaults.answer.clone(),
        },
        seed: options.seed.wrapping_add(number as u64),
        scripts,
        codec: Some(codec.clone()),
        ..defaults
    })
}

fn server(
    options: &MockWorker,
    codec: &TextCodec,
    discovery: Arc<dyn Discovery>,
    transport: &Transport,
    nats: Option<NatsClient>,
    number: usize,
) -> WorkerConfig {
    let mut config = worker_config(&options.plane, discovery, transport, nats, options.kv_events, number);
    config.codec_for_journal = Some(codec.clone());
    config
}

/// How the worker of that number in a process is reached.
pub(crate) fn worker_config(
    options: &WorkerPlane,
    discovery: Arc<dyn Discovery>,
    transport: &Transport,
    nats: Option<NatsClient>,
    kv_events: bool,
    number: usize,
) -> WorkerConfig {
    // Fixed ports are for one worker; the others of a process take the next ones.
    let offset = u16::try_from(number).unwrap_or(u16::MAX);
    let port = |first: u16| if first == 0 { 0 } else { first.saturating_add(offset) };
    let mut config = WorkerConfig::new(discovery);
    config.namespace.clone_from(&options.namespace);
    config.component.clone_from(&options.component);
    if options.json_codec {
        config.codec = Codec::Json;
    }
    config.listen.transport = transport.clone();
    config.listen.max_active = options.max_active;
    config.listen.max_queued = options.max_queued;
    config.listen.max_message_bytes = options.max_message_bytes;
    config.listen.bind = SocketAddr::new(options.host, port(options.port));
    if kv_events {
        config.events =
            Some(EventsConfig { bind: options.host, advertise_host: options.event_host.clone(), nats });
    }
    config.system = options
        .system_port
        .map(|first| SystemConfig { bind: SocketAddr::new(options.host, port(first)), advertise_host: None });
    config
}
