//! What operators and launchers ask: models, health, liveness, metrics, thresholds.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::response::Response;
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use roost_cluster::Role;
use roost_kv::WorkerId;
use roost_openai::{ApiError, ModelEntry, write_model, write_model_list};
use roost_telemetry::{Registry, spans::Spans};
use serde_json::{Value, json};

use crate::metrics::{PoolSample, Sample, WorkerType};
use crate::models::{Instance, Lookup, Model, Waiting};
use crate::reply;
use crate::shared::Shared;
use crate::trace::RequestTrace;

/// `GET /v1/models`.
pub(crate) fn models(shared: &Shared, headers: &HeaderMap) -> Response {
    if shared.is_draining() {
        return reply::error(
            &ApiError::new(503, "Service is shutting down."),
            shared.config.http.error_shape,
        );
    }
    let registry = shared.models.snapshot();
    let mut ready: Vec<(&str, &Arc<Model>)> =
        registry.ready.iter().map(|(name, versions)| (&**name, versions.oldest())).collect();
    ready.sort_unstable_by_key(|(name, _)| *name);
    if headers.contains_key("anthropic-version") {
        return value(StatusCode::OK, &anthropic_list(shared, &ready));
    }
    let mut out = BytesMut::new();
    write_model_list(&mut out, ready.iter().map(|(name, model)| entry(shared, name, model)));
    reply::json(StatusCode::OK, out)
}

/// `GET /v1/models/{id}` and `GET /v1/models/{id}/ready`; ids may contain slashes.
pub(crate) fn model(shared: &Shared, path: &str, headers: &HeaderMap) -> Response {
    if let Some(id) = path.strip_suffix("/ready")
        && !matches!(shared.models.lookup(id), Lookup::Unknown)
    {
        return ready(shared, id);
    }
    match shared.models.lookup(path) {
        Lookup::Ready(versions) if headers.contains_key("anthropic-version") => {
            value(StatusCode::OK, &anthropic_model(shared, path, versions.oldest()))
        }
        Lookup::Ready(versions) => {
            let mut out = BytesMut::new();
            write_model(&mut out, &entry(shared, path, versions.oldest()));
            reply::json(StatusCode::OK, out)
        }
        Lookup::Waiting(_) | Lookup::Unknown => {
            reply::error(&ApiError::model_not_found(path), shared.config.http.error_shape)
        }
    }
}

fn ready(shared: &Shared, id: &str) -> Response {
    match shared.models.lookup(id) {
        Lookup::Ready(versions) => {
            let mut namespaces = serde_json::Map::new();
            let mut workers: HashMap<WorkerId, Arc<Instance>> = HashMap::new();
            for model in versions.iter() {
                let prefill = model.prefill.load_full();
                for pool in std::iter::once(&model.pool).chain(&prefill) {
                    // Versions share their prefill workers.
                    workers.extend(pool.engines().instances().map(|i| (i.info.worker, Arc::clone(i))));
                }
            }
            for worker in workers.values() {
                let worker = &worker.info;
                let role = worker.role.as_str();
                let space = namespaces.entry(worker.endpoint.namespace.clone()).or_insert_with(
                    || json!({"ready": true, "worker_types": {}, "present": [], "missing_worker_types": []}),
                );
                let types = &mut space["worker_types"];
                let count = types[role]["workers"].as_u64().unwrap_or(0) + 1;
                types[role] = json!({"workers": count, "needs": worker.card.needs});
                let present: Vec<Value> =
                    types.as_object().into_iter().flatten().map(|(name, _)| name.as_str().into()).collect();
                space["present"] = present.into();
            }
            value(StatusCode::OK, &json!({"model": id, "ready": true, "namespaces": namespaces}))
        }
        Lookup::Waiting(Waiting { reason, .. }) => {
            value(StatusCode::SERVICE_UNAVAILABLE, &json!({"model": id, "ready": false, "reason": reason}))
        }
        Lookup::Unknown => reply::error(&ApiError::model_not_found(id), shared.config.http.error_shape),
    }
}

