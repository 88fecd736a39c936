//! Whether a server can be used. One probe is one opinion; [`Health`] makes a verdict of several.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::{HttpError, Server};

/// How many bad opinions in a row make a verdict.
#[derive(Debug, Clone, Copy)]
pub struct HealthConfig {
    /// Longest wait for one probe's answer.
    pub limit: Duration,
    /// Times that nobody was there.
    pub unreachable: u32,
    /// Times that no answer came in time: a server whose Python half is busy is slow, not gone.
    pub late: u32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        HealthConfig { limit: Duration::from_secs(5), unreachable: 2, late: 4 }
    }
}

/// The verdict on one server that is in use.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    unreachable: u32,
    late: u32,
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Ready for requests.
    Ready,
    /// There, and not ready: it starts, or shuts down.
    NotReady,
    /// Nobody answers at that address.
    Unreachable,
    /// No answer in time.
    Late,
}

impl Health {
    /// Nothing is known against the server.
    pub fn new(config: HealthConfig) -> Self {
        Health { config, unreachable: 0, late: 0 }
    }

    /// Takes an opinion; returns whether the server is still to be used.
    pub fn observe(&mut self, probe: Probe) -> bool {
        match probe {
            Probe::Ready => (self.unreachable, self.late) = (0, 0),
            Probe::NotReady => return false,
            Probe::Unreachable => self.unreachable += 1,
            Probe::Late => self.late += 1,
        }
        self.unreachable < self.config.unreachable && self.late < self.config.late
    }

    /// Asks the server, cheaply: `/health` would have it generate a token.
    pub async fn probe(&self, server: &Server) -> Probe {
        let ask = |path| server.small(Method::GET, path, Bytes::new(), self.config.limit);
        let answer = match ask("/ready").await {
            // Servers before that route existed.
            Err(HttpError::Status { status: 404, .. }) => ask("/model_info").await,
            answer => answer,
        };
        match answer {
            Ok(_) => Probe::Ready,
            Err(HttpError::Status { status: 401 | 403 | 404, .. }) => Probe::Ready,
            Err(HttpError::Status { .. } | HttpError::Shape { .. }) => Probe::NotReady,
            Err(HttpError::Unreachable { .. }) => Probe::Unreachable,
            Err(HttpError::Late { .. }) => Probe::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_probe_is_no_verdict() {
        let mut health = Health::new(HealthConfig { unreachable: 2, late: 3, ..HealthConfig::default() });
        assert!(health.observe(Probe::Unreachable));
        assert!(health.observe(Probe::Ready));
        assert!(health.observe(Probe::Unreachable));
        assert!(health.observe(Probe::Late));
        assert!(!health.observe(Probe::Unreachable));
        let mut health = Health::new(HealthConfig { unreachable: 2, late: 3, ..HealthConfig::default() });
        assert!(health.observe(Probe::Late) && health.observe(Probe::Late) && !health.observe(Probe::Late));
        assert!(!Health::new(HealthConfig::default()).observe(Probe::NotReady), "it says so itself");
    }
}
