use std::{collections::BTreeMap, fmt, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_core::Stream;

use super::Cancellation;
use crate::{
    Codec,
    message::{Annotated, DynamoError, EngineOutput},
};

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The items of an answer. It is polled only as fast as the frontend reads, and dropped when the frontend goes away.
pub type ItemStream = Pin<Box<dyn Stream<Item = Item> + Send>>;

/// Serves one endpoint.
pub trait Handler: Send + Sync + fmt::Debug + 'static {
    /// Begins an answer. The frontend learns that the request was accepted when this future is ready, so it
    /// should not wait for the first item. Future and stream are dropped when the frontend cancels.
    ///
    /// An error is sent in place of the answer: [`DynamoError::invalid_argument`] or an error made from a
    /// [`CodecError`](crate::CodecError) when the request is to blame.
    fn handle(
        &self,
        context: RequestContext,
        body: Bytes,
    ) -> BoxFuture<'static, Result<ItemStream, DynamoError>>;

    /// Decides what is acknowledged, before the request is queued. Holds up the connection, so it must be quick.
    fn admit(&self, body: &[u8]) -> Admission {
        let _ = body;
        Admission::Accept
    }
}

/// What a request is acknowledged with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It is queued.
    Accept,
    /// This worker is full: another may be asked.
    Overloaded,
    /// It is not served here any more; the text says why.
    Unavailable(String),
    /// It is acknowledged and then forgotten, as some workers do with what they cannot decode.
    Forget,
    /// It is not acknowledged, which makes the connection useless to the frontend.
    Ignore,
    /// As no worker should: for tests of frontends.
    Misbehave(Misbehaviour),
}

/// What a worker can do wrong before its answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Close the connection in place of the acknowledgement.
    CloseBeforeAck,
    /// Send what is no acknowledgement.
    GarbledAck,
    /// Acknowledge after this time.
    LateAck(Duration),
    /// Acknowledge, call home, and close.
    CloseBeforePrologue,
    /// Acknowledge, call home, and send what is no prologue.
    GarbledPrologue,
}

/// What a handler knows about a request besides its body.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// Request id.
    pub id: Arc<str>,
    /// Path that the request came for.
    pub path: Arc<str>,
    /// Codec of the body and of [`Item::Encoded`].
    pub codec: Codec,
    /// Headers in the order sent.
    pub headers: Vec<(String, String)>,
    /// What the client wants the worker to know.
    pub metadata: BTreeMap<String, String>,
    /// Tells when the frontend does not want the answer any more.
    pub cancellation: Cancellation,
}

/// One step of an answer.
#[derive(Debug, Clone)]
pub enum Item {
    /// New tokens, or what goes with them.
    Output(Box<EngineOutput>),
    /// An item with an event or remarks.
    Annotated(Box<Annotated<EngineOutput>>),
    /// An item that is encoded already; it is not wrapped.
    Encoded(Bytes),
    /// A failure; the answer ends with it in good order.
    Error(DynamoError),
    /// The answer ends here without being complete: the connection is closed as it is.
    Abort,
}

impl From<EngineOutput> for Item {
    fn from(output: EngineOutput) -> Self {
        Self::Output(Box::new(output))
    }
}
