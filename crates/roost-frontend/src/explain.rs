//! `GET /debug/routing` and `GET /debug/routing/{request or session}`: why requests went where they went.

use std::time::Instant;

use axum::response::Response;
use http::StatusCode;
use roost_openai::ApiError;
use roost_router::Role;
use serde::Serialize;
use serde_json::json;

mod view;

pub(crate) use self::view::DecisionView;
use self::view::RankView;

use crate::reply;
use crate::shared::Shared;

/// Decisions in one answer.
const LIMIT: usize = 64;

/// The latest decisions of every pool.
pub(crate) fn recent(shared: &Shared) -> Response {
    #[derive(Serialize)]
    struct Answer {
        decisions: Vec<DecisionView>,
    }
    answer(&Answer { decisions: latest(shared, LIMIT) })
}

/// At most so many of the latest decisions of every pool, the latest first.
pub(crate) fn latest(shared: &Shared, limit: usize) -> Vec<DecisionView> {
    let registry = shared.models.snapshot();
    let mut decisions = Vec::new();
    for (model, _, pool) in &registry.pools {
        let role = pool.router.role();
        decisions.extend(
            pool.router.recent_decisions(limit).into_iter().map(|made| DecisionView::new(model, role, made)),
        );
    }
    decisions.sort_by_key(|view| std::cmp::Reverse(view.at()));
    decisions.truncate(limit);
    decisions
}

/// The decisions about a request (by the id of its answer, or the bare one) or a session, the latest first.
pub(crate) fn about(shared: &Shared, name: &str) -> Response {
    let bare = name.strip_prefix("chatcmpl-").or_else(|| name.strip_prefix("cmpl-")).unwrap_or(name);
    let registry = shared.models.snapshot();
    let now = Instant::now();
    let (mut decisions, mut bindings) = (Vec::new(), Vec::new());
    for (model, _, pool) in &registry.pools {
        let role = pool.router.role();
        let mut found = pool.router.decisions_about(name, LIMIT);
        if bare != name {
            found.extend(pool.router.decisions_about(bare, LIMIT));
        }
        decisions.extend(found.into_iter().map(|made| DecisionView::new(model, role, made)));
        if let Some(rank) = pool.router.bound(name) {
            bindings.push(json!({"model": **model, "role": role_name(role), "worker": RankView(rank)}));
        }
    }
    if decisions.is_empty() && bindings.is_empty() {
        let shown: String = name.chars().take(256).collect();
        let text = format!(
            "No routing decision is kept about a request or session `{shown}`. The latest {} decisions of each pool are.",
            shared.config.route.router.decisions
        );
        return reply::error(&ApiError::new(404, text), shared.config.http.error_shape);
    }
    decisions.sort_by_key(|view| now.saturating_duration_since(view.at()));
    decisions.truncate(LIMIT);
    answer(&json!({"id": name, "bound": bindings, "decisions": decisions}))
}

fn answer(body: &impl Serialize) -> Response {
    reply::serialized(StatusCode::OK, body)
}

/// A role in one word.
pub(crate) const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Aggregated => "aggregated",
        Role::Prefill => "prefill",
        Role::Decode => "decode",
    }
}
