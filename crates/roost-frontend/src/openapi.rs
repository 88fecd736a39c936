//! `GET /openapi.json`: a document kept by hand, with the paths as they are configured.

use axum::response::Response;
use bytes::BytesMut;
use http::StatusCode;
use serde_json::Value;

use crate::config::{Http, Paths};
use crate::reply;

const DOCUMENT: &str = include_str!("openapi.json");

/// The document for this configuration.
pub(crate) fn document(http: &Http) -> Response {
    let mut document: Value = serde_json::from_str(DOCUMENT).unwrap_or_default();
    if let Some(paths) = document["paths"].as_object_mut() {
        *paths = std::mem::take(paths)
            .into_iter()
            .filter(|(path, _)| is_served(path, http))
            .map(|(path, item)| (moved(&path, &http.paths), item))
            .collect();
    }
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    reply::json(StatusCode::OK, BytesMut::from(document.to_string().as_bytes()))
}

fn is_served(path: &str, http: &Http) -> bool {
    let is_messages = path.starts_with(&Paths::default().messages);
    let is_admin = ["/busy_threshold", "/console/state"].contains(&path) || path.starts_with("/debug/");
    (http.messages_api || !is_messages) && (http.admin_api || !is_admin)
}

/// A path of the document where the configuration has it.
fn moved(path: &str, paths: &Paths) -> String {
    let usual = Paths::default();
    let pairs = [
        (&usual.chat, &paths.chat),
        (&usual.completions, &paths.completions),
        (&usual.responses, &paths.responses),
        (&usual.messages, &paths.messages),
        (&usual.models, &paths.models),
        (&usual.health, &paths.health),
        (&usual.live, &paths.live),
        (&usual.metrics, &paths.metrics),
    ];
    for (usual, now) in pairs {
        match path.strip_prefix(usual.as_str()) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                return format!("{}{rest}", now.trim_end_matches('/'));
            }
            _ => {}
        }
    }
    path.to_owned()
}