/// `GET /workers`: the workers by their part, as launchers of SGLang's own routers count them.
pub(crate) fn workers(shared: &Shared) -> Response {
    let workers = shared.cluster.workers();
    let count = |role: Role| workers.iter().filter(|worker| worker.role == role).count();
    let list: Vec<Value> = workers
        .iter()
        .map(|worker| {
            json!({
                "id": format!("{:x}", worker.worker.0),
                "url": worker.target.address.to_string(),
                "model_id": worker.card.display_name,
                "worker_type": match worker.role {
                    Role::Aggregated => "regular",
                    other => other.as_str(),
                },
                "dp_size": worker.ranks.len(),
                "is_healthy": true,
            })
        })
        .collect();
    value(
        StatusCode::OK,
        &json!({
            "workers": list,
            "total": workers.len(),
            "stats": {
                "prefill_count": count(Role::Prefill),
                "decode_count": count(Role::Decode),
                "regular_count": count(Role::Aggregated),
            },
        }),
    )
}

/// `GET /health`: not ready until a model could be served, and while draining.
pub(crate) fn health(shared: &Shared) -> Response {
    let instances: Vec<Value> = shared
        .cluster
        .instances()
        .iter()
        .map(|record| {
            let mut json: Value = serde_json::from_slice(&record.encode()).unwrap_or_default();
            if let Some(map) = json.as_object_mut() {
                map.remove("type");
            }
            json
        })
        .collect();
    let mut endpoints: Vec<String> = instances
        .iter()
        .filter(|i| i["endpoint"] == "generate")
        .filter_map(|i| {
            Some(format!(
                "dyn://{}.{}.{}",
                i["namespace"].as_str()?,
                i["component"].as_str()?,
                i["endpoint"].as_str()?
            ))
        })
        .collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    let (status, word, stage) = if shared.is_leaving() {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready", Some("draining"))
    } else if shared.was_ready() {
        (StatusCode::OK, "healthy", None)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready", Some("starting"))
    };
    let mut body = json!({"status": word, "endpoints": endpoints, "instances": instances});
    if let Some(stage) = stage {
        body["stage"] = stage.into();
        body["message"] = "Service is not ready".into();
    }
    value(status, &body)
}

/// `GET /ready`: whether requests for at least one model can be served now.
pub(crate) fn readiness(shared: &Shared) -> Response {
    let registry = shared.models.snapshot();
    let mut models: Vec<&str> = registry.ready.keys().map(|name| &**name).collect();
    models.sort_unstable();
    let is_ready = !models.is_empty() && !shared.is_leaving();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    value(status, &json!({"ready": is_ready, "models": models}))
}

/// `GET /live`: the process answers, also while it drains.
pub(crate) fn live() -> Response {
    value(StatusCode::OK, &json!({"status": "live", "message": "Service is live"}))
}

/// `GET /metrics`.
pub(crate) fn metrics(shared: &Shared) -> Response {
    let pools = shared.models.snapshot();
    let pools = pools.pools.iter().map(|(name, version, pool)| PoolSample {
        model: name,
        version,
        target: [&pool.endpoint.namespace, &pool.endpoint.component, &pool.endpoint.name],
        without_events: pool.without_events(),
        worker_type: WorkerType::of(pool.role),
        router: pool.router.snapshot(),
        index: pool.index.stats(),
    });
    shared.metrics.sample(&Sample {
        pools: pools.collect(),
        client: shared.client.stats(),
        listener: shared.client.listener_stats(),
        cluster: shared.cluster.stats(),
        announced: shared.replicas.as_ref().map(|replicas| replicas.announcer.stats()).unwrap_or_default(),
        prepare_waiting: shared.pool.waiting(),
        held: shared.hold.waiting(),
        segments: shared.memory.segments().stats(),
        session_bytes: shared.memory.bytes(),
        spans: shared.spans.as_ref().map(Spans::stats).unwrap_or_default(),
        trace: shared.trace.as_ref().map(RequestTrace::stats).unwrap_or_default(),
    });
    let mut response = Response::new(axum::body::Body::from(shared.registry.encode()));
    let exposition = HeaderValue::from_static(Registry::CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, exposition);
    response
}

