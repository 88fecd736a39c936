//! What a worker was asked, and what became of it, for tests and demonstrations to look at.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use roost_wire::message::EngineRequest;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::CancelKind;

/// A bounded record of requests, cancellations and ends, in the order in which they happened.
///
/// Owner of its entries; clones of the `Arc` read. When full, the oldest entry is dropped.
pub struct Journal {
    capacity: usize,
    entries: Mutex<VecDeque<JournalEntry>>,
    /// Counts entries ever written, so that waiters notice changes.
    written: watch::Sender<u64>,
}

/// One line of the journal.
#[derive(Debug, Clone)]
pub enum JournalEntry {
    /// A request arrived at the engine.
    Request(Arc<RequestRecord>),
    /// The first item of its answer is about to be sent: its prefill is over.
    Began(Began),
    /// A request was cancelled by its caller.
    Cancelled(Cancellation),
    /// The answer of a request ended.
    Finished(Finished),
}

/// A request as the engine received it.
#[derive(Debug)]
pub struct RequestRecord {
    /// Request id.
    pub id: String,
    /// Worker that received it.
    pub worker_id: u64,
    /// Time on the runtime's clock.
    pub at: Instant,
    /// Time on the wall clock.
    pub wall: SystemTime,
    /// The prompt as text, when the worker was given a way to decode it.
    pub text: Option<String>,
    /// What the client wanted the worker to know.
    pub metadata: BTreeMap<String, String>,
    /// Headers of the request on the plane.
    pub headers: Vec<(String, String)>,
    /// The whole request: token ids, limits, routing, agent context.
    pub request: EngineRequest,
}

/// The begin of an answer.
#[derive(Debug, Clone)]
pub struct Began {
    /// Request id.
    pub id: String,
    /// Worker that answers.
    pub worker_id: u64,
    /// Time on the runtime's clock.
    pub at: Instant,
}

/// A cancellation that reached a worker.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// Request id.
    pub id: String,
    /// Worker that received it.
    pub worker_id: u64,
    /// Stop or kill; a connection closed by the caller counts as kill.
    pub kind: CancelKind,
    /// Time on the runtime's clock.
    pub at: Instant,
}

/// The end of an answer.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Request id.
    pub id: String,
    /// Worker that answered.
    pub worker_id: u64,
    /// How it ended.
    pub how: Finish,
    /// Items sent.
    pub items: u64,
    /// Time on the runtime's clock.
    pub at: Instant,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The engine's stream ended by itself.
    Complete,
    /// The engine reported an error.
    Failed,
    /// The answer was dropped before its end: cancelled, or its connection was lost.
    Dropped,
}

/// A condition did not come true in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("condition not met within {0:?}")]
pub struct WaitTimeout(pub Duration);

impl Journal {
    /// Makes an empty journal that keeps the last `capacity` entries; 0 records nothing.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entries: Mutex::default(), written: watch::Sender::new(0) }
    }

    /// Whether entries are kept at all.
    pub fn is_recording(&self) -> bool {
        self.capacity > 0
    }

    /// Adds an entry and wakes those who wait.
    pub fn record(&self, entry: JournalEntry) {
        if self.capacity == 0 {
            return;
        }
        {
            let mut entries = self.entries.lock();
            if entries.len() == self.capacity {
                entries.pop_front();
            }
            entries.push_back(entry);
        }
        self.written.send_modify(|count| *count += 1);
    }

    /// All entries that are still kept, oldest first.
    pub fn entries(&self) -> Vec<JournalEntry> {
        self.entries.lock().iter().cloned().collect()
    }

    /// The requests, oldest first.
    pub fn requests(&self) -> Vec<Arc<RequestRecord>> {
        let entries = self.entries.lock();
        entries
            .iter()
            .filter_map(|entry| if let JournalEntry::Request(r) = entry { Some(r.clone()) } else { None })
            .collect()
    }

    /// The cancellations, oldest first.
    pub fn cancellations(&self) -> Vec<Cancellation> {
        let entries = self.entries.lock();
        entries
            .iter()
            .filter_map(|entry| if let JournalEntry::Cancelled(c) = entry { Some(c.clone()) } else { None })
            .collect()
    }

    /// The ends of answers, oldest first.
    pub fn finished(&self) -> Vec<Finished> {
        let entries = self.entries.lock();
        entries
            .iter()
            .filter_map(|entry| if let JournalEntry::Finished(f) = entry { Some(f.clone()) } else { None })
            .collect()
    }

    /// Waits until `look` finds something in the journal, at most `within`. Cancel safe.
    ///
    /// `look` runs once at first and again after every new entry.
    pub async fn wait_for<T>(
        &self,
        within: Duration,
        mut look: impl FnMut(&Journal) -> Option<T>,
    ) -> Result<T, WaitTimeout> {
        let mut written = self.written.subscribe();
        let search = async {
            loop {
                written.borrow_and_update();
                if let Some(found) = look(self) {
                    return found;
                }
                if written.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(within, search).await.map_err(|_| WaitTimeout(within))
    }
}

impl Default for Journal {
    /// A journal of the last 4096 entries.
    fn default() -> Self {
        Self::new(4096)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("entries", &self.entries.lock().len())
            .field("capacity", &self.capacity)
            .finish()
    }
}

#[cfg(test)]
mod tests;
