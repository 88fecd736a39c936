//! The little of NATS that events need: core publish and subscribe, over one connection that comes back by itself.
//!
//! Own code rather than the `async-nats` crate, which Dynamo uses: there a subscriber that is behind loses messages
//! without knowing of it, and a subscription that was cut and renewed cannot be told from one that stood all the time.
//! Here either is a [`NatsEvent::Down`] and a [`NatsEvent::Up`], upon which what was missed is asked for. Durable
//! streams (JetStream) are not needed: workers keep their own history and answer for it.

mod client;
mod config;
mod nkey;
mod protocol;

pub use client::{NatsClient, NatsStats};
pub use config::{NatsAuth, NatsConfig, NatsConfigError};

pub(crate) use client::NatsEvent;

use std::io;
use std::time::Duration;

/// Why a connection to NATS ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NatsError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("connection closed by the server")]
    Closed,
    #[error("no {what} within {limit:?}")]
    Deadline { what: &'static str, limit: Duration },
    #[error("malformed {0}")]
    Malformed(&'static str),
    #[error("{what} of {size} bytes is over the limit of {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    #[error("the server says: {0}")]
    Refused(String),
    #[error("{0}")]
    Credentials(String),
}

#[cfg(test)]
mod tests;
