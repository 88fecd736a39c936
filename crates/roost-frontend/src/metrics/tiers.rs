//! Counters of what engines find in their caches.

use prometheus::{IntCounter, IntCounterVec};

use crate::respond::tiers::CachedTiers;

/// Prompt tokens from engines' caches, by where they were found.
#[derive(Debug)]
pub(super) struct TierCounters {
    device: IntCounter,
    host: IntCounter,
    storage: IntCounter,
    /// The engine tells how many, but not where.
    untold: IntCounter,
}

impl TierCounters {
    pub(super) fn new(family: &IntCounterVec, model: &str) -> Self {
        let tier = |tier| family.with_label_values(&[model, tier]);
        TierCounters {
            device: tier("device"),
            host: tier("host"),
            storage: tier("storage"),
            untold: tier("untold"),
        }
    }

    /// Counts one prompt of which `cached` tokens were found.
    pub(super) fn count(&self, cached: u64, tiers: Option<CachedTiers>) {
        match tiers {
            None => self.untold.inc_by(cached),
            Some(tiers) => {
                self.device.inc_by(tiers.device);
                self.host.inc_by(tiers.host);
                self.storage.inc_by(tiers.storage);
            }
        }
    }
}
