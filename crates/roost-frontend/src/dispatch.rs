//! A prepared request to a worker that answers. Retries before the first token live here and only here.

mod retries;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_core::Stream;
use roost_kv::{WorkerId, WorkerRank};
use roost_router::{AffinityOutcome, End, Lease, Placement, Request as RouteRequest};
use roost_wire::message::{EngineOutput, TokenIdFormat};
use roost_wire::{Call, ResponseStream};

use self::retries::Retries;
use crate::failure::Failure;
use crate::metrics::Stage;
use crate::prepare::Prepared;
use crate::shared::Shared;

/// A dispatch under way; dropping it withdraws the request from wherever it is.
pub(crate) type Dispatching = Pin<Box<dyn Future<Output = Result<Active, Failure>> + Send>>;

/// A worker that answers: its stream, its first item and the booking.
#[derive(Debug)]
pub(crate) struct Active {
    stream: ResponseStream,
    first: Option<EngineOutput>,
    lease: Lease,
    /// Where it runs.
    pub(crate) rank: WorkerRank,
    /// Prompt tokens that the router expected in the worker's cache.
    pub(crate) expected_cached_tokens: u32,
    /// How the session took part.
    pub(crate) affinity: AffinityOutcome,
    /// Workers tried, this one included.
    pub(crate) attempts: usize,
}

/// Places and calls until a worker gives its first item.
pub(crate) fn start(shared: Arc<Shared>, prepared: Arc<Prepared>) -> Dispatching {
    Box::pin(async move { run(&shared, &prepared).await })
}

async fn run(shared: &Shared, prepared: &Prepared) -> Result<Active, Failure> {
    let mut retries = Retries::new(&prepared.model.metrics);
    let result = attempts(shared, prepared, &mut retries).await;
    retries.ended(Instant::now(), result.is_ok());
    result
}

async fn attempts(
    shared: &Shared,
    prepared: &Prepared,
    retries: &mut Retries<'_>,
) -> Result<Active, Failure> {
    let pool = &prepared.model.pool;
    let mut routing = Some(shared.metrics.stage(Stage::Route));
    let overlap = pool.overlap(&prepared.blocks.sequence);
    let mut tried: Vec<WorkerId> = Vec::new();
    let mut last = None;
    while tried.len() < shared.config.route.attempts {
        let request = RouteRequest {
            id: Some(&prepared.id),
            session: prepared.session.id.as_deref(),
            parent: prepared.session.parent.as_deref(),
            pin: prepared.pin,
            exclude: &tried,
            expected_output_tokens: prepared.expected_output_tokens,
            ..RouteRequest::new(
                prepared.isl(),
                prepared.blocks.block_size,
                &prepared.blocks.sequence,
                &overlap,
            )
        };
        let placed = pool.router.place(&request);
        drop(routing.take());
        let (placement, lease) = match placed {
            Ok(placed) => placed,
            // With every worker tried, what the last one did says more than that none is left.
            Err(rejection) => return Err(last.unwrap_or_else(|| Failure::rejected(&rejection))),
        };
        let worker = placement.rank.worker;
        tried.push(worker);
        retries.placed();
        match attempt(shared, prepared, placement, lease, tried.len()).await {
            Ok(active) => return Ok(active),
            Err(failure) => {
                tracing::warn!(
                    request_id = %prepared.id,
                    worker = format_args!("{:x}", worker.0),
                    %failure,
                    retryable = failure.retryable,
                    "attempt failed"
                );
                if !failure.retryable || prepared.pin.worker.is_some() {
                    return Err(failure);
                }
                retries.failed(Instant::now());
                routing = Some(shared.metrics.stage(Stage::Route));
                last = Some(failure);
            }
        }
    }
    Err(last.unwrap_or_else(Failure::gone))
}

async fn attempt(
    shared: &Shared,
    prepared: &Prepared,
    placement: Placement,
    lease: Lease,
    attempts: usize,
) -> Result<Active, Failure> {
    let pool = &prepared.model.pool;
    let info = pool.worker(placement.rank.worker).ok_or_else(Failure::gone)?;
    let format =
        if shared.config.route.token_ids_as_bytes { TokenIdFormat::Bytes } else { TokenIdFormat::Array };
    let codec = crate::plane::codec(info.target.codec);
    let body = prepared
        .engine_request(placement.rank.dp_rank)
        .encode(codec, format)
        .map_err(|e| Failure::encode(&e))?;
    let target = crate::plane::target(&info.target);
    let started = match shared.client.call(&target, Call::new(&prepared.id, body)).await {
        Ok(mut stream) => first_item(&mut stream).await.map(|first| (stream, first)),
        Err(error) => Err(Failure::call(&error)),
    };
    let (stream, first) = match started {
        Ok(started) => started,
        Err(failure) => {
            close(lease, &failure);
            return Err(failure);
        }
    };
    // Only now is the session's place certain: a turn that never began leaves no trace.
    lease.committed();
    if !pool.has_events(&info) {
        pool.approximate.record(Instant::now(), placement.rank, &prepared.blocks.sequence);
    }
    Ok(Active {
        stream,
        first: Some(first),
        lease,
        rank: placement.rank,
        expected_cached_tokens: placement.cached_tokens,
        affinity: placement.affinity,
        attempts,
    })
}

/// The first item that says something: tokens or an end.
async fn first_item(stream: &mut ResponseStream) -> Result<EngineOutput, Failure> {
    loop {
        match stream.next().await {
            Some(Ok(item)) => match item.data {
                Some(output) if !output.token_ids.is_empty() || output.finish_reason.is_some() => {
                    return Ok(output);
                }
                // An empty item, or one with an event of its own: the answer has not begun.
                _ => {}
            },
            Some(Err(error)) => return Err(Failure::stream(&error)),
            None => return Err(Failure::no_finish()),
        }
    }
}

impl Active {
    /// The item that began the answer; once.
    pub(crate) fn take_first(&mut self) -> Option<EngineOutput> {
        self.first.take()
    }

    /// The next item.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<EngineOutput, Failure>>> {
        loop {
            return match std::task::ready!(Pin::new(&mut self.stream).poll_next(cx)) {
                None => Poll::Ready(None),
                Some(Err(error)) => Poll::Ready(Some(Err(Failure::stream(&error)))),
                Some(Ok(item)) => match item.data {
                    Some(output) => Poll::Ready(Some(Ok(output))),
                    // Nothing but an event or a comment.
                    None => continue,
                },
            };
        }
    }

    /// Tells the books about tokens.
    pub(crate) fn tokens(&mut self, first: bool, count: u32) {
        if first {
            self.lease.first_token();
        }
        self.lease.output_tokens(count);
    }

    /// The answer is whole.
    pub(crate) fn succeeded(self) {
        self.lease.finish(End::Ok);
    }

    /// The answer broke.
    pub(crate) fn failed(self, failure: &Failure) {
        close(self.lease, failure);
    }
}

/// Gives a booking back after a failure; a worker at fault is avoided for a while.
fn close(lease: Lease, failure: &Failure) {
    match failure.worker_failure() {
        Some(kind) => lease.worker_failed(kind),
        None => lease.finish(End::Failed),
    }
}
