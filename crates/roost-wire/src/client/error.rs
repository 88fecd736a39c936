use std::{borrow::Cow, io, sync::Arc};

use crate::{
    Fault, StreamError,
    frame::FrameError,
    line::LineError,
    message::{DynamoError, Reason},
};

/// Why a request did not become an answer.
///
/// `Display` is for the log; what a client may read is [`CallError::public_message`].
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request is too large to be sent.
    #[error("request not sent: {0}")]
    Frame(#[source] FrameError),
    /// Every connection of the pool is at its limit of unacknowledged frames.
    #[error("all connections to the worker are at their limit")]
    PoolFull,
    /// The worker could not be connected to.
    #[error("cannot connect to worker: {0}")]
    CannotConnect(#[source] Arc<io::Error>),
    /// The connection was lost before the acknowledgement, or after it and before the worker called home.
    #[error("worker disconnected before it began to answer")]
    Disconnected,
    /// The worker did not acknowledge in time.
    #[error("worker did not acknowledge in time")]
    AckTimeout,
    /// The worker is full.
    #[error("worker overloaded: {0}")]
    Overloaded(String),
    /// The worker does not serve the endpoint.
    #[error("worker unavailable: {0}")]
    Unavailable(String),
    /// The worker could not read the frame.
    #[error("worker refused the frame: {0}")]
    Refused(String),
    /// The worker left before it called home.
    #[error("worker left before it began to answer")]
    Left,
    /// The worker acknowledged but did not call home in time.
    #[error("worker did not call home in time")]
    CallHomeTimeout,
    /// The worker called home but did not send the prologue in time.
    #[error("worker did not send its prologue in time")]
    PrologueTimeout,
    /// The worker's handler failed without a typed error.
    #[error("worker refused the request: {0}")]
    Prologue(String),
    /// The worker answers on another plane than the one that was asked for: QUIC.
    #[error("worker answers on another response plane: {0}")]
    ResponsePlane(String),
    /// The worker's handler refused the request.
    #[error("worker rejected the request: {0}")]
    Rejected(Box<DynamoError>),
    /// The call-home connection failed.
    #[error("answer failed: {0}")]
    Stream(#[source] StreamError),
    /// The answer to a query exceeds its bounds.
    #[error("answer to a query is too large")]
    AnswerTooLarge,
    /// A query took too long.
    #[error("query took too long")]
    QueryTimeout,
    /// The response listener does not run any more.
    #[error("response listener is gone")]
    ListenerGone,
}

impl CallError {
    pub(super) fn before_prologue(error: LineError) -> Self {
        Self::Stream(match error {
            LineError::Closed => StreamError::Incomplete,
            LineError::Broken(error) => StreamError::Broken(error),
            LineError::Frame(error) => StreamError::Frame(error),
        })
    }

    /// The peer's name for the failure.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Frame(_) | Self::Refused(_) => Reason::PayloadTooLarge,
            Self::PoolFull | Self::Overloaded(_) => Reason::WorkerOverloaded,
            Self::CannotConnect(_) => Reason::CannotConnect,
            Self::Disconnected => Reason::Disconnected,
            Self::AckTimeout | Self::CallHomeTimeout => Reason::ConnectionTimeout,
            Self::PrologueTimeout | Self::QueryTimeout => Reason::ResponseTimeout,
            Self::Unavailable(_) | Self::Left | Self::ResponsePlane(_) => Reason::WorkerUnavailable,
            Self::Prologue(_) => Reason::BackendUnavailable,
            Self::Rejected(error) => error.reason,
            Self::Stream(error) => error.reason(),
            Self::AnswerTooLarge => Reason::BackendProtocol,
            Self::ListenerGone => Reason::Internal,
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.reason().fault()
    }

    /// Whether another worker may be asked instead.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Rejected(error) => error.is_retryable(),
            Self::Stream(error) => error.is_retryable(),
            _ => self.reason().allows_retry(),
        }
    }

    /// Whether the worker should be avoided for a while: it failed, rather than being full or being asked wrongly.
    #[must_use]
    pub fn inhibits_worker(&self) -> bool {
        !matches!(self, Self::ListenerGone) && !matches!(self.fault(), Fault::Client | Fault::Overload)
    }

    /// The text for clients: what the worker gave, or which limit the request exceeds.
    #[must_use]
    pub fn public_message(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Rejected(error) => error.public_message().map(Cow::Borrowed),
            Self::Stream(error) => error.public_message().map(Cow::Borrowed),
            Self::Frame(FrameError::TooLarge { len, max }) => Some(Cow::Owned(format!(
                "The request takes {len} bytes on the way to a worker; the limit is {max} bytes \
                 (DYN_TCP_MAX_MESSAGE_SIZE)."
            ))),
            Self::ResponsePlane(_) => Some(Cow::Borrowed(
                "The worker answers over the QUIC response plane, which is not offered here: start workers with \
                 DYN_RESPONSE_PLANE=tcp.",
            )),
            Self::Refused(text) if text.contains("too large") => Some(Cow::Borrowed(
                "The request exceeds the largest message that the worker accepts (its DYN_TCP_MAX_MESSAGE_SIZE).",
            )),
            _ => None,
        }
    }
}
