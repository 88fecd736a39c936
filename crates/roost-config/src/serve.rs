//! What `roost serve` needs to know, in types that leave nothing to interpret.

mod build;
mod door;
mod local_prefill;
mod reliability;
mod routes;
mod sglang;

use std::{net::IpAddr, path::PathBuf, time::Duration};

use crate::effective::Effective;

pub use door::{DoorOptions, KeyOptions};
pub use local_prefill::{LocalPrefillOptions, LocalPrefillPolicy};
pub use reliability::ReliabilityOptions;
pub use routes::PathOptions;
pub use sglang::SglangOptions;

pub(crate) use build::{apply_presets, build, check, check_discovery, discovery, log, nats, plane_tls};

/// Options of `roost serve`: plain data, validated, no behaviour.
#[derive(Debug, Clone)]
pub struct Serve {
    /// The HTTP listener and its answers.
    pub http: HttpOptions,
    /// Who may come in.
    pub door: DoorOptions,
    /// Bounds of the frontend's own tables, queues and waits.
    pub limits: LimitOptions,
    /// Worker selection.
    pub router: RouterOptions,
    /// Retries and deadlines.
    pub reliability: ReliabilityOptions,
    /// Request and response plane.
    pub plane: PlaneOptions,
    /// Where workers are found.
    pub discovery: DiscoveryOptions,
    /// SGLang servers that take the place of discovered workers. `None`: there are none.
    pub sglang: Option<SglangOptions>,
    /// KV and load events of workers.
    pub events: EventOptions,
    /// Which models are served and how they are announced.
    pub model: ModelOptions,
    /// Tokenization.
    pub tokenizer: TokenizerOptions,
    /// Names and buckets on `/metrics`.
    pub metrics: MetricsOptions,
    /// Log output.
    pub log: LogOptions,
    /// Spans for a collector; `None`: none are told of.
    pub spans: Option<SpanOptions>,
    /// The request trace; `None`: none is written.
    pub trace: Option<TraceOptions>,
    /// Threads and descriptors of the process.
    pub process: ProcessOptions,
    /// Every option with its value and where it came from: for the start-up banner.
    pub effective: Effective,
    /// Things to tell the operator once at start: options that are accepted and change nothing, likely typos.
    pub notices: Vec<String>,
}

/// The HTTP listener and its answers.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Address to bind.
    pub host: IpAddr,
    /// Port to bind; 0 takes a free one.
    pub port: u16,
    /// Backlog of the listening socket.
    pub listen_backlog: u32,
    /// Largest accepted request body, in bytes.
    pub body_limit_bytes: u64,
    /// How long running streams may go on after SIGTERM.
    pub graceful_shutdown_timeout: Duration,
    /// How long new requests are still served after SIGTERM.
    pub shutdown_notice: Duration,
    /// A worker stream that is silent for this long is ended with an error. `None`: never.
    pub backend_stream_timeout: Option<Duration>,
    /// A comment line is sent after this much silence. `None`: never.
    pub keep_alive_interval: Option<Duration>,
    /// Status of an overload answer.
    pub overload_status: u16,
    /// Shape of error bodies.
    pub error_shape: ErrorShape,
    /// Whether thresholds and routing decisions can be looked at and changed over HTTP.
    pub admin_api: bool,
    /// Honour `nvext` of requests.
    pub nvext: bool,
    /// Context window that lists of models tell, tokens; `None`: the card's.
    pub context_window: Option<u64>,
    /// Longest answer that lists of models tell, tokens.
    pub max_output_tokens: Option<u64>,
    /// Refuse unknown request fields with 400 instead of ignoring and counting them.
    pub strict_fields: bool,
    /// Name of the member that carries reasoning text.
    pub reasoning_field: ReasoningField,
    /// Send usage at the end of every stream.
    pub force_usage: bool,
    /// Prefix, in lower case, of headers passed to the worker as metadata.
    pub metadata_prefix: String,
    /// Where routes are found.
    pub paths: PathOptions,
    /// Serve the Messages API.
    pub anthropic_api: bool,
    /// Leave the billing line of Claude Code out of system prompts.
    pub strip_anthropic_preamble: bool,
}

