//! Client connections: how many, and which were ended from our side.

use prometheus::{IntCounterVec, IntGauge};

use super::Metrics;

/// Label of connections that ended from our side.
pub(super) const REASON: [&str; 1] = ["reason"];

/// Why a connection was ended from our side: label `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severed {
    /// No whole request head in time.
    HeaderTimeout,
    /// No request for too long.
    IdleTimeout,
    /// The client did not read.
    WriteStall,
    /// The TLS handshake failed or took too long.
    Tls,
    /// Beyond the limit of connections.
    Surplus,
}

impl Severed {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::WriteStall => "write_stall",
            Self::Tls => "tls",
            Self::Surplus => "surplus",
        }
    }
}

#[derive(Debug)]
pub(super) struct ConnectionFamilies {
    pub(super) open: IntGauge,
    pub(super) severed: IntCounterVec,
}

/// A connection that is open.
#[derive(Debug)]
pub struct OpenConnection(IntGauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Counts a connection until the guard is dropped.
    pub fn connection(&self) -> OpenConnection {
        let open = self.families.connections.open.clone();
        open.inc();
        OpenConnection(open)
    }

    /// Counts a connection that is ended from our side.
    pub fn severed(&self, why: Severed) {
        self.families.connections.severed.with_label_values(&[why.as_str()]).inc();
    }
}
