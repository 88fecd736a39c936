//! The thread that does all file work of one handle: orders, keep-alives, looking, reaping.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::watch;

use super::FileDiscoveryConfig;
use super::scan::Listing;
use super::store::Store;
use crate::discovery::Snapshot;
use crate::discovery::orders::Command;
use crate::discovery::view::View;
use crate::record::{Bucket, RecordKey};

#[derive(Debug)]
pub(super) struct Keeper {
    store: Store,
    poll: Duration,
    own: BTreeMap<RecordKey, Bytes>,
    listings: [Listing; Bucket::ALL.len()],
    view: View,
    snapshot: watch::Sender<Arc<Snapshot>>,
    unreachable_since: Option<Instant>,
    touched: Instant,
    looked: Option<Instant>,
    /// Nothing is reaped before this moment: owners get time to renew their records after an outage or a jump in time.
    reap_after: Option<Instant>,
    clocks: (Instant, SystemTime),
    /// A failed keep-alive has been logged.
    complained: bool,
}

impl Keeper {
    pub(super) fn new(config: FileDiscoveryConfig, snapshot: watch::Sender<Arc<Snapshot>>) -> Self {
        let now = Instant::now();
        Self {
            store: Store { root: config.root, ttl: config.ttl },
            poll: config.poll,
            own: BTreeMap::new(),
            listings: Default::default(),
            view: View::default(),
            snapshot,
            unreachable_since: None,
            touched: now,
            looked: None,
            reap_after: None,
            clocks: (now, SystemTime::now()),
            complained: false,
        }
    }

