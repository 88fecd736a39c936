//! What `roost explain` needs to know.

use std::path::PathBuf;

use crate::values::Values;

/// Options of `roost explain`: a question to a running frontend.
#[derive(Debug, Clone)]
pub struct Explain {
    /// Request or session; `None` asks for the latest decisions.
    pub id: Option<String>,
    /// Where the frontend serves.
    pub url: String,
    /// Key to show.
    pub api_key: Option<String>,
    /// Certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Decisions to show.
    pub limit: usize,
}

pub(crate) fn build(values: &Values) -> Explain {
    Explain {
        id: values.text("id"),
        url: values.required_text("url"),
        api_key: values.text("api-key"),
        ca: values.path("tls-ca-cert-path"),
        certificate: values.path("tls-client-cert-path").zip(values.path("tls-client-key-path")),
        limit: values.size("limit"),
    }
}
