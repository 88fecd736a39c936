//! Paths to handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::middleware::{from_fn_with_state, map_response, map_response_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use roost_openai::{ApiError, Flavor};

use crate::accept::Routes;
use crate::shared::Shared;
use crate::{completions, door, explain, reply, status};

/// Largest body of an administrative request.
const ADMIN_BODY_LIMIT: usize = 64 << 10;

type App = State<Arc<Shared>>;

/// All routes, and those of connections beyond the limit.
pub(crate) fn build(shared: &Arc<Shared>) -> Routes {
    let surplus =
        probes().fallback(too_many_connections).layer(map_response(close)).with_state(Arc::clone(shared));
    Routes { all: all(Arc::clone(shared)), surplus }
}

fn all(shared: Arc<Shared>) -> Router {
    let http = &shared.config.http;
    let admin = if http.admin_api { admin() } else { Router::new() };
    let mut routes = Router::new()
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
        .merge(probes())
        .merge(admin)
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method);
    if http.api_keys.is_some() || http.admin_keys.is_some() {
        routes = routes.layer(from_fn_with_state(Arc::clone(&shared), door::authorize));
    }
    if let Some(origins) = &http.cors {
        routes = routes.layer(door::cors(origins));
    }
    routes.layer(map_response_with_state(Arc::clone(&shared), close_when_leaving)).with_state(shared)
}

/// What orchestrators and scrapers ask, whatever else goes on.
fn probes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/health", get(async |State(app): App| status::health(&app)))
        .route("/live", get(async || status::live()))
        .route("/metrics", get(async |State(app): App| status::metrics(&app)))
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
    match app.bodies.read(request.into_body(), ADMIN_BODY_LIMIT).await {
        Ok(body) => status::set_thresholds(&app, &body),
        Err(error) => reply::error(&error, app.config.http.error_shape),
    }
}

/// Ends kept-alive connections of a frontend that goes down with their next answer, so that no request is sent into a
/// connection that closes. HTTP/2 has no such header, and hyper leaves it out there.
async fn close_when_leaving(State(app): App, response: Response) -> Response {
    if app.is_leaving() { close(response).await } else { response }
}

async fn close(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn too_many_connections(State(app): App) -> Response {
    let error = ApiError::new(503, "Too many connections are open. Please retry after a short wait.");
    reply::error(&error, app.config.http.error_shape)
}

async fn wrong_method(State(app): App, method: Method, uri: Uri) -> Response {
    let error = ApiError::new(405, format!("{method} is not a method of {}.", shown(&uri)));
    reply::error(&error, app.config.http.error_shape)
}

async fn not_found(State(app): App, method: Method, uri: Uri) -> Response {
    let error = ApiError::new(404, format!("Route not found: {method} {}", shown(&uri)));
    reply::error(&error, app.config.http.error_shape)
}

/// The path, as long as a message may be.
fn shown(uri: &Uri) -> String {
    uri.path().chars().take(256).collect()
}
