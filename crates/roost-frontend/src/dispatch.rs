//! A prepared request to a worker that answers. Retries and moves to other workers live here and only here.

mod active;
mod answer;
mod answers;
mod leg;
mod local;
mod message;
mod prefill;
mod retries;
mod seat;
mod split;
mod whole;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use self::active::{Active, Running};
pub(crate) use self::answers::{Answers, Item, start_all};
pub(crate) use self::local::LOCAL_PREFILL;
use self::message::Progress;
use self::retries::Retries;
use self::seat::Tried;
use crate::failure::Failure;
use crate::metrics::{Migration, Stage, StageTimer};
use crate::prepare::Prepared;
use crate::shared::Shared;

/// A dispatch under way; dropping it withdraws the request from wherever it is.
pub(crate) type Dispatching = Pin<Box<dyn Future<Output = Result<Answers, Failure>> + Send>>;

/// The same for one prompt.
type Starting = Pin<Box<dyn Future<Output = Result<Active, Failure>> + Send>>;

/// Workers that one request may lose before its first token: whoever loses more of them is taken for the cause.
const LOSS_LIMIT: u32 = 2;

/// A failed attempt, and which pool's worker failed.
#[derive(Debug)]
struct Failed {
    failure: Failure,
    /// Nothing was tried: no place was found.
    unplaced: bool,
}

/// What the attempts of one request have in common.
struct Request<'a> {
    shared: &'a Shared,
    prepared: &'a Prepared,
    progress: &'a Progress,
}

/// Places and calls until a worker gives its first item.
fn start(shared: Arc<Shared>, prepared: Arc<Prepared>) -> Starting {
    Box::pin(async move {
        let mut tried = Tried::default();
        let progress = Progress::none(&prepared.engine);
        let request = Request { shared: &shared, prepared: &prepared, progress: &progress };
        let mut retries = Retries::new(&prepared.model.metrics, Migration::NewRequest);
        let running = request.run(&mut tried, &mut retries).await?;
        Ok(Active::new(shared, prepared, running, tried))
    })
}

impl Request<'_> {
    /// Tries workers until one gives its first item, none is left, or the request is beyond help.
    async fn run(&self, tried: &mut Tried, retries: &mut Retries<'_>) -> Result<Running, Failure> {
        let cut = self.shared.cut.cancelled();
        let result = tokio::select! {
            biased;
            result = self.attempts(tried, retries) => result,
            () = cut => Err(Failure::shutting_down()),
        };
        retries.ended(Instant::now(), result.is_ok());
        result
    }

    async fn attempts(&self, tried: &mut Tried, retries: &mut Retries<'_>) -> Result<Running, Failure> {
        let mut last: Option<Failure> = None;
        for _ in 0..self.shared.config.route.attempts {
            let failed = match self.attempt(tried, retries).await {
                Ok(running) => return Ok(running),
                Err(failed) => failed,
            };
            if failed.unplaced {
                // With every worker tried, what the last one did says more than that none is left.
                return Err(last.unwrap_or(failed.failure));
            }
            retries.failed(Instant::now());
            tracing::warn!(
                request_id = %self.prepared.session.name(), session = self.prepared.session.id.as_deref(),
                worker = tried.instances.last().map(|worker| tracing::field::display(format!("{:x}", worker.0))),
                failure = %failed.failure,
                retryable = failed.failure.retryable,
                "attempt failed"
            );
            if failed.failure.lost_worker && tried.losses >= LOSS_LIMIT {
                tracing::error!(
                    request_id = %self.prepared.session.name(), session = self.prepared.session.id.as_deref(),
                    workers = tried.losses,
                    "every worker that took this request was lost; it is not tried again"
                );
                return Err(failed.failure);
            }
            if !failed.failure.retryable || self.prepared.pin.worker.is_some() {
                return Err(failed.failure);
            }
            last = Some(failed.failure);
        }
        Err(last.unwrap_or_else(Failure::gone))
    }

    async fn attempt(&self, tried: &mut Tried, retries: &mut Retries<'_>) -> Result<Running, Failed> {
        match self.prepared.model.prefill.load_full() {
            Some(prefill) if self.prefills_locally(&prefill, tried) => {
                let failed = match self.whole(Some(LOCAL_PREFILL), tried, retries).await {
                    Ok(running) => {
                        self.prepared.model.metrics.local_prefills.inc();
                        return Ok(running);
                    }
                    Err(failed) => failed,
                };
                if !failed.failure.blames_request() {
                    return Err(failed);
                }
                // It may be the place that the worker refuses, not the request.
                tracing::warn!(request_id = %self.prepared.session.name(), session = self.prepared.session.id.as_deref(), failure = %failed.failure, "decode worker takes no prompts");
                tried.refused_local = true;
                self.split(&prefill, tried, retries).await
            }
            Some(prefill) => self.split(&prefill, tried, retries).await,
            None => self.whole(None, tried, retries).await,
        }
    }

    fn routing(&self) -> StageTimer {
        self.shared.metrics.stage(Stage::Route)
    }
}

impl Failed {
    fn unplaced(failure: Failure) -> Self {
        Failed { failure, unplaced: true }
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Failed { failure, unplaced: false }
    }
}
