//! The adapter: one server behind the seam of the worker side.

use std::fmt;

use roost_wire::message::EngineRequest;
use roost_worker::{
    BootstrapEndpoint, Engine, EngineCard, EngineContext, KvChanges, ModelFiles, OutputStream, RankLoad, Role,
};
use roost_zmtp::EventSockets;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::generate::{self, Limits};
use crate::{Server, ServerInfo, kv, load};

/// What a server does not say, or says otherwise than wanted.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The model's files.
    pub files: ModelFiles,
    /// Name to serve the model under; `None`: the server's.
    pub model_name: Option<String>,
    /// Host of the bootstrap server as decode servers reach it; `None`: the server's own.
    pub bootstrap_host: Option<String>,
    /// Its port; `None`: as the server says.
    pub bootstrap_port: Option<u16>,
    /// Follow the server's KV events.
    pub kv_events: bool,
    /// How event sockets are reached.
    pub sockets: EventSockets,
}

impl EngineOptions {
    /// Everything as the server says.
    pub fn new(files: ModelFiles) -> Self {
        EngineOptions {
            files,
            model_name: None,
            bootstrap_host: None,
            bootstrap_port: None,
            kv_events: true,
            sockets: EventSockets::default(),
        }
    }
}

/// A plain SGLang server as an engine.
///
/// Dropping it, or [`SglangEngine::give_up`], ends what follows the server; running answers end with an error then.
pub struct SglangEngine {
    server: Server,
    card: EngineCard,
    limits: Limits,
    kv: Vec<kv::KvSource>,
    load: watch::Receiver<Vec<RankLoad>>,
    gone: CancellationToken,
    _gone_when_dropped: DropGuard,
}

impl SglangEngine {
    /// Makes an engine of a server and begins to follow its load. Must be called on a runtime.
    pub fn start(server: Server, info: &ServerInfo, options: EngineOptions) -> Self {
        let gone = CancellationToken::new();
        let kv = if options.kv_events {
            kv::sources(server.url(), info, &options.sockets, &gone)
        } else {
            Vec::new()
        };
        let load = load::follow(&server, info, &options.sockets, &gone);
        SglangEngine {
            card: card(&server, info, options, !kv.is_empty()),
            limits: Limits { role: info.role, dp_size: info.dp_size },
            server,
            kv,
            load,
            _gone_when_dropped: gone.clone().drop_guard(),
            gone,
        }
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The server is gone for good: nothing waits for it any more.
    pub fn give_up(&self) {
        self.gone.cancel();
    }
}

impl Engine for SglangEngine {
    fn card(&self) -> &EngineCard {
        &self.card
    }

    fn generate(&self, request: EngineRequest, context: EngineContext) -> OutputStream {
        generate::start(&self.server, &self.limits, &self.gone, &request, context)
    }

    fn kv_changes(&self, dp_rank: u32) -> Option<KvChanges> {
        self.kv.get(dp_rank as usize).map(kv::changes)
    }

    fn load(&self) -> watch::Receiver<Vec<RankLoad>> {
        self.load.clone()
    }
}

fn card(server: &Server, info: &ServerInfo, options: EngineOptions, publishes_kv_events: bool) -> EngineCard {
    let bootstrap = (info.role == Role::Prefill).then(|| BootstrapEndpoint {
        host: options.bootstrap_host.unwrap_or_else(|| server.url().host().to_owned()),
        port: options.bootstrap_port.or(info.bootstrap_port).unwrap_or_default(),
    });
    EngineCard {
        model_name: options.model_name.unwrap_or_else(|| info.model_name.clone()),
        aliases: Vec::new(),
        role: info.role,
        files: options.files,
        context_length: info.context_length,
        kv_block_size: info.block_size,
        eagle: info.bigram_keys,
        total_kv_blocks: info.max_total_tokens / u64::from(info.block_size),
        max_num_seqs: info.max_running_requests,
        max_num_batched_tokens: info.max_prefill_tokens,
        dp_start_rank: 0,
        dp_size: info.dp_size,
        publishes_kv_events,
        tool_call_parser: info.tool_call_parser.clone(),
        reasoning_parser: info.reasoning_parser.clone(),
        bootstrap,
        runtime_data: serde_json::Map::new(),
        runtime_config: serde_json::Map::new(),
    }
}

impl fmt::Debug for SglangEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SglangEngine")
            .field("server", self.server.url())
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}
