//! Paths to handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::middleware::{from_fn_with_state, map_response, map_response_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use roost_openai::{ApiError, ErrorShape};

use crate::accept::Routes;
use crate::api::Api;
use crate::config::Paths;
use crate::shared::Shared;
use crate::{completions, console, door, explain, openapi, reply, status, tokens};

/// Largest body of an administrative request.
const ADMIN_BODY_LIMIT: usize = 64 << 10;

/// What OpenAI's and Dynamo's servers have and this one has not, by the beginning of the path.
const ABSENT: &[(&str, &str)] = &[
    ("/v1/embeddings", "Embeddings are not served here"),
    ("/v1/classify", "Classification is not served here"),
    ("/v1/rerank", "Reranking is not served here"),
    ("/v1/score", "Scoring is not served here"),
    ("/v1/pooling", "Pooling is not served here"),
    ("/v1/moderations", "Moderation is not served here"),
    ("/v1/images", "Images are not served here"),
    ("/v1/videos", "Videos are not served here"),
    ("/v1/audio", "Audio is not served here"),
    ("/v1/realtime", "Realtime sessions are not served here"),
    ("/v1/files", "Files are not kept here"),
    ("/v1/uploads", "Files are not kept here"),
    ("/v1/batches", "Batches are not run here"),
    ("/v1/fine_tuning", "Fine-tuning is not done here"),
    ("/v1/assistants", "Assistants are not kept here"),
    ("/v1/threads", "Threads are not kept here"),
    ("/v1/vector_stores", "Vector stores are not kept here"),
    ("/v1/conversations", "Conversations are not kept here; send the whole conversation with each request"),
];

type App = State<Arc<Shared>>;

/// All routes, and those of connections beyond the limit.
pub(crate) fn build(shared: &Arc<Shared>) -> Routes {
    let surplus = probes(&shared.config.http.paths)
        .fallback(too_many_connections)
        .layer(map_response(close))
        .with_state(Arc::clone(shared));
    Routes { all: all(Arc::clone(shared)), surplus }
}

fn all(shared: Arc<Shared>) -> Router {
    let http = &shared.config.http;
    let admin = if http.admin_api { admin() } else { Router::new() };
    let paths = &http.paths;
    let messages = if http.messages_api { messages(&paths.messages) } else { Router::new() };
    let mut routes = Router::new()
        .route(&paths.chat, generate(Api::Chat))
        .route(&paths.completions, generate(Api::Completion))
        .route(&paths.responses, generate(Api::Responses))
        .route(&below(&paths.responses, "input_tokens"), count(Api::Responses))
        .merge(messages)
        .route(&paths.models, get(async |State(app): App, headers: HeaderMap| status::models(&app, &headers)))
        .route(
            &below(&paths.models, "{*id}"),
            get(async |State(app): App, Path(id): Path<String>, headers: HeaderMap| {
                status::model(&app, &id, &headers)
            }),
        )
        .route("/tokenize", post(|State(app): App, r: Request| tokens::tokenize(app, r)))
        .route("/v1/tokenize", post(|State(app): App, r: Request| tokens::tokenize(app, r)))
        .route("/detokenize", post(|State(app): App, r: Request| tokens::detokenize(app, r)))
        .route("/v1/detokenize", post(|State(app): App, r: Request| tokens::detokenize(app, r)))
        .route("/workers", get(async |State(app): App| status::workers(&app)))
        .route("/openapi.json", get(async |State(app): App| openapi::document(&app.config.http)))
        .merge(probes(paths))
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
fn probes(paths: &Paths) -> Router<Arc<Shared>> {
    Router::new()
        .route(&paths.health, get(async |State(app): App| status::health(&app)))
        .route(&paths.live, get(async || status::live()))
        .route("/ready", get(async |State(app): App| status::readiness(&app)))
        .route(&paths.metrics, get(async |State(app): App| status::metrics(&app)))
}

fn generate(api: Api) -> MethodRouter<Arc<Shared>> {
    post(move |State(app): App, r: Request| completions::serve(app, api, r))
}

fn count(api: Api) -> MethodRouter<Arc<Shared>> {
    post(move |State(app): App, r: Request| tokens::count(app, api, r))
}

/// The Messages API; what else is asked for below its path is refused in its own envelope.
fn messages(path: &str) -> Router<Arc<Shared>> {
    Router::new()
        .route(path, generate(Api::Messages))
        .route(&below(path, "count_tokens"), count(Api::Messages))
        .route(
            &below(path, "{*rest}"),
            axum::routing::any(async |method: Method, uri: Uri| {
                reply::error(&no_route(&method, &uri), ErrorShape::Anthropic)
            }),
        )
}

/// A route below another.
fn below(path: &str, rest: &str) -> String {
    format!("{}/{rest}", path.trim_end_matches('/'))
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
        .merge(console::routes())
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
    reply::error(&error, shape_at(&app, &uri))
}

async fn not_found(State(app): App, method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let at =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let responses = &app.config.http.paths.responses;
    let error = if at(responses) {
        let text = "Responses are not stored here: none can be fetched, cancelled or deleted";
        ApiError::new(404, format!("{text} ({method} {})", shown(&uri)))
    } else if let Some((_, text)) = ABSENT.iter().find(|(prefix, _)| at(prefix)) {
        ApiError::new(404, format!("{text} ({method} {})", shown(&uri)))
    } else {
        no_route(&method, &uri)
    };
    reply::error(&error, shape_at(&app, &uri))
}

fn no_route(method: &Method, uri: &Uri) -> ApiError {
    ApiError::new(404, format!("Route not found: {method} {}", shown(uri)))
}

fn shape_at(app: &Shared, uri: &Uri) -> ErrorShape {
    let http = &app.config.http;
    let is_messages = uri.path().starts_with(http.paths.messages.as_str()) && http.messages_api;
    if is_messages { ErrorShape::Anthropic } else { http.error_shape }
}

/// The path, as long as a message may be.
fn shown(uri: &Uri) -> String {
    uri.path().chars().take(256).collect()
}