/// `GET /busy_threshold`.
pub(crate) fn thresholds(shared: &Shared) -> Response {
    let registry = shared.models.snapshot();
    let mut list: Vec<Value> =
        registry.ready.iter().map(|(name, versions)| threshold_of(name, versions.oldest())).collect();
    list.sort_unstable_by(|a, b| a["model"].as_str().cmp(&b["model"].as_str()));
    value(StatusCode::OK, &json!({"thresholds": list}))
}

/// `POST /busy_threshold`: reads one model's thresholds, or sets those that are given.
pub(crate) fn set_thresholds(shared: &Shared, body: &Bytes) -> Response {
    match change_thresholds(shared, body) {
        Ok(body) => value(StatusCode::OK, &body),
        Err(error) => reply::error(&error, shared.config.http.error_shape),
    }
}

fn change_thresholds(shared: &Shared, body: &Bytes) -> Result<Value, ApiError> {
    #[derive(serde::Deserialize)]
    struct Change {
        model: String,
        active_decode_blocks_threshold: Option<f64>,
        active_prefill_tokens_threshold: Option<u64>,
        active_prefill_tokens_threshold_frac: Option<f64>,
    }
    let change: Change = serde_json::from_slice(body)
        .map_err(|e| ApiError::invalid("", format!("Failed to parse the request body: {e}")))?;
    let Lookup::Ready(versions) = shared.models.lookup(&change.model) else {
        return Err(ApiError::model_not_found(&change.model));
    };
    let mut thresholds = versions.oldest().pool.router.busy_thresholds();
    thresholds.active_decode_blocks =
        change.active_decode_blocks_threshold.or(thresholds.active_decode_blocks);
    thresholds.active_prefill_tokens =
        change.active_prefill_tokens_threshold.or(thresholds.active_prefill_tokens);
    thresholds.active_prefill_tokens_frac =
        change.active_prefill_tokens_threshold_frac.or(thresholds.active_prefill_tokens_frac);
    for model in versions.iter() {
        let changed = model.pool.router.set_busy_thresholds(thresholds);
        changed.map_err(|e| ApiError::invalid("", e.to_string()))?;
    }
    Ok(threshold_of(&change.model, versions.oldest()))
}

fn threshold_of(name: &str, model: &Model) -> Value {
    let thresholds = model.pool.router.busy_thresholds();
    json!({
        "model": name,
        "active_decode_blocks_threshold": thresholds.active_decode_blocks,
        "active_prefill_tokens_threshold": thresholds.active_prefill_tokens,
        "active_prefill_tokens_threshold_frac": thresholds.active_prefill_tokens_frac,
    })
}

fn entry<'a>(shared: &Shared, name: &'a str, model: &Model) -> ModelEntry<'a> {
    let advertised = shared.config.http.advertised;
    ModelEntry {
        id: name,
        created: reply::unix_now(),
        context_window: advertised.window_of(model.context_length),
        max_output_tokens: advertised.max_output_tokens,
    }
}

fn anthropic_list(shared: &Shared, ready: &[(&str, &Arc<Model>)]) -> Value {
    let data: Vec<Value> = ready.iter().map(|(name, model)| anthropic_model(shared, name, model)).collect();
    let ends =
        [data.first(), data.last()].map(|entry| entry.map_or(Value::Null, |entry| entry["id"].clone()));
    let [first, last] = ends;
    json!({"data": data, "has_more": false, "first_id": first, "last_id": last})
}

fn anthropic_model(shared: &Shared, name: &str, model: &Model) -> Value {
    let mut entry = json!({
        "id": name, "display_name": name, "type": "model", "created_at": rfc3339(reply::unix_now()),
    });
    let advertised = shared.config.http.advertised;
    if let Some(window) = advertised.window_of(model.context_length) {
        entry["max_input_tokens"] = window.into();
    }
    if let Some(limit) = advertised.max_output_tokens {
        entry["max_tokens"] = limit.into();
    }
    entry
}

/// Unix seconds as `YYYY-MM-DDTHH:MM:SSZ`.
fn rfc3339(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

fn value(status: StatusCode, body: &Value) -> Response {
    reply::json(status, BytesMut::from(body.to_string().as_bytes()))
}
