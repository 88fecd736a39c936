//! The routes that generate: the phases in order.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use roost_openai::{ApiError, Finish, NvExt};

use crate::admit;
use crate::api::Api;
use crate::body;
use crate::dispatch::{self, Answers, Dispatching};
use crate::failure::Failure;
use crate::finish::Early;
use crate::prepare::pool::PoolError;
use crate::prepare::{self, Refused, Unprepared, Wanted};
use crate::reply;
use crate::respond::aggregate;
use crate::respond::stream::AnswerBody;
use crate::respond::whole::Envelope;
use crate::session::{Session, metadata};
use crate::shared::Shared;

/// Serves one request. Dropping the future, or the body it returns, withdraws the request everywhere.
pub(crate) async fn serve(shared: Arc<Shared>, api: Api, request: Request) -> Response {
    let received = Instant::now();
    let (parts, body) = request.into_parts();
    let mut session = Session::of(&parts.headers);
    if let Some(spans) = &shared.spans {
        session.traced(spans, &parts.headers);
    }
    let echo = session.echo();
    let mut response = match run(&shared, api, &parts.headers, session, body, received).await {
        Ok(response) => response,
        Err(error) => reply::error(&error, api.error_shape(shared.config.http.error_shape)),
    };
    // Of harmless characters only.
    if let Ok(echo) = HeaderValue::from_str(&echo) {
        response.headers_mut().insert("x-request-id", echo);
    }
    response
}

async fn run(
    shared: &Arc<Shared>,
    api: Api,
    headers: &HeaderMap,
    mut session: Session,
    body: Body,
    received: Instant,
) -> Result<Response, ApiError> {
    let books = Early::of(shared, api, &session, received);
    let early = |error: ApiError| books.refused(error);
    let overload = shared.config.http.overload_status;
    if shared.is_draining() {
        return Err(early(ApiError::new(503, "Service is shutting down.")));
    }
    body::accepts(headers).map_err(early)?;
    session.metadata = metadata::of(headers, &shared.config.http.metadata_prefix).map_err(early)?;
    let full = || ApiError::new(503, "Too many requests are in progress. Please retry after a short wait.");
    // A body that would be refused is not read; while one is read it takes no place from those that are whole.
    if shared.admission.is_full() {
        return Err(early(full()));
    }
    if let Some(error) = refused_by_workers(shared, &session) {
        // Taken off the line, or the client may find its connection reset instead of the answer.
        shared.bodies.discard(body, shared.config.http.body_limit).await;
        return Err(early(error));
    }
    let body = shared.bodies.read(body, shared.config.http.body_limit).await.map_err(early)?;
    let permit = shared.admission.admit().ok_or_else(|| early(full()))?;
    let (prepared, wanted) = match prepare(shared, api, body, session, received).await {
        Ok(Ok(prepared)) => prepared,
        Ok(Err(refused)) if refused.counted => return Err(refused.error),
        Ok(Err(refused)) => return Err(early(refused.error)),
        Err(PoolError::Full) => {
            return Err(early(ApiError::new(overload, prepare::POOL_FULL).with_code("prepare_queue_full")));
        }
        Err(PoolError::Lost) => return Err(early(ApiError::new(500, prepare::POOL_LOST))),
    };
    let prompts = prepared.into_iter().map(Arc::new).collect();
    let dispatching = dispatch::start_all(Arc::clone(shared), prompts);
    let response = if wanted.stream {
        streamed(shared, wanted, dispatching).await
    } else {
        unary(shared, wanted, dispatching).await
    };
    response.map(|response| response.map(|body| Body::new(reply::Held::new(body, permit))))
}

/// Why the workers of the only model would refuse a request before anything but its head was looked at.
fn refused_by_workers(shared: &Shared, session: &Session) -> Option<ApiError> {
    let only = shared.models.only()?;
    let model = only.choose(session, || fastrand::u64(..));
    // Where its session is bound says nothing yet: the body may name another worker.
    let failure = admit::refuse(model, None, session.pins(&NvExt::default()))?;
    Some(failure.to_api(shared.config.http.overload_status))
}

