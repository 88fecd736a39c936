//! Which batch is next. Pure.

use std::hash::{BuildHasher as _, RandomState};

/// The numbers of one rank's batches. They begin at 0 with each process of the engine and name no process.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The last batch that was applied, with a fingerprint of its bytes, which hold a time.
    last: Option<(u64, u64)>,
    /// The number that is due.
    expected: Option<u64>,
    /// The last number that came over the present connection.
    on_connection: Option<u64>,
    connections: u64,
    fingerprints: RandomState,
}

/// What to do with a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is the next one.
    Apply,
    /// It was applied before.
    Skip,
    /// Something is missing before it.
    Gap,
}

impl Order {
    /// A connection stands.
    pub(super) fn connected(&mut self) {
        self.on_connection = None;
        self.connections += 1;
    }

    /// Whether there was a connection before this one.
    pub(super) fn is_reconnected(&self) -> bool {
        self.connections > 1
    }

    /// The number that is due.
    pub(super) fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// The number of the last batch applied.
    pub(super) fn last(&self) -> Option<u64> {
        self.last.map(|(number, _)| number)
    }

    /// A live batch. Over one connection numbers only grow, so that a smaller one is no repetition but another count.
    pub(super) fn live(&mut self, number: u64) -> Step {
        let falls = self.on_connection.is_some_and(|before| number < before);
        self.on_connection = Some(number);
        match self.expected {
            _ if falls => Step::Gap,
            None => Step::Apply,
            Some(expected) if number < expected => Step::Skip,
            Some(expected) if number == expected => Step::Apply,
            Some(_) => Step::Gap,
        }
    }

    /// A batch out of a replay.
    pub(super) fn replayed(&self, number: u64) -> Step {
        match self.expected {
            None => Step::Apply,
            Some(expected) if number < expected => Step::Skip,
            Some(expected) if number == expected => Step::Apply,
            Some(_) => Step::Gap,
        }
    }

    /// A batch was applied.
    pub(super) fn applied(&mut self, number: u64, payload: &[u8]) {
        self.last = Some((number, self.fingerprints.hash_one(payload)));
        self.expected = number.checked_add(1);
    }

    /// Whether a batch is the last one applied: the same process still counts.
    pub(super) fn is_same(&self, number: u64, payload: &[u8]) -> bool {
        self.last == Some((number, self.fingerprints.hash_one(payload)))
    }

    /// What is missing will not come: the next batch is this one.
    pub(super) fn jump(&mut self, number: u64) {
        self.expected = Some(number);
    }

    /// Nothing was applied yet.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.expected = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_batches() {
        let mut order = Order::default();
        order.connected();
        assert!(!order.is_reconnected());
        assert_eq!(order.live(5), Step::Apply, "without a replay one begins anywhere");
        order.applied(5, b"five");
        assert_eq!(order.live(6), Step::Apply);
        order.applied(6, b"six");
        assert_eq!(order.live(8), Step::Gap);
        assert_eq!(order.replayed(6), Step::Skip);
        assert_eq!(order.replayed(7), Step::Apply);
        order.applied(7, b"seven");
        order.applied(8, b"eight");
        assert_eq!(order.live(8), Step::Skip, "the replay had it");
        order.connected();
        assert!(order.is_reconnected());
        assert_eq!(order.live(3), Step::Skip, "waited in the socket during a replay");
        assert_eq!(order.live(2), Step::Gap, "another count");
    }

    #[test]
    fn the_same_process_is_told_by_its_bytes() {
        let mut order = Order::default();
        assert!(!order.is_same(0, b"x"));
        order.applied(4, b"four at 12:00");
        assert!(order.is_same(4, b"four at 12:00"));
        assert!(!order.is_same(4, b"four at 13:00") && !order.is_same(5, b"four at 12:00"));
        order.forget();
        assert!(!order.is_same(4, b"four at 12:00"));
    }
}
