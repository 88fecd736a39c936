//! Gauges of single workers, which come and go with them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec};
use roost_kv::WorkerRank;
use roost_telemetry::{Error, Name, Registry};

use super::{MetricsOptions, WorkerType, families::RANK, ingress::COMPONENT};

/// Families per rank and the handles in use.
#[derive(Debug)]
pub(super) struct Workers {
    active_blocks: IntGaugeVec,
    prefill_tokens: IntGaugeVec,
    last_ttft: GaugeVec,
    last_itl: GaugeVec,
    last_isl: IntGaugeVec,
    active_requests: IntGaugeVec,
    bindings: IntGaugeVec,
    busy: IntGaugeVec,
    quarantined: IntGaugeVec,
    draining: IntGaugeVec,
    registered: IntGaugeVec,
    /// Values of the first labels of `registered`.
    identity: [String; COMPONENT.len()],
    known: RwLock<HashMap<(WorkerRank, WorkerType), Arc<WorkerGauges>>>,
}

/// Handles of one rank.
#[derive(Debug)]
pub(super) struct WorkerGauges {
    pub(super) active_blocks: IntGauge,
    pub(super) prefill_tokens: IntGauge,
    pub(super) last_ttft: Gauge,
    pub(super) last_itl: Gauge,
    pub(super) last_isl: IntGauge,
    pub(super) active_requests: IntGauge,
    pub(super) bindings: IntGauge,
    pub(super) busy: IntGauge,
    pub(super) quarantined: IntGauge,
    pub(super) draining: IntGauge,
}

impl Workers {
    pub(super) fn register(r: &Registry, options: &MetricsOptions) -> Result<Self, Error> {
        let registered: Vec<_> =
            COMPONENT.into_iter().chain(["router_worker_id", "dp_rank", "worker_type"]).collect();
        let gauge = |name, help| r.gauge_vec(Name::FixedFrontend(name), help, &RANK);
        let own = |name, help| r.gauge_vec(Name::Full(name), help, &RANK);
        let fraction = |name, help| r.float_gauge_vec(Name::FixedFrontend(name), help, &RANK);
        Ok(Self {
            active_blocks: gauge("worker_active_decode_blocks", "KV blocks of running requests, as booked.")?,
            prefill_tokens: gauge(
                "worker_active_prefill_tokens",
                "Prompt tokens still to be computed, as booked.",
            )?,
            last_ttft: fraction(
                "worker_last_time_to_first_token_seconds",
                "Time to first token of the last request.",
            )?,
            last_itl: fraction("worker_last_inter_token_latency_seconds", "Time between the last tokens.")?,
            last_isl: gauge("worker_last_input_sequence_tokens", "Prompt tokens of the last request.")?,
            active_requests: own("roost_worker_active_requests", "Running requests, as booked.")?,
            bindings: own("roost_affinity_bindings", "Sessions bound to the rank.")?,
            busy: own("roost_worker_busy", "1 while the rank is over a busy threshold.")?,
            quarantined: own("roost_worker_quarantined", "1 while the worker is avoided after a failure.")?,
            draining: own("roost_worker_draining", "1 while the worker is going down.")?,
            registered: r.gauge_vec(
                Name::Full("dynamo_component_router_worker_registered"),
                "1 for each rank that the router knows.",
                &registered,
            )?,
            identity: [options.namespace.clone(), options.component.clone(), options.router_id.to_string()],
            known: RwLock::default(),
        })
    }

    /// The handles of a rank; they are made when it is first seen.
    pub(super) fn of(&self, rank: WorkerRank, worker_type: WorkerType) -> Arc<WorkerGauges> {
        let key = (rank, worker_type);
        if let Some(known) = self.known.read().get(&key) {
            return Arc::clone(known);
        }
        Arc::clone(self.known.write().entry(key).or_insert_with(|| Arc::new(self.make(rank, worker_type))))
    }

    /// Removes the series of every rank that `is_there` does not know.
    pub(super) fn retain(&self, is_there: impl Fn(&(WorkerRank, WorkerType)) -> bool) {
        self.known.write().retain(|key, _| {
            let stays = is_there(key);
            if !stays {
                self.remove(key.0, key.1);
            }
            stays
        });
    }

    fn make(&self, rank: WorkerRank, worker_type: WorkerType) -> WorkerGauges {
        let labels = labels(rank, worker_type);
        self.registered.with_label_values(&self.registered(&labels)).set(1);
        let labels = &labels.each_ref().map(String::as_str);
        WorkerGauges {
            active_blocks: self.active_blocks.with_label_values(labels),
            prefill_tokens: self.prefill_tokens.with_label_values(labels),
            last_ttft: self.last_ttft.with_label_values(labels),
            last_itl: self.last_itl.with_label_values(labels),
            last_isl: self.last_isl.with_label_values(labels),
            active_requests: self.active_requests.with_label_values(labels),
            bindings: self.bindings.with_label_values(labels),
            busy: self.busy.with_label_values(labels),
            quarantined: self.quarantined.with_label_values(labels),
            draining: self.draining.with_label_values(labels),
        }
    }

    fn remove(&self, rank: WorkerRank, worker_type: WorkerType) {
        let labels = labels(rank, worker_type);
        let _ = self.registered.remove_label_values(&self.registered(&labels));
        let labels = &labels.each_ref().map(String::as_str);
        let whole = [
            &self.active_blocks,
            &self.prefill_tokens,
            &self.last_isl,
            &self.active_requests,
            &self.bindings,
            &self.busy,
            &self.quarantined,
            &self.draining,
        ];
        // The only error is that there is no such series, which is what is wanted.
        for family in whole {
            let _ = family.remove_label_values(labels);
        }
        for family in [&self.last_ttft, &self.last_itl] {
            let _ = family.remove_label_values(labels);
        }
    }

    fn registered<'a>(&'a self, rank: &'a [String; RANK.len()]) -> Vec<&'a str> {
        self.identity.iter().chain(rank).map(String::as_str).collect()
    }
}

fn labels(rank: WorkerRank, worker_type: WorkerType) -> [String; RANK.len()] {
    [rank.worker.0.to_string(), rank.dp_rank.to_string(), worker_type.as_str().to_owned()]
}
