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

/// What a look at the silent workers brings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// Workers to warn about, and whether for the first time.
    pub(super) due: Vec<(WorkerId, bool)>,
    /// Workers whose silence, once warned about, is over.
    pub(super) over: Vec<WorkerId>,
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

    /// Takes the workers that are silent now and returns those to warn about, after the first patience and then once a
    /// minute, and those that were warned about and are silent no more.
    pub(super) fn check(&mut self, now: Instant, silent_now: &[WorkerId]) -> Checked {
        let mut checked = Checked::default();
        self.silent.retain(|worker, silent| {
            let still = silent_now.contains(worker);
            if !still && silent.warned.is_some() {
                checked.over.push(*worker);
            }
            still
        });
        for &worker in silent_now {
            let silent = self.silent.entry(worker).or_insert(Silent { since: now, warned: None });
            let ripe = match silent.warned {
                None => now - silent.since >= self.patience,
                Some(warned) => now - warned >= REPEAT,
            };
            if ripe {
                checked.due.push((worker, silent.warned.is_none()));
                silent.warned = Some(now);
            }
        }
        checked
    }
}

#[cfg(test)]
mod tests;
