//! The endpoint that takes model requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use futures_core::Stream;
use roost_wire::message::{DynamoError, EngineRequest};
use roost_wire::{Admission, BoxFuture, Cancellation, Handler, Item, ItemStream, RequestContext};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Fault, Faults, WorkerConfig};
use crate::journal::{self, Began, Finish, Finished, JournalEntry, RequestRecord};
use crate::{Cancel, CancelKind, Engine, EngineContext, Journal, OutputStream, TextCodec};

/// An item that no codec decodes: 0xc1 begins neither MessagePack nor JSON.
const BAD_ITEM: &[u8] = &[0xc1, 0xc1];

/// Hands requests to the engine and its items to the plane.
#[derive(Debug)]
pub(super) struct GenerateHandler {
    engine: Arc<dyn Engine>,
    worker_id: u64,
    journal: Arc<Journal>,
    text: Option<TextCodec>,
    faults: Faults,
    crash: CancellationToken,
}

impl GenerateHandler {
    pub(super) fn new(engine: &Arc<dyn Engine>, worker_id: u64, config: &WorkerConfig) -> Self {
        Self {
            engine: engine.clone(),
            worker_id,
            journal: config.journal.clone(),
            text: config.codec_for_journal.clone(),
            faults: config.faults.clone(),
            crash: config.crash.clone(),
        }
    }

    fn note(&self, context: &RequestContext, request: &EngineRequest) {
        if !self.journal.is_recording() {
            return;
        }
        let text = self.text.as_ref().map(|codec| codec.decode(&request.token_ids));
        let record = RequestRecord {
            id: context.id.to_string(),
            metadata: context.metadata.clone(),
            headers: context.headers.clone(),
            worker_id: self.worker_id,
            at: Instant::now(),
            wall: SystemTime::now(),
            text,
            request: request.clone(),
        };
        self.journal.record(JournalEntry::Request(Arc::new(record)));
    }

    fn begin(&self, context: RequestContext, body: &[u8]) -> Result<ItemStream, DynamoError> {
        let request = EngineRequest::decode(context.codec, body)?;
        self.note(&context, &request);
        let cancel = Cancel::new();
        let engine_context = EngineContext { id: context.id.to_string(), cancel: cancel.clone() };
        Ok(Box::pin(Answer {
            outputs: self.engine.generate(request, engine_context),
            fault: self.faults.items().map(|fault| (fault, self.crash.clone())),
            pause: None,
            stopped: stopped(context.cancellation.clone()),
            cancel,
            log: AnswerLog {
                id: context.id.to_string(),
                worker_id: self.worker_id,
                journal: self.journal.clone(),
                cancellation: context.cancellation,
                items: 0,
                end: None,
            },
        }))
    }
}

impl Handler for GenerateHandler {
    fn handle(
        &self,
        context: RequestContext,
        body: Bytes,
    ) -> BoxFuture<'static, Result<ItemStream, DynamoError>> {
        match self.faults.prologue() {
            None => Box::pin(std::future::ready(self.begin(context, &body))),
            Some(Fault::Refuse(error)) => Box::pin(std::future::ready(Err(*error))),
            Some(Fault::LatePrologue(by)) => {
                let answer = self.begin(context, &body);
                Box::pin(async move {
                    tokio::time::sleep(by).await;
                    answer
                })
            }
            Some(_) => Box::pin(std::future::pending()),
        }
    }

    fn admit(&self, _: &[u8]) -> Admission {
        self.faults.admission().unwrap_or(Admission::Accept)
    }
}

fn stopped(cancellation: Cancellation) -> Option<BoxFuture<'static, ()>> {
    Some(Box::pin(async move { cancellation.stopped().await }))
}

/// The items of one answer. Dropping it drops the engine's stream, which aborts the request.
struct Answer {
    outputs: OutputStream,
    fault: Option<(Fault, CancellationToken)>,
    /// Until then nothing more is said.
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Resolves when the frontend asks for an end; `None` afterwards.
    stopped: Option<BoxFuture<'static, ()>>,
    cancel: Cancel,
    log: AnswerLog,
}

impl Stream for Answer {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let answer = &mut *self;
        if let Some(stopped) = &mut answer.stopped
            && stopped.as_mut().poll(context).is_ready()
        {
            answer.stopped = None;
            answer.cancel.stop();
            answer.log.cancelled(CancelKind::Stop);
        }
        if let Some((Fault::PauseAfter(count, by), _)) = &answer.fault
            && answer.log.items >= *count
        {
            answer.pause = Some(Box::pin(tokio::time::sleep(*by)));
            answer.fault = None;
        }
        if let Some(pause) = &mut answer.pause {
            ready!(pause.as_mut().poll(context));
            answer.pause = None;
        }
        if let Some((fault, crash)) = &answer.fault
            && let Some(misdeed) = answer.log.misdeed(fault, crash)
        {
            return misdeed;
        }
        let item = match ready!(answer.outputs.as_mut().poll_next(context)) {
            Some(Ok(output)) => Item::from(output),
            Some(Err(error)) => {
                answer.log.end = Some(Finish::Failed);
                Item::Error(error.on_the_wire())
            }
            None => {
                answer.log.end.get_or_insert(Finish::Complete);
                return Poll::Ready(None);
            }
        };
        answer.log.sends();
        Poll::Ready(Some(item))
    }
}

/// What the journal will say about an answer; written when it is dropped.
struct AnswerLog {
    id: String,
    worker_id: u64,
    journal: Arc<Journal>,
    cancellation: Cancellation,
    items: u64,
    end: Option<Finish>,
}

impl AnswerLog {
    /// Another item is about to be sent.
    fn sends(&mut self) {
        if self.items == 0 && self.journal.is_recording() {
            self.journal.record(JournalEntry::Began(Began {
                id: self.id.clone(),
                worker_id: self.worker_id,
                at: Instant::now(),
            }));
        }
        self.items += 1;
    }

    fn cancelled(&self, kind: CancelKind) {
        self.journal.record(JournalEntry::Cancelled(journal::Cancellation {
            id: self.id.clone(),
            worker_id: self.worker_id,
            kind,
            at: Instant::now(),
        }));
    }

    /// What an ordered fault does instead of sending the next item, if it is due.
    fn misdeed(&mut self, fault: &Fault, crash: &CancellationToken) -> Option<Poll<Option<Item>>> {
        let sent = self.items;
        match fault {
            Fault::StallAfter(count) if sent >= *count => Some(Poll::Pending),
            Fault::CloseAfter(count) if sent >= *count => Some(Poll::Ready(Some(Item::Abort))),
            Fault::CrashAfter(count) if sent >= *count => {
                crash.cancel();
                Some(Poll::Pending)
            }
            Fault::BadItemAfter(count) if sent == *count => {
                self.items += 1;
                Some(Poll::Ready(Some(Item::Encoded(Bytes::from_static(BAD_ITEM)))))
            }
            _ => None,
        }
    }
}

impl Drop for AnswerLog {
    fn drop(&mut self) {
        if self.end.is_none() && self.cancellation.is_killed() {
            self.cancelled(CancelKind::Kill);
        }
        self.journal.record(JournalEntry::Finished(Finished {
            id: std::mem::take(&mut self.id),
            worker_id: self.worker_id,
            how: self.end.unwrap_or(Finish::Dropped),
            items: self.items,
            at: Instant::now(),
        }));
    }
}