    /// Works until the handle is closed or dropped, then deletes the handle's records.
    pub(super) fn run(mut self, inbox: &Receiver<Command>) {
        let mut closed = None;
        loop {
            self.tick();
            match inbox.recv_timeout(self.pause()) {
                Ok(Command::Close { reply }) => {
                    closed = Some(reply);
                    break;
                }
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for key in std::mem::take(&mut self.own).into_keys() {
            if let Err(error) = self.store.remove(&key) {
                tracing::warn!(%key, %error, "own discovery record not deleted; it expires by itself");
            }
        }
        if let Some(reply) = closed {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Put { key, value, reply } => {
                let written = if self.own.contains_key(&key) {
                    self.store.replace(&key, &value)
                } else {
                    self.store.create(&key, &value)
                };
                if written.is_ok() {
                    self.own.insert(key, value);
                }
                let _ = reply.send(written);
            }
            Command::Delete { key, reply } => {
                let removed = if self.own.remove(&key).is_some() { self.store.remove(&key) } else { Ok(()) };
                if let Err(error) = &removed {
                    tracing::warn!(%key, %error, "own discovery record not deleted; it expires by itself");
                }
                let _ = reply.send(removed);
            }
            Command::Abandon { key } => {
                self.own.remove(&key);
            }
            Command::Close { .. } => unreachable!("handled by run, which owns the thread's end"),
        }
        // The look that follows must see the change although it may be within the same poll.
        self.looked = None;
    }

    fn keep_alive(&self) -> Duration {
        self.store.ttl / 3
    }

    fn look_every(&self) -> Duration {
        // The handle itself holds one receiver; more means that somebody watches.
        if self.snapshot.receiver_count() > 1 { self.poll } else { self.keep_alive() }
    }

    fn pause(&self) -> Duration {
        let look = self.looked.map_or(Duration::ZERO, |at| self.look_every().saturating_sub(at.elapsed()));
        let touch = self.keep_alive().saturating_sub(self.touched.elapsed());
        // Waking at the poll rate also notices a new watcher; it costs nothing that could be measured.
        look.min(touch).min(self.poll).max(Duration::from_millis(1))
    }

    fn tick(&mut self) {
        self.watch_clocks();
        if self.touched.elapsed() >= self.keep_alive() {
            self.touched = Instant::now();
            self.renew();
        }
        if self.looked.is_none_or(|at| at.elapsed() >= self.look_every()) {
            self.looked = Some(Instant::now());
            self.look();
        }
    }

    /// After a stall of this process or a step of the clock, ages say nothing for a while.
    fn watch_clocks(&mut self) {
        let (monotonic, system) = (Instant::now(), SystemTime::now());
        let passed = monotonic - self.clocks.0;
        let by_system = system.duration_since(self.clocks.1).unwrap_or_default();
        self.clocks = (monotonic, system);
        if passed.max(by_system) > self.store.ttl / 2 {
            self.reap_after = Some(monotonic + self.store.ttl);
        }
    }

    /// Touches own records and writes those again that somebody has deleted.
    fn renew(&mut self) {
        let mut failed = false;
        for (key, value) in &self.own {
            let renewed = match self.store.touch(key) {
                Ok(true) => continue,
                Ok(false) => self.store.create(key, value),
                Err(error) => Err(error),
            };
            match renewed {
                Ok(()) => tracing::warn!(%key, "own discovery record had been deleted; it is back"),
                Err(error) if !self.complained => {
                    tracing::warn!(%key, %error, "own discovery record could not be renewed");
                    failed = true;
                }
                Err(_) => failed = true,
            }
        }
        self.complained = failed;
    }

    fn look(&mut self) {
        let mut changed = false;
        let mut replaced = false;
        let mut failure = None;
        let may_reap =
            self.unreachable_since.is_none() && self.reap_after.is_none_or(|at| at <= Instant::now());
        for (index, bucket) in Bucket::ALL.into_iter().enumerate() {
            let directory = self.store.directory(bucket);
            let listing = &mut self.listings[index];
            match listing.look(&directory, self.store.ttl, SystemTime::now()) {
                Ok(look) => {
                    changed |= look.changed;
                    replaced |= look.replaced;
                    if may_reap && !look.stale.is_empty() {
                        let dead = self.store.reap(bucket, &look.stale);
                        changed |= !dead.is_empty();
                        listing.forget(&dead);
                    }
                }
                // Not created yet. A directory that held records and is gone counts as a store that is away.
                Err(error) if error.kind() == ErrorKind::NotFound && listing.is_empty() => {}
                Err(error) => failure = Some((directory, error)),
            }
        }
        let was_unreachable = self.unreachable_since.is_some();
        match failure {
            Some((directory, error)) if !was_unreachable => {
                tracing::warn!(directory = %directory.display(), %error, "discovery store is away; the last known workers stay");
                self.unreachable_since = Some(Instant::now());
            }
            Some(_) => {}
            None if was_unreachable => {
                tracing::info!("discovery store is back");
                self.unreachable_since = None;
                self.reap_after = Some(Instant::now() + self.store.ttl);
            }
            None => {}
        }
        // Whoever is missing after an outage, or after somebody made the store anew, gets time to return.
        if replaced || was_unreachable && self.unreachable_since.is_none() {
            self.view.hold(Instant::now() + self.store.ttl);
        }
        changed |= self.view.expire(Instant::now());
        let before = self.snapshot.borrow().clone();
        if changed || !before.synced || before.unreachable_since != self.unreachable_since {
            self.publish(&before);
        }
        self.restore_missing();
    }

    fn publish(&mut self, before: &Snapshot) {
        let mut records = BTreeMap::new();
        for (bucket, listing) in Bucket::ALL.into_iter().zip(&self.listings) {
            records
                .extend(listing.records().into_iter().map(|(key, value)| (RecordKey { bucket, key }, value)));
        }
        // A store that was never readable has not been read: its emptiness means nothing.
        let synced = before.synced || self.unreachable_since.is_none();
        self.view.listed(records);
        let records = self.view.records().clone();
        let snapshot = Snapshot { records, synced, unreachable_since: self.unreachable_since };
        self.snapshot.send_replace(Arc::new(snapshot));
    }

    /// Own records that the look did not find are written again at once rather than at the next keep-alive.
    fn restore_missing(&mut self) {
        if self.unreachable_since.is_some() || self.own.is_empty() {
            return;
        }
        if self.own.keys().any(|key| self.view.stored(key).is_none()) {
            self.renew();
        }
    }
}
