//! What routing itself costs a request, under the peer's names.

use std::time::Duration;

use prometheus::Histogram;
use roost_telemetry::{Error, Name, Registry, buckets};

use super::MetricsOptions;

/// `dynamo_router_overhead_*`, with the label of this process filled in.
#[derive(Debug)]
pub(super) struct OverheadFamilies {
    hashing: Histogram,
    finding: Histogram,
    scheduling: Histogram,
    total: Histogram,
}

/// The parts of one placement's cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overhead {
    /// Hashes of the prompt's blocks; made once for all placements of a request.
    pub hashing: Duration,
    /// What every worker has cached of it.
    pub finding: Duration,
    /// The choice, the wait for the router's lock included, that for room not.
    pub scheduling: Duration,
}

impl OverheadFamilies {
    pub(super) fn register(r: &Registry, options: &MetricsOptions) -> Result<Self, Error> {
        let id = options.router_id.to_string();
        let histogram = |name, help, bounds: &[f64]| {
            let family = r.histogram_vec(Name::Full(name), help, &["router_id"], bounds)?;
            Ok::<_, Error>(family.with_label_values(&[&id]))
        };
        let fine = buckets::exponential(0.001, 2.0, 15);
        let wide = buckets::exponential(0.01, 3.0, 17);
        Ok(Self {
            hashing: histogram(
                "dynamo_router_overhead_block_hashing_ms",
                "Milliseconds to hash the blocks of a prompt that an earlier turn had not hashed, chained hashes included.",
                &fine,
            )?,
            finding: histogram(
                "dynamo_router_overhead_indexer_find_matches_ms",
                "Milliseconds to find what every worker has cached of a prompt.",
                &wide,
            )?,
            scheduling: histogram(
                "dynamo_router_overhead_scheduling_ms",
                "Milliseconds to choose a worker and book its load.",
                &wide,
            )?,
            total: histogram(
                "dynamo_router_overhead_total_ms",
                "Milliseconds that routing costs a request: hashes, lookup and choice, waiting for room not included.",
                &wide,
            )?,
        })
    }

    pub(super) fn observe(&self, overhead: Overhead) {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let Overhead { hashing, finding, scheduling } = overhead;
        self.hashing.observe(ms(hashing));
        self.finding.observe(ms(finding));
        self.scheduling.observe(ms(scheduling));
        self.total.observe(ms(hashing + finding + scheduling));
    }
}
