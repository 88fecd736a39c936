//! Looking at the cluster from outside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::stats::ClusterStats;
use crate::record::InstanceRecord;
use crate::worker::WorkerInfo;

/// A view of the cluster for health pages and metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ClusterHandle {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) view: Mutex<View>,
    pub(super) stats: Mutex<ClusterStats>,
    pub(super) tasks: TaskTracker,
}

/// Owned by the driver; others get copies of the handles in it.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) instances: Arc<[Arc<InstanceRecord>]>,
    pub(super) workers: Arc<[Arc<WorkerInfo>]>,
    pub(super) synced: bool,
    pub(super) unreachable_since: Option<Instant>,
}

impl ClusterHandle {
    /// All endpoint instances in the served namespaces, side endpoints included, in key order.
    pub fn instances(&self) -> Arc<[Arc<InstanceRecord>]> {
        self.shared.view.lock().instances.clone()
    }

    /// All joined workers, by id. The update stream may be a little behind.
    pub fn workers(&self) -> Arc<[Arc<WorkerInfo>]> {
        self.shared.view.lock().workers.clone()
    }

    /// True once the store has been read.
    pub fn synced(&self) -> bool {
        self.shared.view.lock().synced
    }

    /// For how long the store has been out of reach; `None` while it can be read.
    pub fn store_unreachable_for(&self) -> Option<Duration> {
        self.shared.view.lock().unreachable_since.map(|since| since.elapsed())
    }

    /// Counters and gauges.
    pub fn stats(&self) -> ClusterStats {
        let store_unreachable = self.store_unreachable_for().unwrap_or_default();
        ClusterStats { store_unreachable, ..*self.shared.stats.lock() }
    }

    /// Waits until the cluster's task has ended. Cancel safe.
    pub async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }
}
