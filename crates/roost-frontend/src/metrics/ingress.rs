//! What comes in from workers and other frontends, under the peer's names: KV events by what came of them, and the
//! channels of other frontends.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use roost_cluster::{ClusterStats, events::SocketStats};
use roost_kv::{Applied, KvEventData};
use roost_telemetry::{Error, Name, Registry};

use super::{MetricsOptions, sample::growth};

/// Labels of the component that this router serves, whose values are those of this process.
pub(super) const COMPONENT: [&str; 3] = ["dynamo_namespace", "dynamo_component", "worker_id"];

/// `dynamo_component_*` of the index and of the event plane.
#[derive(Debug)]
pub(super) struct IngressFamilies {
    stored: [IntCounter; 2],
    removed: [IntCounter; 2],
    cleared: IntCounter,
    duplicates: IntCounter,
    kv_batches: IntCounter,
    kv_active: IntGauge,
    /// In the order of [`lifecycle`].
    kv_lifecycle: [IntCounter; LIFECYCLE.len()],
    sources: IntGauge,
    /// In the order of [`sequence_counts`].
    sequences: [IntCounter; 6],
    applied: IntCounterVec,
    mismatched: IntGaugeVec,
    identity: [String; COMPONENT.len()],
}

impl IngressFamilies {
    pub(super) fn register(r: &Registry, options: &MetricsOptions) -> Result<Self, Error> {
        let identity = [options.namespace.clone(), options.component.clone(), options.router_id.to_string()];
        let all = |more: &[&'static str]| COMPONENT.iter().chain(more).copied().collect::<Vec<_>>();
        let values = |more: &[&'static str]| {
            identity.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>()
        };
        let counter = |name, help| {
            Ok::<_, Error>(r.counter_vec(Name::Full(name), help, &COMPONENT)?.with_label_values(&identity))
        };
        let applied = r.counter_vec(
            Name::Full("dynamo_component_kv_cache_events_applied"),
            "KV events of workers that were given to an index, by what came of them.",
            &all(&["event_type", "status"]),
        )?;
        let event = |kind, status| applied.with_label_values(&values(&[kind, status]));
        let warnings = r.counter_vec(
            Name::Full("dynamo_component_kv_cache_event_warnings"),
            "KV events that are in order and still strange: duplicate_store says again what was said.",
            &all(&["warning_kind"]),
        )?;
        let lifecycle = r.counter_vec(
            Name::Full("dynamo_component_router_kv_zmq_ingress_lifecycle_total"),
            "What has happened to the ZeroMQ sockets of KV events: begun to be followed, connected, connected to once \
             more, followed no more, or an error in what came.",
            &all(&["action"]),
        )?;
        Ok(Self {
            stored: [event("stored", "ok"), event("stored", "parent_block_not_found")],
            removed: [event("removed", "ok"), event("removed", "block_not_found")],
            cleared: event("cleared", "ok"),
            duplicates: warnings.with_label_values(&values(&["duplicate_store"])),
            kv_batches: counter(
                "dynamo_component_router_kv_zmq_ingress_batches_total",
                "Batches of KV events that came by ZeroMQ.",
            )?,
            kv_active: r
                .gauge_vec(
                    Name::Full("dynamo_component_router_kv_zmq_ingress_sources"),
                    "ZeroMQ sockets of KV events; active are those that are connected.",
                    &all(&["state"]),
                )?
                .with_label_values(&values(&["active"])),
            kv_lifecycle: LIFECYCLE.map(|action| lifecycle.with_label_values(&values(&[action]))),
            sources: r
                .gauge_vec(
                    Name::Full("dynamo_component_router_active_sequence_zmq_ingress_sources"),
                    "ZeroMQ sockets of frontends and workers that are followed for what they place.",
                    &COMPONENT,
                )?
                .with_label_values(&identity),
            sequences: [
                counter(
                    "dynamo_component_router_active_sequence_zmq_ingress_sequence_gaps_total",
                    "Messages missing from those sockets, by their numbers.",
                )?,
                counter(
                    "dynamo_component_router_active_sequence_zmq_ingress_out_of_order_total",
                    "Messages from those sockets whose number did not grow.",
                )?,
                counter(
                    "dynamo_component_router_active_sequence_zmq_ingress_reconnects_total",
                    "Attempts to connect to one of those sockets again.",
                )?,
                counter(
                    "dynamo_component_router_active_sequence_zmq_ingress_envelope_decode_errors_total",
                    "Messages from those sockets that could not be read.",
                )?,
                counter(
                    "dynamo_component_router_active_sequence_zmq_ingress_payload_decode_errors_total",
                    "Messages from those sockets whose content could not be read.",
                )?,
                counter(
                    "dynamo_component_router_active_sequence_zmq_ingress_identity_errors_total",
                    "Messages from those sockets that are not their publisher's.",
                )?,
            ],
            applied: r.counter_vec(
                Name::Full("dynamo_component_router_active_sequence_ingress_events_applied_total"),
                "Steps of requests that other frontends placed, as they count here.",
                &all(&["model", "routing_group", "worker_type"]),
            )?,
            mismatched: r.gauge_vec(
                Name::Full("dynamo_component_router_kv_event_source_mismatch_workers"),
                "Workers whose cache the index does not know from their own events: they publish none, or ought to and are \
                 not heard.",
                &all(&["model", "target_namespace", "target_component", "target_endpoint", "worker_type"]),
            )?,
            identity,
        })
    }

    /// An event changed an index.
    pub(super) fn kv_event(&self, event: &KvEventData, applied: &Applied) {
        match event {
            KvEventData::Stored { .. } => {
                self.stored[usize::from(applied.skipped > 0)].inc();
                if applied.duplicate > 0 {
                    self.duplicates.inc();
                }
            }
            KvEventData::Removed { .. } => self.removed[usize::from(applied.unknown_removed > 0)].inc(),
            KvEventData::Cleared => self.cleared.inc(),
        }
    }

    /// Takes over what the event plane counted between two moments.
    pub(super) fn take(&self, before: &ClusterStats, now: &ClusterStats) {
        let whole = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.kv_batches.inc_by(growth(before.kv_sockets.messages, now.kv_sockets.messages));
        self.kv_active.set(whole(now.kv_sockets.connected));
        self.sources.set(whole(now.sequence_sockets.followed));
        take(&self.kv_lifecycle, lifecycle(&before.kv_sockets), lifecycle(&now.kv_sockets));
        let counts = [&before.sequence_sockets, &now.sequence_sockets].map(sequence_counts);
        take(&self.sequences, counts[0], counts[1]);
    }

    /// Steps told by others about the requests of a pool.
    pub(super) fn applied(&self, model: &str, group: &str, worker_type: &str) -> IntCounter {
        self.applied.with_label_values(&self.with(&[model, group, worker_type]))
    }

    /// Workers of a pool without events; `target` is namespace, component and endpoint.
    pub(super) fn mismatched(&self, model: &str, target: [&str; 3], worker_type: &str) -> IntGauge {
        let [namespace, component, endpoint] = target;
        self.mismatched.with_label_values(&self.with(&[model, namespace, component, endpoint, worker_type]))
    }

    fn with<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.identity.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }
}

/// Label `action` of what happens to sockets of KV events.
const LIFECYCLE: [&str; 7] = [
    "started",
    "activated",
    "reconnect",
    "removed",
    "envelope_decode_error",
    "payload_decode_error",
    "identity_mismatch",
];

fn lifecycle(stats: &SocketStats) -> [u64; LIFECYCLE.len()] {
    [
        stats.started,
        stats.connects,
        stats.reconnects,
        stats.removed,
        stats.bad_envelopes,
        stats.bad_payloads,
        stats.foreign,
    ]
}

fn sequence_counts(stats: &SocketStats) -> [u64; 6] {
    [stats.gaps, stats.out_of_order, stats.reconnects, stats.bad_envelopes, stats.bad_payloads, stats.foreign]
}

fn take<const N: usize>(counters: &[IntCounter; N], before: [u64; N], now: [u64; N]) {
    for (counter, (before, now)) in counters.iter().zip(before.into_iter().zip(now)) {
        counter.inc_by(growth(before, now));
    }
}
