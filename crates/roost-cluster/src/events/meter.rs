//! What all subscriptions count together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::EventError;
use crate::record::Topic;

/// Counters of the subscriptions' tasks; read by the driver.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Messages that could not be used.
    pub(crate) undecodable: AtomicU64,
    /// Age of the newest message of KV events, milliseconds.
    pub(crate) kv_lag_ms: AtomicU64,
    /// ZeroMQ sockets of KV events.
    kv: Sockets,
    /// ZeroMQ sockets on which others tell of what they place.
    sequences: Sockets,
}

/// Counts of one topic's ZeroMQ sockets.
#[derive(Debug, Default)]
struct Sockets {
    messages: AtomicU64,
    connects: AtomicU64,
    reconnects: AtomicU64,
    gaps: AtomicU64,
    out_of_order: AtomicU64,
    bad_envelopes: AtomicU64,
    bad_payloads: AtomicU64,
    foreign: AtomicU64,
}

/// What the ZeroMQ sockets of one topic have brought, all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats {
    /// Gauge: sockets followed.
    pub followed: u64,
    /// Gauge: sockets that are connected.
    pub connected: u64,
    /// Sockets that were begun to be followed.
    pub started: u64,
    /// Sockets that are followed no more.
    pub removed: u64,
    /// Messages whose envelope could be read.
    pub messages: u64,
    /// Connections made.
    pub connects: u64,
    /// Attempts to connect once more.
    pub reconnects: u64,
    /// Messages missing, by their numbers.
    pub gaps: u64,
    /// Messages whose number did not grow.
    pub out_of_order: u64,
    /// Messages that could not be read.
    pub bad_envelopes: u64,
    /// Messages whose content could not be read.
    pub bad_payloads: u64,
    /// Messages that are not their publisher's.
    pub foreign: u64,
}

impl Meter {
    fn of(&self, topic: Topic) -> Option<&Sockets> {
        match topic {
            Topic::KvEvents => Some(&self.kv),
            Topic::ActiveSequences => Some(&self.sequences),
            Topic::KvMetrics | Topic::SessionAffinity => None,
        }
    }

    /// A message with this number came from a socket; `last` is the number of its publisher's one before.
    pub(crate) fn message(&self, topic: Topic, number: u64, last: &mut Option<u64>) {
        let Some(sockets) = self.of(topic) else { return };
        sockets.messages.fetch_add(1, Relaxed);
        match last.replace(number) {
            Some(before) if number <= before => _ = sockets.out_of_order.fetch_add(1, Relaxed),
            Some(before) => _ = sockets.gaps.fetch_add(number - before - 1, Relaxed),
            None => {}
        }
    }

    /// A socket is connected.
    pub(crate) fn connected(&self, topic: Topic) {
        if let Some(sockets) = self.of(topic) {
            sockets.connects.fetch_add(1, Relaxed);
        }
    }

    /// A socket is connected to once more.
    pub(crate) fn reconnects(&self, topic: Topic) {
        if let Some(sockets) = self.of(topic) {
            sockets.reconnects.fetch_add(1, Relaxed);
        }
    }

    /// A message cannot be used. True the first time.
    pub(crate) fn unusable(&self, topic: Topic, error: &EventError) -> bool {
        if let Some(sockets) = self.of(topic) {
            let counter = match error {
                EventError::Envelope(_) => &sockets.bad_envelopes,
                EventError::Identity(_) => &sockets.foreign,
                EventError::Payload { .. } => &sockets.bad_payloads,
            };
            counter.fetch_add(1, Relaxed);
        }
        self.undecodable.fetch_add(1, Relaxed) == 0
    }

    /// Writes what was counted about a topic's sockets.
    pub(crate) fn read(&self, topic: Topic, stats: &mut SocketStats) {
        let Some(sockets) = self.of(topic) else { return };
        stats.messages = sockets.messages.load(Relaxed);
        stats.connects = sockets.connects.load(Relaxed);
        stats.reconnects = sockets.reconnects.load(Relaxed);
        stats.gaps = sockets.gaps.load(Relaxed);
        stats.out_of_order = sockets.out_of_order.load(Relaxed);
        stats.bad_envelopes = sockets.bad_envelopes.load(Relaxed);
        stats.bad_payloads = sockets.bad_payloads.load(Relaxed);
        stats.foreign = sockets.foreign.load(Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_repetitions_are_told_apart_and_by_topic() {
        let meter = Meter::default();
        let mut last = None;
        for number in [7, 8, 11, 11, 3, 4] {
            meter.message(Topic::ActiveSequences, number, &mut last);
        }
        meter.message(Topic::KvEvents, 1, &mut None);
        let (mut sequences, mut kv) = (SocketStats::default(), SocketStats::default());
        meter.read(Topic::ActiveSequences, &mut sequences);
        meter.read(Topic::KvEvents, &mut kv);
        // 9 and 10 are missing; the second 11 and the 3 are not new.
        assert_eq!(
            sequences,
            SocketStats { messages: 6, gaps: 2, out_of_order: 2, ..SocketStats::default() }
        );
        assert_eq!(kv, SocketStats { messages: 1, ..SocketStats::default() });
    }

    #[test]
    fn messages_that_cannot_be_used_are_counted_by_what_is_wrong() {
        let meter = Meter::default();
        assert!(meter.unusable(Topic::KvMetrics, &EventError::Envelope("x".into())), "the first one");
        for error in [
            EventError::Envelope("x".into()),
            EventError::Identity("x".into()),
            EventError::Payload { what: "y", reason: "z".into() },
        ] {
            assert!(!meter.unusable(Topic::KvEvents, &error));
        }
        let mut kv = SocketStats::default();
        meter.read(Topic::KvEvents, &mut kv);
        assert_eq!([kv.bad_envelopes, kv.foreign, kv.bad_payloads], [1, 1, 1]);
        assert_eq!(meter.undecodable.load(Relaxed), 4);
    }
}
