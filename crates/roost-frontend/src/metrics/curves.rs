//! What the console draws over time: a few counts and distributions, added up over models.

use prometheus::core::Collector;

use super::Metrics;

/// Counts since the start, for readers who take differences.
#[derive(Debug, Default)]
pub(crate) struct Curves {
    /// Requests between their model lookup and their end.
    pub(crate) active: usize,
    /// Requests that ended well, and those that did not.
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// Tokens of all answers.
    pub(crate) output_tokens: u64,
    /// Seconds.
    pub(crate) time_to_first_token: Distribution,
    /// Seconds.
    pub(crate) inter_token_latency: Distribution,
}

/// A histogram: how many values are at most as large as each bound.
#[derive(Debug, Default)]
pub(crate) struct Distribution {
    pub(crate) bounds: Vec<f64>,
    /// One for each bound, each with those before it.
    pub(crate) cumulative: Vec<u64>,
    pub(crate) count: u64,
}

impl Metrics {
    /// What the console draws.
    pub(crate) fn curves(&self) -> Curves {
        let families = &self.families;
        let mut curves = Curves { active: self.active_requests(), ..Curves::default() };
        for family in families.requests.collect() {
            for metric in family.get_metric() {
                let ended_well = metric
                    .get_label()
                    .iter()
                    .any(|label| label.name() == "status" && label.value() == "success");
                let count = metric.get_counter().get_value() as u64;
                *if ended_well { &mut curves.succeeded } else { &mut curves.failed } += count;
            }
        }
        let tokens = families.output_total.collect();
        curves.output_tokens = tokens
            .iter()
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .map(|metric| metric.get_counter().get_value() as u64)
            .sum();
        curves.time_to_first_token = Distribution::of(&families.time_to_first_token);
        curves.inter_token_latency = Distribution::of(&families.inter_token_latency);
        curves
    }
}

impl Distribution {
    /// All series of a family together.
    fn of(family: &impl Collector) -> Self {
        let mut sum = Distribution::default();
        for family in family.collect() {
            for metric in family.get_metric() {
                let histogram = metric.get_histogram();
                sum.count += histogram.get_sample_count();
                sum.bounds.resize(histogram.get_bucket().len(), 0.0);
                sum.cumulative.resize(histogram.get_bucket().len(), 0);
                for (at, bucket) in histogram.get_bucket().iter().enumerate() {
                    sum.bounds[at] = bucket.upper_bound();
                    sum.cumulative[at] += bucket.cumulative_count();
                }
            }
        }
        sum
    }
}
