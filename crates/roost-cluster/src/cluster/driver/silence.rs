//! Workers whose KV events do not come although they ought to.

use foldhash::HashMap;
use roost_kv::WorkerId;
use tokio::time::Instant;

use super::{Driver, Unread};
use crate::cluster::watchdog::Checked;
use crate::update::Update;
use crate::worker::Role;

impl Driver {
    /// Looks for workers whose KV events do not come.
    pub(super) async fn watch(&mut self) -> Result<(), Unread> {
        if !self.config.kv_events {
            return Ok(());
        }
        let silent = self.silent_workers();
        self.shared.stats.lock().workers_without_events = silent.len() as u64;
        let Checked { due, over } = self.watchdog.check(Instant::now(), &silent);
        for worker in over {
            if let Some(info) = self.state.worker(worker) {
                tracing::info!(%worker, endpoint = %info.endpoint, "kv events of this worker come again");
                self.emit(Update::KvSilent { worker, epoch: info.epoch, silent: false }).await?;
            }
        }
        for (worker, first) in due {
            let Some(info) = self.state.worker(worker) else { continue };
            let reason = if !info.card.runtime_config.kv_event_publishing_enabled {
                "its card says that it publishes none"
            } else if self.subscriptions.values().any(|running| running.plan.content.worker() == Some(worker))
            {
                "its event publisher cannot be reached"
            } else {
                "it has no event source record, or one without a usable channel"
            };
            tracing::warn!(%worker, endpoint = %info.endpoint, model = info.card.display_name, reason,
                "no kv events from this worker; what it holds is guessed from what is sent to it");
            if first {
                self.emit(Update::KvSilent { worker, epoch: info.epoch, silent: true }).await?;
            }
        }
        Ok(())
    }

    /// Workers that hold prompts and are not connected with all their ranks.
    fn silent_workers(&self) -> Vec<WorkerId> {
        let mut connected: HashMap<WorkerId, usize> = HashMap::default();
        for running in self.subscriptions.values().filter(|running| running.connected) {
            if let Some(worker) = running.plan.content.worker() {
                *connected.entry(worker).or_default() += 1;
            }
        }
        let prefills =
            self.state.workers().filter(|info| matches!(info.role, Role::Aggregated | Role::Prefill));
        prefills
            .filter(|info| connected.get(&info.worker).copied().unwrap_or(0) < info.ranks.len())
            .map(|info| info.worker)
            .collect()
    }
}
