//! The router's queue, under the peer's names. There is one policy class.

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};
use roost_router::{QueueSize, Stats};
use roost_telemetry::{Error, Name, Registry};

use super::share::Share;

/// The only policy class.
const CLASS: &str = "default";

#[derive(Debug)]
pub(super) struct QueueFamilies {
    requests: IntGaugeVec,
    isl_tokens: IntGaugeVec,
    cached_tokens: IntGaugeVec,
    received: IntCounterVec,
    refused: IntCounterVec,
    full: IntCounterVec,
}

/// The series of one pool.
#[derive(Debug)]
pub(super) struct QueueSeries {
    requests: Share,
    isl_tokens: Share,
    cached_tokens: Share,
    received: IntCounter,
    waited: IntCounter,
    full: IntCounter,
}

impl QueueFamilies {
    pub(super) fn register(r: &Registry) -> Result<Self, Error> {
        let class = ["model", "worker_type", "policy_class"];
        let reason = ["model", "worker_type", "policy_class", "reason"];
        let gauge = |name, help| r.gauge_vec(Name::FixedFrontend(name), help, &class);
        Ok(Self {
            requests: gauge("router_queue_pending_requests", "Requests that wait in the router.")?,
            isl_tokens: gauge("router_queue_pending_isl_tokens", "Their prompt tokens.")?,
            cached_tokens: gauge(
                "router_queue_pending_cached_tokens",
                "Of those, the tokens cached on some worker when they came.",
            )?,
            received: r.counter_vec(
                Name::FixedFrontend("router_admission_received_total"),
                "Requests that came to the router, retries not counted.",
                &class,
            )?,
            refused: r.counter_vec(
                Name::FixedFrontend("router_admission_rejected_total"),
                "Requests refused while they waited: due_time_passed waited as long as they may.",
                &reason,
            )?,
            full: r.counter_vec(
                Name::FixedFrontend("router_queue_backpressure_total"),
                "Requests refused because of what waits already: request_limit is the number of requests.",
                &reason,
            )?,
        })
    }

    pub(super) fn of(&self, model: &str, worker_type: &str) -> QueueSeries {
        let pool = &[model, worker_type, CLASS];
        let with = |reason| [model, worker_type, CLASS, reason];
        QueueSeries {
            requests: Share::of(self.requests.with_label_values(pool)),
            isl_tokens: Share::of(self.isl_tokens.with_label_values(pool)),
            cached_tokens: Share::of(self.cached_tokens.with_label_values(pool)),
            received: self.received.with_label_values(pool),
            waited: self.refused.with_label_values(&with("due_time_passed")),
            full: self.full.with_label_values(&with("request_limit")),
        }
    }
}

impl QueueSeries {
    /// Takes over what has happened between two states of a router.
    pub(super) fn take(&mut self, before: &Stats, now: &Stats, size: QueueSize) {
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.requests.set(whole(size.requests as u64));
        self.isl_tokens.set(whole(size.isl_tokens));
        self.cached_tokens.set(whole(size.cached_tokens));
        self.received.inc_by(now.received.saturating_sub(before.received));
        self.waited.inc_by(now.rejected_waited.saturating_sub(before.rejected_waited));
        self.full.inc_by(now.rejected_queue_full.saturating_sub(before.rejected_queue_full));
    }
}
