//! Which attempts count as retries, and for how long.

use std::time::Instant;

use crate::metrics::ModelMetrics;

/// The attempts of one request after its first: counted when one is really placed, timed from the first failure.
#[derive(Debug)]
pub(super) struct Retries<'a> {
    metrics: &'a ModelMetrics,
    first_failure: Option<Instant>,
    placed: u32,
}

impl<'a> Retries<'a> {
    pub(super) fn new(metrics: &'a ModelMetrics) -> Self {
        Retries { metrics, first_failure: None, placed: 0 }
    }

    /// An attempt has failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.first_failure.get_or_insert(now);
    }

    /// An attempt has a worker.
    pub(super) fn placed(&mut self) {
        if self.first_failure.is_some() {
            self.placed += 1;
            self.metrics.retried();
        }
    }

    /// No further attempt follows.
    pub(super) fn ended(&self, now: Instant, succeeded: bool) {
        if let Some(since) = self.first_failure.filter(|_| self.placed > 0) {
            self.metrics.retry_ended(now.saturating_duration_since(since), succeeded);
        }
    }
}