/// In place when the body is small, else on the prepare threads. A request whose model is not ready yet waits for it
/// here, on no thread.
async fn prepare(
    shared: &Arc<Shared>,
    api: Api,
    body: bytes::Bytes,
    session: Session,
    received: Instant,
) -> Result<Result<prepare::Ready, Refused>, PoolError> {
    let in_place = body.len() <= shared.config.prepare.inline_bytes;
    let first = move |shared: &Shared| prepare::prepare(shared, api, body, session, received);
    let mut outcome = compute(shared, in_place, first).await?;
    let mut place = None;
    loop {
        let reading = match outcome {
            Ok(prepared) => return Ok(Ok(prepared)),
            Err(Unprepared::Refused(refused)) => return Ok(Err(refused)),
            Err(Unprepared::Waits(reading)) => reading,
        };
        if let Err(error) = shared.hold.until_ready(shared, reading.model(), &mut place).await {
            return Ok(Err(Refused::early(error)));
        }
        outcome = compute(shared, in_place, move |shared| prepare::resume(shared, *reading)).await?;
    }
}

async fn compute<T: Send + 'static>(
    shared: &Arc<Shared>,
    in_place: bool,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
) -> Result<T, PoolError> {
    if in_place {
        return Ok(work(shared));
    }
    let job = Arc::clone(shared);
    shared.pool.run(move || work(&job)).await
}

/// Waits for the first item so that a failure before it has a status of its own; after a while without one the
/// head goes out and comments keep the connection alive.
async fn streamed(
    shared: &Shared,
    wanted: Wanted,
    mut dispatching: Dispatching,
) -> Result<Response, ApiError> {
    let Wanted { id, request_id, model, form, mut stream_options, choices, mut finisher, .. } = wanted;
    let http = &shared.config.http;
    stream_options.include_usage |= http.force_usage;
    let keep_alive = http.keep_alive;
    let mut writer = form.events(&id, &model.name, stream_options, http.reasoning_field);
    writer.set_request_id(request_id);
    let first: Option<Result<Answers, Failure>> = match keep_alive {
        Some(limit) => tokio::time::timeout(limit, &mut dispatching).await.ok(),
        None => Some((&mut dispatching).await),
    };
    let body = match first {
        Some(Err(failure)) => return Err(finisher.fail(&failure)),
        Some(Ok(answers)) => AnswerBody::started(answers, choices, writer, finisher, keep_alive),
        None => AnswerBody::waiting(dispatching, choices, writer, finisher, keep_alive),
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

async fn unary(shared: &Shared, wanted: Wanted, dispatching: Dispatching) -> Result<Response, ApiError> {
    let Wanted { id, model, form, mut choices, mut finisher, .. } = wanted;
    let created = reply::unix_now();
    let answer_id = form.answer_id(&id);
    let mut answer = form.whole(&id, choices.len());
    if finisher.extras().wants_ids() {
        choices.keep_ids();
    }
    if finisher.extras().wants_engine_data() {
        choices.keep_engine_data();
    }
    let result = match dispatching.await {
        Ok(answers) => aggregate::collect(answers, &mut choices, &mut finisher, &mut answer).await,
        Err(failure) => Err(failure),
    };
    if let Err(failure) = result {
        return Err(finisher.fail(&failure));
    }
    finisher.succeed(&choices);
    let finish = choices.finish().unwrap_or(Finish::Stop);
    let ids = choices.take_ids();
    let nvext = finisher.last_nvext(&ids, finish, choices.stop_string(), choices.engine_data());
    let body = answer.write(&Envelope {
        id: &answer_id,
        model: &model.name,
        created,
        reasoning_field: shared.config.http.reasoning_field,
        usage: choices.usage(),
        nvext: nvext.as_deref(),
    });
    Ok(reply::json(StatusCode::OK, body))
}