/// Shape of error bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorShape {
    /// Dynamo's flat members and OpenAI's `error` object in one body.
    Both,
    /// `{"error": {…}}` only.
    Openai,
    /// `{"message", "type", "code"}` only.
    Dynamo,
}

/// Name of the member that carries reasoning text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`.
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
}

/// Bounds of the frontend's own tables, queues and waits.
#[derive(Debug, Clone)]
pub struct LimitOptions {
    /// Requests in progress at most; `None`: no limit.
    pub max_inflight: Option<usize>,
    /// How long a request waits for a model that is not ready yet; 0: not at all.
    pub model_wait: Duration,
    /// Requests that may wait so.
    pub held_requests: usize,
    /// Threads that render, tokenize and hash. `None`: one less than the number of cores, at least one.
    pub prepare_threads: Option<usize>,
    /// Requests that may wait for such a thread.
    pub prepare_queue: usize,
    /// Open client connections at most.
    pub max_connections: usize,
    /// Time for a whole request head; `None`: no limit.
    pub header_timeout: Option<Duration>,
    /// Time a connection may stay open without a request; `None`: no limit.
    pub idle_timeout: Option<Duration>,
    /// Longest pause between two pieces of a request body; `None`: no limit.
    pub body_stall_timeout: Option<Duration>,
    /// Longest time in which a client takes nothing of its answer; `None`: no limit.
    pub write_stall_timeout: Option<Duration>,
    /// Bytes for all request bodies that are being read or prepared; `None`: no limit.
    pub body_memory_bytes: Option<usize>,
    /// Largest request head, in bytes.
    pub max_header_bytes: usize,
    /// Most header lines of a request.
    pub max_headers: usize,
}

/// Worker selection.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    /// Selection rule.
    pub mode: RouterMode,
    /// Session affinity.
    pub affinity: AffinityOptions,
    /// Terms of the cost formula of the `kv` mode.
    pub cost: CostOptions,
    /// When a worker counts as busy.
    pub busy: BusyThresholds,
    /// When requests are held back, and in which order they go.
    pub queue: QueueOptions,
    /// When decode workers compute prompts themselves. `None`: never.
    pub local_prefill: Option<LocalPrefillOptions>,
    /// Use the workers' KV events. Off: an approximate index of routed prompts.
    pub kv_events: bool,
    /// Lifetime of an entry of the approximate index.
    pub approximate_ttl: Duration,
    /// Count prompt blocks of running requests.
    pub track_active_blocks: bool,
    /// Also count generated blocks.
    pub track_output_blocks: bool,
    /// Count prompt tokens until the first token.
    pub track_prefill_tokens: bool,
    /// Equal prompt blocks of two running requests count once.
    pub assume_kv_reuse: bool,
    /// The booking of another frontend's request is dropped after one to two times this without a word of it.
    pub active_request_expiry: Duration,
    /// Not ready before this many workers were seen.
    pub min_initial_workers: usize,
    /// Tokens per KV block. `None`: from the worker's card.
    pub block_size: Option<u32>,
    /// First quarantine of a failed worker. `None`: workers are not quarantined.
    pub quarantine: Option<Duration>,
    /// Seed of tie-breaks and draws. `None`: from the operating system.
    pub seed: Option<u64>,
}

/// Selection rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterMode {
    /// Cost from KV overlap and load.
    Kv,
    /// In turn.
    RoundRobin,
    /// Uniform.
    Random,
    /// The less loaded of two random workers.
    PowerOfTwo,
    /// Fewest requests in progress.
    LeastLoaded,
    /// The worker the request names.
    Direct,
}

