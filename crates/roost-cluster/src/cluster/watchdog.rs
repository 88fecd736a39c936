//! Notices workers whose KV events never come: nothing else in the system could tell the operator.

use std::time::Duration;

use foldhash::HashMap;
use roost_kv::WorkerId;
use tokio::time::Instant;

const REPEAT: Duration = Duration::from_secs(60);

/// Remembers since when workers have been silent.
#[derive(Debug)]
pub(super) struct Watchdog {
    patience: Duration,
    silent: HashMap<WorkerId, Silent>,
}

#[derive(Clone, Copy, Debug)]
struct Silent {
    since: Instant,
    warned: Option<Instant>,
}

impl Watchdog {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, silent: HashMap::default() }
    }

    /// Takes the workers that are silent now and returns those to warn about: after the first patience, then once a
    /// minute.
    pub(super) fn check(&mut self, now: Instant, silent_now: &[WorkerId]) -> Vec<WorkerId> {
        self.silent.retain(|worker, _| silent_now.contains(worker));
        let mut due = Vec::new();
        for &worker in silent_now {
            let silent = self.silent.entry(worker).or_insert(Silent { since: now, warned: None });
            let ripe = match silent.warned {
                None => now - silent.since >= self.patience,
                Some(warned) => now - warned >= REPEAT,
            };
            if ripe {
                silent.warned = Some(now);
                due.push(worker);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests;
