//! The little of ZeroMQ's wire protocol (ZMTP 3.0 and 3.1, NULL mechanism) that PUB, SUB and DEALER over TCP need.
//!
//! Own code rather than the `zeromq` crate (0.7.0), which was tried first: there a frame that announces a huge length
//! ends the process, because the length is reserved before a byte of it has come; a peer that accepts and then stays
//! silent blocks `connect` for ever; connecting to a dead address gives up for good after 30 s; and its tasks and
//! wake-ups are detached and unbounded. Here a subscriber is one task that reconnects by itself, and every length,
//! queue and handshake has a limit.

mod connection;
mod frame;
mod publisher;
mod socket;

pub use connection::Connection;
pub use frame::encode_message;
pub use publisher::{PubSocket, PubStats};
pub use socket::EventSockets;

use std::io;

/// Why a ZMTP connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ZmtpError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer is gone.
    #[error("connection closed by the peer")]
    Closed,
    /// The peer said nothing in time.
    #[error("no answer within {0:?}")]
    Deadline(std::time::Duration),
    /// The peer speaks something else.
    #[error("not a zmtp 3 peer with the null mechanism")]
    Greeting,
    /// The peer is another kind of socket than is needed.
    #[error("peer is a {0} socket")]
    SocketType(String),
    /// The peer broke the protocol.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// More than is accepted.
    #[error("{what} of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// Bytes announced.
        size: u64,
        /// Bytes accepted.
        limit: u64,
    },
    /// The endpoint is no address.
    #[error("{0:?} is not an address like tcp://HOST:PORT")]
    Address(String),
}

#[cfg(test)]
mod tests;
