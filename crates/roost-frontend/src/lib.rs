//! HTTP in, SSE out: accept, session, admission, prepare, route, dispatch, respond, finish.
//! Knows nothing of etcd, ZMQ or frame layout.
//!
//! One file per phase; a request moves through them in that order and never back. `feed` is the only place where
//! the cluster's updates meet index, router and model registry.

mod accept;
mod admit;
mod api;
mod bindings;
mod body;
mod completions;
mod config;
mod console;
mod dispatch;
mod door;
mod explain;
mod failure;
mod feed;
mod finish;
mod frontend;
mod hold;
mod hosted;
mod loader;
pub mod metrics;
mod models;
mod openapi;
mod plane;
mod prepare;
mod reply;
mod respond;
mod routes;
mod session;
mod shared;
mod status;
mod tokens;
mod trace;

pub use accept::Listener;
pub use bindings::BindingsFile;
pub use config::{Advertised, Config, Http, ModelSource, Paths, Prepare, Route};
pub use door::{ApiKeys, CorsOrigins};
pub use feed::Replicas;
pub use frontend::{Frontend, Parts};
pub use hosted::{HostedEngines, HostedError, HostedStream};
pub use plane::PlaneRecovery;
pub use prepare::memory::{HashedPrompt, MemoryConfig, PromptError, PromptMemory, PromptRequest, Recalled};
pub use roost_openai::{ErrorShape, FieldPolicy};
pub use roost_router::LocalPrefill;
pub use roost_template::DeepSeekStyle;
pub use trace::{RequestRecord, RequestTrace};
