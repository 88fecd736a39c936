//! The little of ZeroMQ's wire protocol (ZMTP 3.0 and 3.1, NULL mechanism) that PUB and SUB over TCP need.
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

pub(crate) use connection::Connection;
pub(crate) use frame::encode_message;
pub(crate) use publisher::PubSocket;
pub use socket::EventSockets;

use std::io;

/// Why a ZMTP connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ZmtpError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("connection closed by the peer")]
    Closed,
    #[error("no answer within {0:?}")]
    Deadline(std::time::Duration),
    #[error("not a zmtp 3 peer with the null mechanism")]
    Greeting,
    #[error("peer is a {0} socket")]
    SocketType(String),
    #[error("malformed {0}")]
    Malformed(&'static str),
    #[error("{what} of {size} bytes is over the limit of {limit}")]
    TooLarge { what: &'static str, size: u64, limit: u64 },
    #[error("{0:?} is not an address like tcp://HOST:PORT")]
    Address(String),
}

#[cfg(test)]
mod tests;
