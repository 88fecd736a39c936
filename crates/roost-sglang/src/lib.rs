//! A plain SGLang server as an [`Engine`](roost_worker::Engine): its native HTTP API, the KV and load events of its ranks,
//! and what it says about itself. Nothing but its address is needed.
//!
//! [`ServerUrl`] names a server, [`ServerInfo::read`] asks it, [`SglangEngine::start`] makes an engine of it that may be
//! hosted in a frontend's process or behind the worker plane. Knows nothing of routing, discovery or the plane.

mod engine;
mod generate;
mod health;
mod http;
mod info;
mod kv;
mod load;
mod url;

pub use engine::{EngineOptions, SglangEngine};
pub use health::{Health, HealthConfig, Probe};
pub use http::{HttpError, Server};
pub use info::{InfoError, KvEventSockets, ServerInfo};
pub use url::{ServerUrl, UrlError};
