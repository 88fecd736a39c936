//! Paths to handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::middleware::map_response_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use roost_openai::{ApiError, Flavor};

use crate::shared::Shared;
use crate::{completions, explain, reply, status};

/// Largest body of an administrative request.
const ADMIN_BODY_LIMIT: usize = 64 << 10;

type App = State<Arc<Shared>>;

/// All routes of the public listener.
pub(crate) fn build(shared: Arc<Shared>) -> Router {
    let admin = if shared.config.http.admin_api { admin() } else { Router::new() };
    Router::new()
        .route(
            "/v1/chat/completions",
            post(|State(app): App, r: Request| completions::serve(app, Flavor::Chat, r)),
        )
        .route(
            "/v1/completions",
            post(|State(app): App, r: Request| completions::serve(app, Flavor::Completion, r)),
        )
        .route("/v1/models", get(async |State(app): App, headers: HeaderMap| status::models(&app, &headers)))
        .route(
            "/v1/models/{*id}",
            get(async |State(app): App, Path(id): Path<String>| status::model(&app, &id)),
        )
        .route("/health", get(async |State(app): App| status::health(&app)))
        .route("/live", get(async || status::live()))
        .route("/metrics", get(async |State(app): App| status::metrics(&app)))
        .merge(admin)
        .fallback(not_found)
        .layer(map_response_with_state(Arc::clone(&shared), close_when_leaving))
        .with_state(shared)
}

/// What an operator may look at and change.
fn admin() -> Router<Arc<Shared>> {
    Router::new()
        .route("/busy_threshold", get(async |State(app): App| status::thresholds(&app)).post(set_thresholds))
        .route("/debug/routing", get(async |State(app): App| explain::recent(&app)))
        .route(
            "/debug/routing/{*name}",
            get(async |State(app): App, Path(name): Path<String>| explain::about(&app, &name)),
        )
}

async fn set_thresholds(State(app): App, request: Request) -> Response {
    match crate::body::read(request.into_body(), ADMIN_BODY_LIMIT, app.config.http.body_stall).await {
        Ok(body) => status::set_thresholds(&app, &body),
        Err(error) => reply::error(&error, app.config.http.error_shape),
    }
}

/// Ends kept-alive connections of a frontend that goes down with their next answer, so that no request is sent into a
/// connection that closes. HTTP/2 has no such header, and hyper leaves it out there.
async fn close_when_leaving(State(app): App, mut response: Response) -> Response {
    if app.is_leaving() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn not_found(State(app): App, method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(256).collect();
    let error = ApiError::new(404, format!("Route not found: {method} {path}"));
    reply::error(&error, app.config.http.error_shape)
}
