//! Discovery records of tests, and what a participant sees of them.

use std::sync::Arc;

use anyhow::{Context, Result};
use roost_cluster::discovery::Snapshot;
use roost_cluster::record::{EndpointId, RecordKey};
use roost_tests::http::PATIENCE;
use tokio::sync::watch;

/// The key of a worker's endpoint.
pub(crate) fn key(id: u64) -> RecordKey {
    RecordKey::instance(&EndpointId::new("dynamo", "backend", "generate"), id)
}

/// Waits for a state of the store.
pub(crate) async fn seen(
    watch: &mut watch::Receiver<Arc<Snapshot>>,
    what: &str,
    condition: impl FnMut(&Arc<Snapshot>) -> bool,
) -> Result<Arc<Snapshot>> {
    let found = tokio::time::timeout(PATIENCE, watch.wait_for(condition)).await;
    Ok(found.with_context(|| format!("never seen: {what}"))??.clone())
}
