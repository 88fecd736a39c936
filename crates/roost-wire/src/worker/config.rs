use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::{Transport, frame};

/// Settings of the serving side.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Address to listen on; port 0 picks a free one.
    pub bind: SocketAddr,
    /// Address that frontends are told to connect to; the bound one when unset.
    pub advertise: Option<IpAddr>,
    /// How connections are made and accepted.
    pub transport: Transport,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// Connections that may be open at once; more wait in the backlog.
    pub max_connections: usize,
    /// Largest request frame in bytes.
    pub max_message_bytes: usize,
    /// Requests that are handled at once.
    pub max_active: usize,
    /// Requests that may wait to be handled, beyond which they are refused as overload.
    pub max_queued: usize,
    /// Time to connect to the frontend.
    pub dial_timeout: Duration,
    /// Time that an answer may go on after the frontend asked it to stop.
    pub stop_grace: Duration,
    /// Time to wait for the frontend to close after the end of an answer.
    pub close_timeout: Duration,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            transport: Transport::tcp(),
            backlog: 1024,
            max_connections: 16 * 1024,
            max_message_bytes: frame::DEFAULT_MAX_MESSAGE_BYTES,
            max_active: 10_000,
            max_queued: 40_000,
            dial_timeout: Duration::from_secs(5),
            stop_grace: Duration::from_secs(10),
            close_timeout: Duration::from_secs(10),
        }
    }
}
