//! A whole deployment in one process: frontend and workers on real sockets, every port chosen by the system.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_cluster::{
    Announcer, AnnouncerConfig, Cluster as Feed, ClusterConfig, Discovery, EtcdConfig, EtcdDiscovery,
    FileDiscovery, FileDiscoveryConfig, KubernetesConfig, KubernetesDiscovery, MemoryDiscovery, NatsClient,
    PodIdentity,
};
use roost_frontend::metrics::{Metrics, MetricsOptions};
use roost_frontend::{
    Config, Frontend, Listener, ModelSource, Parts, PlaneRecovery, Replicas, RequestRecord, RequestTrace,
};
use roost_telemetry::spans::{SpanExport, SpanKeeper, Spans};
use roost_telemetry::{RecordFile, RecordKeeper, Registry};
use roost_wire::{Client, ClientConfig, ListenTls, ListenerConfig, ResponseListener};
use roost_worker::{
    Answer, BootstrapEndpoint, Engine, Journal, MockConfig, MockEngine, MockTiming, ModelFiles, Role,
    RunningWorker, ScriptBook, TextCodec, Transfers, WorkerConfig, WorkerServer,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::http::{PATIENCE, Request};
use crate::lossy::Lossy;

/// Served name of the test model.
pub const MODEL: &str = "tiny";

/// A frontend with its workers.
#[derive(Debug)]
pub struct Cluster {
    /// Where the frontend serves.
    pub address: SocketAddr,
    /// The workers, in the order they were started.
    pub workers: Vec<RunningWorker>,
    discovery: Arc<dyn Discovery>,
    options: Options,
    frontend: Option<RunningFrontend>,
    response_address: Option<SocketAddr>,
    _files: TempDir,
}

#[derive(Debug)]
struct RunningFrontend {
    shutdown: CancellationToken,
    stop_cluster: CancellationToken,
    task: JoinHandle<bool>,
    trace_keeper: Option<Box<RecordKeeper<RequestRecord>>>,
    span_keeper: Option<SpanKeeper>,
}

/// What a cluster is to look like.
#[derive(Debug, Clone)]
pub struct Options {
    /// Aggregated workers.
    pub workers: usize,
    /// Prefill workers, started next.
    pub prefill: usize,
    /// Decode workers, started last.
    pub decode: usize,
    /// Decode workers get their KV cache from prefill workers, as in earnest; `None`: they have it at once.
    pub transfers: Option<Arc<Transfers>>,
    /// Decode workers compute prompts themselves where the frontend says so.
    pub local_prefill: bool,
    /// Scripts that answers follow when a prompt names one as `@@name@@`.
    pub scripts: ScriptBook,
    /// Frontend configuration.
    pub config: Config,
    /// Deadlines of the plane.
    pub client: ClientConfig,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Data-parallel ranks per worker.
    pub dp_size: u32,
    /// Workers publish KV events.
    pub kv_events: bool,
    /// Timing of the engines.
    pub timing: MockTiming,
    /// What a long run wants of the engines.
    pub long: Option<Box<LongRun>>,
    /// Folder of the model among the cases' fixtures.
    pub model: &'static str,
    /// Tool-call and reasoning parser that the card names.
    pub parsers: (Option<&'static str>, Option<&'static str>),
    /// Context length of the engines, tokens.
    pub context_length: u32,
    /// Share bindings and running requests with other frontends.
    pub replicas: bool,
    /// Events go over this connection to NATS.
    pub nats: Option<NatsClient>,
    /// Folder of a file store; memory discovery without one.
    pub store: Option<PathBuf>,
    /// A store in etcd instead.
    pub etcd: Option<EtcdConfig>,
    /// A store in Kubernetes instead.
    pub kubernetes: Option<KubernetesConfig>,
    /// Clients speak TLS with the frontend.
    pub tls: Option<Arc<ListenTls>>,
    /// A socket in the file system on which the frontend listens as well.
    pub unix_socket: Option<PathBuf>,
    /// Who is told of the frontend's spans.
    pub spans: Option<Box<SpanExport>>,
    /// Where the frontend's request trace goes.
    pub trace: Option<Box<RecordFile>>,
    /// Plain SGLang servers in place of workers.
    pub sglang: Option<Box<roost_hosted::Config>>,
}

/// What a long run wants of the engines; journals are short then.
#[derive(Debug, Clone)]
pub struct LongRun {
    /// What unscripted answers are.
    pub answer: Answer,
    /// Of so many changes of a cache one is lost before it is published.
    pub lost_events: u64,
}

impl Options {
    /// `workers` aggregated workers, KV routing, affinity of 60 s, scripts of the public cases.
    pub fn new(workers: usize) -> Self {
        let scripts =
            std::fs::read(fixture("cases/fixtures/worker-scripts.json")).expect("the fixture is there");
        let mut scripts: Value = serde_json::from_slice(&scripts).expect("the fixture is valid");
        scripts["refuse"] = json!([{"raise_invalid": "not acceptable"}]);
        let mut route = roost_frontend::Route { seed: 7, ..roost_frontend::Route::default() };
        route.router.mode = roost_router::Mode::Kv;
        route.router.affinity.ttl = Some(Duration::from_secs(60));
        Options {
            workers,
            prefill: 0,
            decode: 0,
            transfers: None,
            local_prefill: false,
            scripts: ScriptBook::from_json(&scripts.to_string()).expect("the fixture is valid"),
            config: Config {
                http: roost_frontend::Http::default(),
                prepare: roost_frontend::Prepare { threads: Some(1), ..roost_frontend::Prepare::default() },
                route,
                models: ModelSource {
                    name: None,
                    path: None,
                    cache_dir: std::env::temp_dir().join("roost-tests-cards"),
                    backend: roost_tokenizer::Backend::Fast,
                    fallback: true,
                    deepseek: roost_frontend::DeepSeekStyle::default(),
                },
            },
            client: ClientConfig::default(),
            block_size: 16,
            dp_size: 1,
            kv_events: true,
            timing: MockTiming::INSTANT,
            long: None,
            model: "tiny-chatml",
            parsers: (None, None),
            context_length: 262_144,
            replicas: false,
            nats: None,
            store: None,
            etcd: None,
            kubernetes: None,
            tls: None,
            unix_socket: None,
            spans: None,
            trace: None,
            sglang: None,
        }
    }

    /// `prefill` prefill and `decode` decode workers whose KV cache must be handed over.
    pub fn split(prefill: usize, decode: usize) -> Self {
        let mut options = Options { prefill, decode, transfers: Some(Arc::default()), ..Options::new(0) };
        options.config.route.prefill_affinity_ttl = options.config.route.router.affinity.ttl;
        options
    }

    /// Changes the frontend's configuration.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts it and waits until the model is served by every worker.
    pub async fn start(self) -> Result<Cluster> {
        let files = TempDir::new()?;
        let discovery: Arc<dyn Discovery> = match (&self.kubernetes, &self.etcd, &self.store) {
            (Some(kubernetes), _, _) => KubernetesDiscovery::open(kubernetes.clone())?,
            (None, Some(etcd), _) => EtcdDiscovery::open(etcd.clone())?,
            (None, None, Some(root)) => FileDiscovery::open(FileDiscoveryConfig::new(root))?,
            (None, None, None) => MemoryDiscovery::new(),
        };
        let mut cluster = Cluster {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            workers: Vec::new(),
            discovery,
            options: self,
            frontend: None,
            response_address: None,
            _files: files,
        };
        Box::pin(cluster.start_frontend()).await?;
        for _ in 0..cluster.options.workers {
            Box::pin(cluster.add_worker(MODEL)).await?;
        }
        if cluster.options.workers > 0 {
            cluster.wait_for_workers(MODEL, cluster.options.workers).await?;
        }
        let (prefill, decode) = (cluster.options.prefill, cluster.options.decode);
        for _ in 0..prefill {
            Box::pin(cluster.add_worker_as(Role::Prefill)).await?;
        }
        for _ in 0..decode {
            Box::pin(cluster.add_worker_as(Role::Decode)).await?;
        }
        if prefill > 0 && decode > 0 {
            cluster.wait_for_role(MODEL, Role::Prefill, prefill).await?;
            cluster.wait_for_role(MODEL, Role::Decode, decode).await?;
        }
        Ok(cluster)
    }
}

impl Cluster {
    /// Starts one more worker for `model`.
    pub async fn add_worker(&mut self, model: &str) -> Result<&RunningWorker> {
        let files = self.files()?;
        self.add_worker_with(model, files).await
    }

    /// Starts one more worker of a role for the test model.
    pub async fn add_worker_as(&mut self, role: Role) -> Result<&RunningWorker> {
        let files = self.files()?;
        self.start_worker(role, MODEL, files, |_| {}).await
    }

    /// The files of the test model.
    pub fn files(&self) -> Result<ModelFiles> {
        let dir = self._files.path().join(self.options.model);
        copy_folder(&fixture("cases/fixtures/models").join(self.options.model), &dir)?;
        Ok(ModelFiles::in_dir(dir))
    }

    /// Starts one more worker for `model` with files of its own.
    pub async fn add_worker_with(&mut self, model: &str, files: ModelFiles) -> Result<&RunningWorker> {
        self.start_worker(Role::Aggregated, model, files, |_| {}).await
    }

    /// Starts one more worker of a role, with a last word on its engine.
    pub async fn start_worker(
        &mut self,
        role: Role,
        model: &str,
        files: ModelFiles,
        change: impl FnOnce(&mut MockConfig),
    ) -> Result<&RunningWorker> {
        let options = &self.options;
        let codec = TextCodec::tiny_chat();
        // Several prefill workers may share a host: their bootstrap ports tell them apart.
        let port = u16::try_from(8998 + self.workers.len())?;
        let bootstrap = BootstrapEndpoint { host: "127.0.0.1".into(), port };
        let mut engine = MockConfig {
            role,
            bootstrap: (role == Role::Prefill).then_some(bootstrap),
            transfers: options.transfers.clone(),
            local_prefill: options.local_prefill,
            block_size: options.block_size,
            dp_size: options.dp_size,
            kv_events: options.kv_events,
            timing: options.timing,
            context_length: options.context_length,
            tool_call_parser: options.parsers.0.map(str::to_owned),
            reasoning_parser: options.parsers.1.map(str::to_owned),
            scripts: options.scripts.clone(),
            codec: Some(codec.clone()),
            ..MockConfig::new(model, files)
        };
        if let Some(long) = &options.long {
            engine.answer = long.answer.clone();
        }
        change(&mut engine);
        let exit = engine.exit.clone();
        let mut config = WorkerConfig::new(match (&options.etcd, &options.kubernetes) {
            // In etcd a worker's id is that of its lease: every worker takes part on its own.
            (Some(etcd), _) => EtcdDiscovery::open(etcd.clone())?,
            // In Kubernetes it follows from its pod.
            (None, Some(kubernetes)) => {
                let number = self.workers.len();
                let (name, uid) = (format!("worker-{number}"), format!("uid-{number}"));
                let pod = Some(PodIdentity { name, uid, container: None });
                KubernetesDiscovery::open(KubernetesConfig { pod, ..kubernetes.clone() })?
            }
            (None, None) => Arc::clone(&self.discovery),
        });
        config.crash = exit;
        config.codec_for_journal = Some(codec);
        config.listen.transport = options.client.transport.clone();
        config.listen.max_message_bytes =
            config.listen.max_message_bytes.max(options.client.max_message_bytes);
        config.journal = Arc::new(Journal::new(if options.long.is_some() { 64 } else { 100_000 }));
        if let Some(events) = &mut config.events {
            events.nats = options.nats.clone();
        }
        if !options.kv_events {
            config.events = None;
        }
        let engine = MockEngine::new(engine);
        let engine: Arc<dyn Engine> = match &options.long {
            Some(long) => Arc::new(Lossy::new(engine, long.lost_events)),
            None => Arc::new(engine),
        };
        let worker = WorkerServer::start(engine, config).await?;
        self.workers.push(worker);
        Ok(self.workers.last().expect("pushed above"))
    }

    /// Starts a worker around an engine of its own.
    pub async fn add_engine(&mut self, engine: Arc<dyn Engine>) -> Result<&RunningWorker> {
        let mut config = WorkerConfig::new(Arc::clone(&self.discovery));
        config.journal = Arc::new(Journal::new(100_000));
        config.events = None;
        self.workers.push(WorkerServer::start(engine, config).await?);
        Ok(self.workers.last().expect("pushed above"))
    }

    /// Starts the frontend, again where it was if it has run before.
    pub async fn start_frontend(&mut self) -> Result<()> {
        let transport = self.options.client.transport.clone();
        let responses = ResponseListener::bind(ListenerConfig { transport, ..ListenerConfig::default() })?;
        self.response_address = Some(responses.address());
        let client = Arc::new(Client::new(self.options.client.clone(), responses));
        let stop_cluster = CancellationToken::new();
        let id = roost_cluster::events::random_publisher_id();
        let replicas = self.options.replicas.then(|| {
            let config = AnnouncerConfig {
                publisher_id: id,
                bind: IpAddr::from([127, 0, 0, 1]),
                advertise_host: None,
                nats: self.options.nats.clone(),
            };
            let announcer = Announcer::start(config, Arc::clone(&self.discovery), stop_cluster.clone());
            Replicas { announcer, id, bindings: true, sequences: true }
        });
        let (cluster, updates) = Feed::start(
            ClusterConfig {
                sequences: self.options.replicas,
                bindings: self.options.replicas,
                own_publisher: Some(id),
                nats: self.options.nats.clone(),
                kv_events: self.options.sglang.is_none(),
                ..ClusterConfig::default()
            },
            Arc::clone(&self.discovery),
            Arc::new(PlaneRecovery::new(Arc::clone(&client))),
            stop_cluster.clone(),
        );
        let (hosted, updates) = match self.options.sglang.clone() {
            None => (None, updates),
            Some(servers) => {
                let (hosted, updates) =
                    roost_hosted::start(*servers, Arc::clone(&self.discovery), updates, &stop_cluster)?;
                (Some(hosted), updates)
            }
        };
        let registry = Registry::default();
        let metrics = Metrics::new(&registry, &MetricsOptions::default())?;
        let (trace, trace_keeper) =
            self.options.trace.as_deref().cloned().map(RequestTrace::open).transpose()?.unzip();
        let (spans, span_keeper) =
            self.options.spans.as_deref().cloned().map(Spans::start).transpose()?.unzip();
        let frontend = Frontend::new(
            self.options.config.clone(),
            Parts { client, cluster, updates, registry, metrics, replicas, hosted, trace, spans },
        )?;
        // A free port the first time; one that is started again keeps its address.
        let listener = TcpListener::bind(self.address).await?;
        self.address = listener.local_addr()?;
        let mut listeners = vec![Listener::tcp(listener, self.options.tls.clone())];
        if let Some(path) = &self.options.unix_socket {
            listeners.push(Listener::unix(UnixListener::bind(path)?));
        }
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(frontend.run(listeners, shutdown.clone()));
        self.frontend = Some(RunningFrontend {
            shutdown,
            stop_cluster,
            task,
            trace_keeper: trace_keeper.map(Box::new),
            span_keeper,
        });
        Ok(())
    }

    /// Where workers call home to the frontend.
    pub fn response_address(&self) -> SocketAddr {
        self.response_address.expect("a frontend was started")
    }

    /// Asks the frontend to end, as SIGTERM does, and does not wait.
    pub fn signal_frontend(&self) {
        if let Some(frontend) = &self.frontend {
            frontend.shutdown.cancel();
        }
    }

    /// Ends the frontend; returns whether every answer could end.
    pub async fn stop_frontend(&mut self) -> Result<bool> {
        let frontend = self.frontend.take().context("no frontend runs")?;
        frontend.shutdown.cancel();
        let drained =
            tokio::time::timeout(PATIENCE, frontend.task).await.context("the frontend does not end")??;
        frontend.stop_cluster.cancel();
        if let Some(keeper) = frontend.span_keeper {
            keeper.stop().await;
        }
        if let Some(keeper) = frontend.trace_keeper {
            tokio::task::spawn_blocking(|| keeper.stop()).await?;
        }
        Ok(drained)
    }

    /// Waits until the frontend routes `model` to `count` workers.
    pub async fn wait_for_workers(&self, model: &str, count: usize) -> Result<()> {
        self.wait_for_role(model, Role::Aggregated, count).await
    }

    /// Waits until the frontend routes `model` to `count` workers of a role.
    pub async fn wait_for_role(&self, model: &str, role: Role, count: usize) -> Result<()> {
        let name = match role {
            Role::Aggregated => "aggregated",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        };
        self.until(&format!("{count} {name} workers of {model}"), async || {
            let reply = self.get(&format!("/v1/models/{model}/ready")).send().await?;
            let ready = reply.json()?;
            let workers = &ready["namespaces"]["dynamo"]["worker_types"][name]["workers"];
            Ok(workers.as_u64().unwrap_or(0) == count as u64 && (count == 0 || reply.status == 200))
        })
        .await
    }

    /// Waits until `condition` holds.
    pub async fn until(&self, what: &str, condition: impl AsyncFn() -> Result<bool>) -> Result<()> {
        let wait = async {
            while !condition().await? {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("never came: {what}"))?
    }

    /// A request with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> Request {
        Request::post(self.address, path, body)
    }

    /// A request without a body.
    pub fn get(&self, path: &str) -> Request {
        Request::get(self.address, path)
    }

    /// A unary chat of one user message.
    pub fn chat(&self, content: &str) -> Request {
        self.chat_body(&json!({"model": MODEL, "messages": [{"role": "user", "content": content}]}))
    }

    /// A chat with a body of its own; `worker_id` is asked for.
    pub fn chat_body(&self, body: &Value) -> Request {
        let mut body = body.clone();
        body["nvext"]["extra_fields"] = json!(["worker_id"]);
        self.post("/v1/chat/completions", &body)
    }

    /// The number of a worker by its id.
    pub fn index_of(&self, id: u64) -> usize {
        self.workers.iter().position(|worker| worker.id() == id).expect("answers come from these workers")
    }

    /// Waits until nothing runs any more: no request, no booking, no prompt in progress, here and in the engines.
    pub async fn until_idle(&self) -> Result<()> {
        self.until("everything is idle", async || {
            let mut left = 0.0;
            for gauge in [
                "dynamo_frontend_active_requests",
                "dynamo_frontend_inflight_requests",
                "roost_worker_active_requests",
                "dynamo_frontend_worker_active_prefill_tokens",
                "dynamo_frontend_worker_active_decode_blocks",
            ] {
                left += self.metric_sum(gauge, "").await?;
            }
            let engines = self.workers.iter().flat_map(|worker| worker.engine().load().borrow().clone());
            let running: u64 = engines.map(|rank| rank.running_requests + rank.waiting_requests).sum();
            Ok(left == 0.0 && running == 0)
        })
        .await
    }

    /// The value of a metric series, as exposed; `series` is the name with its labels.
    pub async fn metric(&self, series: &str) -> Result<Option<f64>> {
        let page = self.get("/metrics").send().await?.text();
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().context("not a number")).transpose()
    }

    /// The sum over all series of a family whose labels contain `labels`.
    pub async fn metric_sum(&self, family: &str, labels: &str) -> Result<f64> {
        let page = self.get("/metrics").send().await?.text();
        let mut sum = 0.0;
        for line in page.lines() {
            let Some(rest) = line.strip_prefix(family).filter(|rest| rest.starts_with(['{', ' '])) else {
                continue;
            };
            if rest.contains(labels) {
                sum += rest.rsplit(' ').next().unwrap_or_default().parse::<f64>()?;
            }
        }
        Ok(sum)
    }
}

/// The worker that answered, from `nvext`.
pub fn worker_of(answer: &Value) -> u64 {
    answer["nvext"]["worker_id"]["decode_worker_id"].as_u64().expect("worker_id was asked for")
}

/// A file or folder of the fixtures.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path)
}

/// Copies the files of one folder.
pub fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
