//! Where what engines say of themselves is put behind the cluster's updates: a worker's changes never overtake its joining.

use std::collections::HashMap;

use roost_cluster::Update;
use roost_kv::WorkerId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Updates that may wait for the frontend.
const CAPACITY: usize = 1024;

/// The way in for the members.
#[derive(Debug, Clone)]
pub(super) struct Tap {
    out: mpsc::Sender<Update>,
    joined: watch::Receiver<HashMap<WorkerId, u64>>,
}

/// Passes the cluster's updates on, with room for more.
pub(super) fn start(
    mut updates: mpsc::Receiver<Update>,
    stop: &CancellationToken,
) -> (Tap, mpsc::Receiver<Update>) {
    let (out, merged) = mpsc::channel(CAPACITY);
    let (joins, joined) = watch::channel(HashMap::new());
    let tap = Tap { out: out.clone(), joined };
    let passing = async move {
        while let Some(update) = updates.recv().await {
            let note = match &update {
                Update::Joined(info) | Update::Changed(info) => Some((info.worker, Some(info.epoch))),
                Update::Left { worker, .. } => Some((*worker, None)),
                _ => None,
            };
            if out.send(update).await.is_err() {
                return;
            }
            // After the update itself: whoever waits for it may speak now.
            match note {
                Some((worker, Some(epoch))) => joins.send_modify(|joined| {
                    joined.insert(worker, epoch);
                }),
                Some((worker, None)) => joins.send_modify(|joined| {
                    joined.remove(&worker);
                }),
                None => {}
            }
        }
    };
    tokio::spawn(stop.clone().run_until_cancelled_owned(passing));
    (tap, merged)
}

impl Tap {
    /// Waits until a worker has joined; returns the epoch of that. `None` at the end of everything.
    pub(super) async fn epoch(&mut self, worker: WorkerId) -> Option<u64> {
        let joined = self.joined.wait_for(|joined| joined.contains_key(&worker)).await.ok()?;
        joined.get(&worker).copied()
    }

    /// Passes on what an engine says. False: nobody listens any more.
    pub(super) async fn send(&self, update: Update) -> bool {
        self.out.send(update).await.is_ok()
    }
}
