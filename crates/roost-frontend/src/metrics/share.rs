//! A gauge that several pools make up together: versions of a model that serve at the same time.

use prometheus::IntGauge;

/// One pool's part of a gauge that is the sum over all of them.
#[derive(Debug)]
pub(super) struct Share {
    gauge: IntGauge,
    value: i64,
}

impl Share {
    pub(super) fn of(gauge: IntGauge) -> Self {
        Share { gauge, value: 0 }
    }

    /// Replaces this part.
    pub(super) fn set(&mut self, value: i64) {
        self.gauge.add(value - std::mem::replace(&mut self.value, value));
    }
}
