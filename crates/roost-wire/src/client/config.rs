use std::time::Duration;

use crate::{Transport, frame};

/// Settings of the calling side. Defaults are the peer's, and ours where the peer waits for ever.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How connections are made.
    pub transport: Transport,
    /// Most connections per worker address.
    pub pool_size: usize,
    /// Most unacknowledged frames per connection, beyond which another is opened.
    pub channel_buffer: usize,
    /// Time to connect, waiting for one of the `connect_limit` places included.
    pub connect_timeout: Duration,
    /// Most connects in progress at once.
    pub connect_limit: usize,
    /// Time from sending a frame to its acknowledgement; passing it retires the connection.
    pub ack_timeout: Duration,
    /// Time from the acknowledgement to the worker's call-home connection. A worker whose handlers are all
    /// busy acknowledges at once and calls home when one is free.
    pub call_home_timeout: Duration,
    /// Time that an acknowledged request still waits for the worker's call once the connection that it was sent on
    /// is lost, or the worker has left.
    pub farewell_timeout: Duration,
    /// Time from the call-home connection to the prologue, which the worker's handler decides on.
    pub prologue_timeout: Duration,
    /// Largest request frame in bytes; larger requests are refused without being sent.
    pub max_message_bytes: usize,
    /// Time after which a connection that carries nothing is closed.
    pub idle_ttl: Duration,
    /// Time for a whole query.
    pub query_timeout: Duration,
    /// Most items in the answer to a query.
    pub max_query_items: usize,
    /// Most bytes in the answer to a query.
    pub max_query_bytes: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            transport: Transport::tcp(),
            pool_size: 100,
            channel_buffer: 1024,
            connect_timeout: Duration::from_secs(5),
            connect_limit: 64,
            ack_timeout: Duration::from_secs(5),
            call_home_timeout: Duration::from_secs(30),
            farewell_timeout: Duration::from_secs(1),
            prologue_timeout: Duration::from_secs(60),
            max_message_bytes: frame::DEFAULT_MAX_MESSAGE_BYTES,
            idle_ttl: Duration::from_secs(300),
            query_timeout: Duration::from_secs(60),
            max_query_items: 64,
            max_query_bytes: 256 * 1024 * 1024,
        }
    }
}
