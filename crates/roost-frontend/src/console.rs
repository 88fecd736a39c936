//! The console: a page that shows what the router does, and the state it asks for again and again.
//!
//! The page is part of the binary and asks nobody else for anything. Nothing is computed, and nothing kept, while no
//! page asks: curves are differences that the page takes itself.

mod alarms;
mod state;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;
use std::sync::Arc;

use crate::shared::Shared;

/// Where the page is.
pub(crate) const PATH: &str = "/console";

/// Where its state is.
pub(crate) const STATE: &str = "/console/state";

/// Name below `PATH`, type and content of each file of the page.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("console/page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("console/page/style.css")),
    ("/main.js", JS, include_str!("console/page/main.js")),
    ("/source.js", JS, include_str!("console/page/source.js")),
    ("/text.js", JS, include_str!("console/page/text.js")),
    ("/curves.js", JS, include_str!("console/page/curves.js")),
    ("/fleet.js", JS, include_str!("console/page/fleet.js")),
    ("/sessions.js", JS, include_str!("console/page/sessions.js")),
    ("/decisions.js", JS, include_str!("console/page/decisions.js")),
];

const JS: &str = "text/javascript; charset=utf-8";

/// The page may load its own files and ask its own server; it runs in no frame, and sends no form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Longest part of a session's name that is looked for, bytes.
const SEARCH_BYTES: usize = 256;

/// What a page asks for.
#[derive(Deserialize)]
struct Asked {
    /// Part of the names of sessions; all without one.
    #[serde(default)]
    session: String,
}

/// Whether a path is a file of the page, which tells nothing about what is served.
pub(crate) fn is_page(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|name| FILES.iter().any(|(file, ..)| *file == name))
}

/// The page, its files and its state.
pub(crate) fn routes() -> axum::Router<Arc<Shared>> {
    let mut routes = axum::Router::new();
    for (name, kind, content) in FILES {
        routes = routes.route(&format!("{PATH}{name}"), get(async || file(kind, content)));
    }
    routes.route(
        STATE,
        get(async |State(app): State<Arc<Shared>>, Query(mut asked): Query<Asked>| {
            let fits = |end: &usize| asked.session.is_char_boundary(*end);
            let end = (0..=SEARCH_BYTES.min(asked.session.len())).rev().find(fits).unwrap_or(0);
            asked.session.truncate(end);
            state::answer(&app, &asked.session)
        }),
    )
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let mut response = Response::new(Body::from(Bytes::from_static(content.as_bytes())));
    let fixed: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        // Small files of a server near by; another version of it may be next.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
