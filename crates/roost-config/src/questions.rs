//! What commands need to know that ask a running frontend: `roost explain` and `roost top`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::values::Values;

/// A running frontend, and how to be let in.
#[derive(Clone)]
pub struct Frontend {
    /// Where it serves.
    pub url: String,
    /// Key to show.
    pub api_key: Option<String>,
    /// Certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Options of `roost explain`: why requests went where they went.
#[derive(Debug, Clone)]
pub struct Explain {
    /// Request or session; `None` asks for the latest decisions.
    pub id: Option<String>,
    /// Who is asked.
    pub frontend: Frontend,
    /// Decisions to show.
    pub limit: usize,
}

/// Options of `roost top`: what the fleet does.
#[derive(Debug, Clone)]
pub struct Top {
    /// Who is asked.
    pub frontend: Frontend,
    /// Show it once and exit.
    pub once: bool,
    /// Time between two looks.
    pub interval: Duration,
    /// What comes first.
    pub order: TopOrder,
    /// Part of the names of workers or sessions to show; all without one.
    pub filter: String,
    /// Ranks and sessions to show, each.
    pub limit: usize,
}

/// What ranks are ordered by, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopOrder {
    /// Running requests.
    Requests,
    /// Use of the KV cache.
    Kv,
    /// Bound sessions.
    Sessions,
    /// Hit rate.
    Hits,
}

/// Without the key.
impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frontend").field("url", &self.url).field("ca", &self.ca).finish_non_exhaustive()
    }
}

impl Frontend {
    fn of(values: &Values) -> Self {
        Frontend {
            url: values.required_text("url"),
            api_key: values.text("api-key"),
            ca: values.path("tls-ca-cert-path"),
            certificate: values.path("tls-client-cert-path").zip(values.path("tls-client-key-path")),
        }
    }
}

pub(crate) fn explain(values: &Values) -> Explain {
    Explain { id: values.text("id"), frontend: Frontend::of(values), limit: values.size("limit") }
}

pub(crate) fn top(values: &Values) -> Top {
    Top {
        frontend: Frontend::of(values),
        once: values.switch("once"),
        interval: values.duration("interval"),
        order: match values.choice("sort") {
            "kv" => TopOrder::Kv,
            "sessions" => TopOrder::Sessions,
            "hits" => TopOrder::Hits,
            _ => TopOrder::Requests,
        },
        filter: values.text("filter").unwrap_or_default(),
        limit: values.size("limit"),
    }
}
