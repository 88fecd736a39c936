//! The engines of this process, by worker.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use parking_lot::RwLock;
use roost_frontend::{HostedEngines, HostedError, HostedStream};
use roost_kv::WorkerId;
use roost_sglang::SglangEngine;
use roost_wire::message::{EngineOutput, EngineRequest};
use roost_worker::{Engine, EngineContext, EngineError, OutputStream};

/// Filled by the members, read by each request.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    by_worker: RwLock<HashMap<WorkerId, Arc<SglangEngine>>>,
}

impl Engines {
    pub(super) fn insert(&self, worker: WorkerId, engine: Arc<SglangEngine>) {
        self.by_worker.write().insert(worker, engine);
    }

    pub(super) fn remove(&self, worker: WorkerId) {
        self.by_worker.write().remove(&worker);
    }
}

impl HostedEngines for Engines {
    fn generate(&self, worker: WorkerId, id: &str, request: EngineRequest) -> Option<HostedStream> {
        let engine = self.by_worker.read().get(&worker).cloned()?;
        Some(Box::pin(Answer(engine.generate(request, EngineContext::new(id)))))
    }
}

/// An engine's answer with its errors in the frontend's terms.
struct Answer(OutputStream);

impl Stream for Answer {
    type Item = Result<EngineOutput, HostedError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.0.as_mut().poll_next(cx));
        Poll::Ready(item.map(|item| {
            item.map_err(|error| match error {
                EngineError::Unavailable(text) => HostedError::Lost(text),
                other => HostedError::Reported(Box::new(other.on_the_wire())),
            })
        }))
    }
}