/// Session affinity. Prefill and decode workers each have their own table.
#[derive(Debug, Clone)]
pub struct AffinityOptions {
    /// How a binding takes part in selection.
    pub mode: AffinityMode,
    /// Idle lifetime of a binding to a decode or aggregated worker. `None`: no affinity there.
    pub decode_ttl: Option<Duration>,
    /// Idle lifetime of a binding to a prefill worker. `None`: no affinity there.
    pub prefill_ttl: Option<Duration>,
    /// Bindings per table; the oldest idle one makes room.
    pub capacity: usize,
    /// File in which bindings outlive a restart.
    pub file: Option<PathBuf>,
    /// Time between two writes of that file.
    pub file_interval: Duration,
    /// How many times as busy as the best other worker a session's own must be before it leaves, in mode bounded.
    pub load_ratio: f64,
    /// The least gain of leaving, in units of the cached prompt that is lost.
    pub rebuild_factor: f64,
    /// The least gain of leaving beyond that, tokens.
    pub hot_tokens: u32,
    /// Weight of what a rank's sessions promise when another one starts.
    pub promise_weight: f64,
    /// The most that they count, tokens.
    pub promise_cap_tokens: u32,
}

/// How a binding takes part in selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AffinityMode {
    /// The bound worker is used while it can serve.
    Hard,
    /// The bound worker is used while it is healthy and not overloaded; the session follows where it ran.
    Soft,
    /// As hard, but a session leaves a worker that is much busier than another.
    Bounded,
    /// Sessions are not bound.
    Off,
}

/// Terms of the cost formula of the `kv` mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostOptions {
    /// Softmax temperature over normalised cost; 0 takes the lowest cost.
    pub temperature: f64,
    /// Weight of blocks held on the device.
    pub overlap_credit: f64,
    /// How fast that weight falls on workers with more prefill than the least loaded one.
    pub overlap_credit_decay: f64,
    /// Weight of the prefill term.
    pub prefill_load_scale: f64,
    /// Blocks charged per active request.
    pub decode_active_request_weight: f64,
    /// Weight of blocks held in host memory, 0 to 1.
    pub host_cache_hit_weight: f64,
    /// Weight of blocks held on disk, 0 to 1.
    pub disk_cache_hit_weight: f64,
}

/// When a worker counts as busy. Each can be changed at run time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BusyThresholds {
    /// Used KV blocks as a fraction of all, 0 to 1.
    pub active_decode_blocks: Option<f64>,
    /// Prefill tokens in progress.
    pub active_prefill_tokens: Option<u64>,
    /// Prefill tokens in progress as a fraction of the worker's batch token limit.
    pub active_prefill_tokens_frac: Option<f64>,
}

/// When requests are held back, and in which order they go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueOptions {
    /// Held while every worker has more prefill than this many times its batch token limit. `None`: never.
    pub threshold: Option<f64>,
    /// Which goes first.
    pub policy: QueuePolicy,
    /// How many may be held.
    pub limit: usize,
    /// How long one may be held.
    pub max_wait: Duration,
}

/// Which of the held requests goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePolicy {
    /// The first to come.
    Fcfs,
    /// The last to come.
    Lcfs,
    /// The shortest.
    Wspt,
}

/// Request and response plane (TCP).
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    /// Address the workers call home to. `None`: the address by which this host reaches the network.
    pub response_host: Option<String>,
    /// Port the workers call home to; 0 takes a free one.
    pub response_port: u16,
    /// Backlog of that listener.
    pub listen_backlog: u32,
    /// Time to connect to a worker.
    pub connect_timeout: Duration,
    /// Time from a request frame to its acknowledgement.
    pub request_timeout: Duration,
    /// Time that an acknowledged request waits once the worker is lost or has left.
    pub farewell_timeout: Duration,
    /// Time from the acknowledgement to the worker's call home.
    pub call_home_timeout: Duration,
    /// Time from the call home to the worker's prologue. `None`: no limit.
    pub prologue_timeout: Option<Duration>,
    /// Unacknowledged request frames per connection.
    pub channel_buffer: usize,
    /// Connections per worker address.
    pub pool_size: usize,
    /// Connection attempts at the same time.
    pub global_connect_limit: usize,
    /// Connections of an address that is not used for this long are closed.
    pub host_idle_ttl: Duration,
    /// Largest frame, in bytes.
    pub max_message_bytes: usize,
    /// Send token ids as one binary string instead of a list.
    pub token_ids_as_bytes: bool,
    /// TLS to workers and from them.
    pub tls: PlaneTls,
}

