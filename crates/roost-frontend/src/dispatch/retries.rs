//! Which attempts count as retries, and for how long.

use std::time::Instant;

use crate::metrics::{Migration, ModelMetrics};

/// The attempts of one request after a failure: counted when one is really placed, timed from the first failure.
#[derive(Debug)]
pub(super) struct Retries<'a> {
    metrics: &'a ModelMetrics,
    kind: Migration,
    first_failure: Option<Instant>,
    placed: bool,
}

impl<'a> Retries<'a> {
    /// Retries of a request of which nothing has failed yet.
    pub(super) fn new(metrics: &'a ModelMetrics, kind: Migration) -> Self {
        Retries { metrics, kind, first_failure: None, placed: false }
    }

    /// An attempt has failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.first_failure.get_or_insert(now);
    }

    /// An attempt has its workers.
    pub(super) fn placed(&mut self) {
        if self.first_failure.is_some() {
            self.placed = true;
            self.metrics.migrated(self.kind);
        }
    }

    /// No further attempt follows.
    pub(super) fn ended(&self, now: Instant, succeeded: bool) {
        if let Some(since) = self.first_failure.filter(|_| self.placed) {
            self.metrics.migration_ended(self.kind, now.saturating_duration_since(since), succeeded);
        }
    }
}
