use std::io;

use crate::{
    CodecError, Fault,
    frame::FrameError,
    message::{DynamoError, Reason},
};

/// Why an answer ended before its time.
///
/// `Display` is for the log; what a client may read is [`StreamError::public_message`].
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The worker reported a failure.
    #[error("worker failed: {0}")]
    Worker(Box<DynamoError>),
    /// The worker ended the connection, or said that it was done, without completing the answer.
    #[error("stream ended before generation completed")]
    Incomplete,
    /// The connection broke.
    #[error("connection to worker lost: {0}")]
    Broken(#[source] io::Error),
    /// The worker sent a control frame that means the answer is off.
    #[error("worker killed the stream: {0}")]
    Killed(String),
    /// The worker sent an item behind the end.
    #[error("response received after generation ended")]
    AfterEnd,
    /// An item could not be decoded.
    #[error("undecodable item: {0}")]
    Undecodable(#[source] CodecError),
    /// The worker sent a frame with no meaning.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// The worker sent a frame that is not acceptable.
    #[error("unacceptable frame: {0}")]
    Frame(#[source] FrameError),
}

impl StreamError {
    /// The peer's name for the failure.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Worker(error) => error.reason,
            Self::Incomplete | Self::Broken(_) | Self::Killed(_) => Reason::Disconnected,
            Self::AfterEnd | Self::Undecodable(_) | Self::Protocol(_) | Self::Frame(_) => {
                Reason::BackendProtocol
            }
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.reason().fault()
    }

    /// Whether another worker may be asked to go on.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Worker(error) => error.is_retryable(),
            _ => self.reason().allows_retry(),
        }
    }

    /// The text for clients, if the worker gave one.
    #[must_use]
    pub fn public_message(&self) -> Option<&str> {
        match self {
            Self::Worker(error) => error.public_message(),
            _ => None,
        }
    }
}