/// TLS between frontends and workers, the same for both.
#[derive(Debug, Clone)]
pub struct PlaneTls {
    /// Certificate of our listener.
    pub cert: Option<PathBuf>,
    /// Private key of our listener.
    pub key: Option<PathBuf>,
    /// CA of those that are connected to.
    pub ca: Option<PathBuf>,
    /// Connect with TLS to whoever answers.
    pub insecure: bool,
    /// Name that those must be certified for. `None`: their address.
    pub server_name: Option<String>,
    /// Certificate to show when connecting.
    pub client_cert: Option<PathBuf>,
    /// Private key to that.
    pub client_key: Option<PathBuf>,
    /// CA of those that connect.
    pub client_ca: Option<PathBuf>,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
}

/// Where workers are found.
#[derive(Debug, Clone)]
pub struct DiscoveryOptions {
    /// Store.
    pub backend: DiscoveryBackend,
    /// Which namespaces are looked at.
    pub namespaces: NamespaceFilter,
    /// How often a store that is not watched is read again.
    pub poll_interval: Duration,
    /// Folder for files named by model cards. `None`: a folder below the system's temporary one.
    pub card_cache_dir: Option<PathBuf>,
}

/// Store of worker records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoveryBackend {
    /// etcd.
    Etcd(Box<EtcdOptions>),
    /// Kubernetes.
    Kubernetes(Box<KubernetesOptions>),
    /// One file per record below this folder.
    File(PathBuf),
    /// Within this process.
    Memory,
}

/// How etcd is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Addresses of members.
    pub endpoints: Vec<String>,
    /// Lifetime of records after their owner has died.
    pub lease_ttl: Duration,
    /// Longest wait for the store at the start.
    pub startup_timeout: Duration,
    /// Pause between pings. `None`: no pings.
    pub ping_interval: Option<Duration>,
    /// Longest wait for the answer to a ping.
    pub ping_timeout: Duration,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Trusted certificates: a path or PEM. `None`: the system's.
    pub ca: Option<String>,
    /// Own certificate and key: paths or PEM.
    pub client: Option<(String, String)>,
}

/// How Kubernetes is reached, and who this process is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesOptions {
    /// URL of the API server. `None`: this process is not in a pod.
    pub server: Option<String>,
    /// Token of the service account.
    pub token_file: PathBuf,
    /// Trusted certificates.
    pub ca_file: PathBuf,
    /// Namespace of the cluster.
    pub namespace: Option<String>,
    /// Single containers register rather than pods.
    pub containers: bool,
    /// This process's pod.
    pub pod_name: Option<String>,
    /// Its unique id.
    pub pod_uid: Option<String>,
    /// This process's container.
    pub container_name: Option<String>,
    /// Files that say the same.
    pub podinfo_dir: PathBuf,
    /// Longest wait for the store at the start.
    pub startup_timeout: Duration,
}

/// Without password and key.
impl std::fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdOptions").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// Which namespaces are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceFilter {
    /// Every namespace.
    All,
    /// This one.
    Exact(String),
    /// Those beginning with this text.
    Prefix(String),
}

/// KV and load events of workers, and what frontends tell each other.
#[derive(Debug, Clone)]
pub struct EventOptions {
    /// Changes and batches of events that may wait for index and router.
    pub queue_capacity: usize,
    /// Share running requests with other frontends. Bindings are shared whenever there is affinity.
    pub replica_sync: bool,
    /// Host at which other frontends reach this one's events. `None`: where workers call home.
    pub host: Option<String>,
    /// The NATS servers. `None`: NATS is not used.
    pub nats: Option<NatsOptions>,
}

/// Connection to NATS.
#[derive(Clone)]
pub struct NatsOptions {
    /// URLs, separated by commas.
    pub servers: String,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Token, if there is no user.
    pub token: Option<String>,
    /// Seed of a key, if there is no token.
    pub nkey: Option<String>,
    /// Credentials file, if there is no key.
    pub credentials: Option<PathBuf>,
    /// Trusted certificates. `None`: the system's.
    pub ca: Option<PathBuf>,
    /// Own certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Without secrets.
impl std::fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsOptions").finish_non_exhaustive()
    }
}

