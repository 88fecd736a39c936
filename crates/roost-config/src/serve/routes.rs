//! Routes that can be renamed.

use crate::{problem::Problem, resolve::Resolved, value::Value, values::Values};

/// Names of those routes in the options `http-svc-…-path`.
const ROUTES: [&str; 8] = ["chat", "cmp", "responses", "anthropic", "models", "health", "live", "metrics"];
/// Routes that stay where they are.
const FIXED: [&str; 9] = [
    "/tokenize",
    "/v1/tokenize",
    "/detokenize",
    "/v1/detokenize",
    "/ready",
    "/openapi.json",
    "/busy_threshold",
    "/debug/routing",
    "/console",
];

/// Where routes are found, each an absolute path; no two are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathOptions {
    /// Chat completions.
    pub chat: String,
    /// Text completions.
    pub completions: String,
    /// The Responses API.
    pub responses: String,
    /// The Messages API.
    pub messages: String,
    /// Models and their readiness.
    pub models: String,
    /// Health.
    pub health: String,
    /// Liveness.
    pub live: String,
    /// Metrics.
    pub metrics: String,
}

impl PathOptions {
    pub(super) fn of(values: &Values) -> Self {
        let path = |route: &str| {
            values.required_text(&format!("http-svc-{route}-path")).trim_end_matches('/').to_owned()
        };
        PathOptions {
            chat: path("chat"),
            completions: path("cmp"),
            responses: path("responses"),
            messages: path("anthropic"),
            models: path("models"),
            health: path("health"),
            live: path("live"),
            metrics: path("metrics"),
        }
    }
}

/// Routes that can be renamed must be paths, and none may take the place of another.
pub(super) fn check(resolved: &mut Resolved) {
    let mut seen: Vec<String> = FIXED.map(str::to_owned).into();
    for route in ROUTES {
        let name = format!("http-svc-{route}-path");
        let Some(Value::Text(path)) = resolved.value(&name) else { continue };
        let path = path.trim_end_matches('/').to_owned();
        let why = if !path.starts_with('/') || path.contains(['{', '}', '*', '?', '#', ' ']) {
            Some("is not a path")
        } else if seen.contains(&path) {
            Some("is the path of another route")
        } else {
            None
        };
        if let Some(why) = why {
            resolved.problems.push(Problem::new(format!("--{name}"), format!("`{path}` {why}")));
        }
        seen.push(path);
    }
}
