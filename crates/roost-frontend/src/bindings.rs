//! Bindings across a restart: written to a file now and then and at the end, read in the background at the start.
//!
//! All of it runs on a thread of its own. Serving waits for none of it: a session that is asked for before the file has
//! been read is placed like a new one, and what happens while it is read is newer than what is in it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use roost_router::{Role, SavedBinding};

use crate::models::{Pool, Registry};

mod file;
#[cfg(test)]
mod tests;

/// Where bindings outlive the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingsFile {
    /// The file; written whole under another name and then renamed.
    pub path: PathBuf,
    /// Time between two writes.
    pub interval: Duration,
    /// Most bindings that are read.
    pub limit: usize,
}

/// A pool as the file names it: model, checksum of the card, role.
type Key = (Box<str>, Box<str>, Role);

/// Bindings of pools, read or to be written.
type Saved = HashMap<Key, Vec<SavedBinding>>;

/// The pools that bindings are written of, and what was read for pools that are not there yet.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pools: Vec<(Key, Weak<Pool>)>,
    unclaimed: Saved,
    read_at: Option<Instant>,
}

/// The thread that reads and writes. Dropped without [`Keeper::stop`], it ends without a last write.
#[derive(Debug)]
pub(crate) struct Keeper {
    thread: JoinHandle<()>,
    stop: mpsc::SyncSender<()>,
}

impl Bindings {
    /// Takes note of the pools that serve; a new one gets what was read for it.
    pub(crate) fn attach(&self, registry: &Registry) {
        for (model, card, pool) in &registry.pools {
            let key = (model.clone(), card.clone(), pool.router.role());
            let found = {
                let mut state = self.state.lock();
                state.pools.retain(|(_, known)| known.strong_count() > 0);
                let weak = Arc::downgrade(pool);
                if state.pools.iter().any(|(_, known)| known.ptr_eq(&weak)) {
                    continue;
                }
                state.pools.push((key.clone(), weak));
                state.claim(&key)
            };
            restore(pool, found);
        }
    }

    /// Hands out what was read.
    fn offer(&self, saved: Saved) {
        let claims: Vec<(Arc<Pool>, Vec<SavedBinding>)> = {
            let mut state = self.state.lock();
            state.unclaimed = saved;
            state.read_at = Some(Instant::now());
            let pools: Vec<(Key, Arc<Pool>)> =
                state.pools.iter().filter_map(|(key, pool)| Some((key.clone(), pool.upgrade()?))).collect();
            pools.into_iter().map(|(key, pool)| (pool, state.claim(&key))).collect()
        };
        claims.into_iter().for_each(|(pool, found)| restore(&pool, found));
    }

    /// Returns the bindings of every pool, and those that wait for a pool.
    fn collect(&self) -> Saved {
        let (pools, mut saved) = {
            let state = self.state.lock();
            let pools: Vec<(Key, Arc<Pool>)> =
                state.pools.iter().filter_map(|(key, pool)| Some((key.clone(), pool.upgrade()?))).collect();
            (pools, state.waiting())
        };
        for (key, pool) in pools {
            saved.entry(key).or_default().extend(pool.router.save());
        }
        saved
    }

    /// Starts reading and writing `config`. Returns at once.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn keep(self: &Arc<Self>, config: BindingsFile) -> std::io::Result<Keeper> {
        let (stop, stopped) = mpsc::sync_channel(1);
        let bindings = Arc::clone(self);
        let thread = std::thread::Builder::new().name("bindings".into()).spawn(move || {
            match file::read(&config.path, SystemTime::now(), config.limit) {
                Ok(saved) => {
                    let count: usize = saved.values().map(Vec::len).sum();
                    tracing::info!(path = %config.path.display(), count, "bindings read");
                    bindings.offer(saved);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => bindings.offer(Saved::new()),
                Err(error) => {
                    tracing::warn!(path = %config.path.display(), %error, "bindings cannot be read");
                    bindings.offer(Saved::new());
                }
            }
            loop {
                let ended = match stopped.recv_timeout(config.interval) {
                    Err(RecvTimeoutError::Timeout) => false,
                    Ok(()) => true,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if let Err(error) = file::write(&config.path, SystemTime::now(), &bindings.collect()) {
                    tracing::warn!(path = %config.path.display(), %error, "bindings cannot be written");
                }
                if ended {
                    return;
                }
            }
        })?;
        Ok(Keeper { thread, stop })
    }
}

impl Keeper {
    /// Writes a last time and ends the thread. Blocks until that is done.
    pub(crate) fn stop(self) {
        if self.stop.send(()).is_ok() && self.thread.join().is_err() {
            tracing::error!("the thread that keeps bindings has panicked");
        }
    }
}

impl State {
    /// Takes out what was read for a pool, with the time since then counted as idle.
    fn claim(&mut self, key: &Key) -> Vec<SavedBinding> {
        let waited = self.read_at.map_or(Duration::ZERO, |at| at.elapsed());
        let mut found = self.unclaimed.remove(key).unwrap_or_default();
        found.iter_mut().for_each(|binding| binding.idle += waited);
        found
    }

    /// Returns what no pool has claimed yet.
    fn waiting(&self) -> Saved {
        let waited = self.read_at.map_or(Duration::ZERO, |at| at.elapsed());
        let mut saved = self.unclaimed.clone();
        saved.values_mut().flatten().for_each(|binding| binding.idle += waited);
        saved
    }
}

fn restore(pool: &Pool, found: Vec<SavedBinding>) {
    if !found.is_empty() {
        pool.router.restore(found);
    }
}