/// Which models are served and how they are announced.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    /// Serve the discovered model under this name.
    pub name: Option<String>,
    /// Model folder used instead of the files the card names.
    pub path: Option<PathBuf>,
    /// Conversations with DeepSeek's models are rendered as Dynamo does, not as their publisher.
    pub deepseek_as_dynamo: bool,
    /// Control tokens that users and tools spell stay text.
    pub literal_control_tokens: bool,
}

/// Tokenization.
#[derive(Debug, Clone)]
pub struct TokenizerOptions {
    /// Preferred implementation.
    pub backend: TokenizerBackend,
    /// Use the other one when the preferred one cannot load a model's tokenizer.
    pub fallback: bool,
    /// Remember prompts.
    pub cache: bool,
    /// Memory for remembered prompts, in bytes. `None`: the frontend's own default.
    pub cache_bytes: Option<usize>,
}

/// Implementation of byte-pair encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenizerBackend {
    /// The fast encoder.
    Fastokens,
    /// The Hugging Face library.
    Default,
}

/// Metrics of workers on our own page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FederationOptions {
    /// Addresses, as written.
    pub servers: Vec<String>,
    /// Pause between two fetches.
    pub interval: Duration,
}

/// Names and buckets on `/metrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsOptions {
    /// Prefix of the families that may be renamed.
    pub prefix: String,
    /// Buckets of the request duration, seconds. `None`, here and below: the built-in ones.
    pub request_duration: Option<HistogramRange>,
    /// Buckets of the input length, tokens.
    pub input_sequence: Option<HistogramRange>,
    /// Buckets of the output length, tokens.
    pub output_sequence: Option<HistogramRange>,
    /// Buckets of the time to first token, seconds.
    pub time_to_first_token: Option<HistogramRange>,
    /// Buckets of the inter-token latency, seconds.
    pub inter_token_latency: Option<HistogramRange>,
    /// Whose families are shown as well.
    pub federation: FederationOptions,
}

/// Bounds of a logarithmic set of buckets, as Dynamo's variables describe it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistogramRange {
    /// Start of the scale; the bound itself is replaced by 0.
    pub min: f64,
    /// Highest finite bound.
    pub max: f64,
    /// Number of finite bounds, the zero included.
    pub count: usize,
}

/// Spans for an OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanOptions {
    /// The collector, with the path of spans where it is spoken to by HTTP.
    pub endpoint: String,
    /// gRPC instead of HTTP.
    pub grpc: bool,
    /// Headers of every call.
    pub headers: Vec<(String, String)>,
    /// Attributes of the process.
    pub resource: Vec<(String, String)>,
    /// Part of the requests that are told of.
    pub ratio: f64,
    /// Longest time that a span waits.
    pub delay: Duration,
}

/// One record per request, in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOptions {
    /// The file.
    pub path: PathBuf,
    /// Bytes after which it is full.
    pub roll_bytes: u64,
    /// Records after which it is full. `None`: any number.
    pub roll_lines: Option<u64>,
    /// Full files that are kept.
    pub keep: usize,
    /// Longest time that a record waits in memory.
    pub flush: Duration,
    /// Records that may wait for the disk.
    pub capacity: usize,
}

/// Log output, to standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Filter in `RUST_LOG` syntax.
    pub filter: String,
    /// Form of a line.
    pub format: LogFormat,
    /// Colour in console lines.
    pub ansi: bool,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Console,
    /// One JSON object per line.
    Json,
}

/// Threads and descriptors of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Threads of the network runtime. `None`: the number of cores.
    pub worker_threads: Option<usize>,
    /// Upper bound of the runtime's threads for blocking calls. `None`: the runtime's own.
    pub max_blocking_threads: Option<usize>,
    /// The soft limit of open files is raised to this. `None`: it is left alone.
    pub fd_limit_target: Option<u64>,
}
