//! Publishing of the ranks' load.

use std::time::Duration;

use roost_cluster::events::{Load, Publisher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::RankLoad;

/// Shortest time between two reports; changes in between are reported together.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Publishes the load of each rank at first and whenever it has changed, until the worker stops.
pub(super) async fn pump(
    worker_id: u64,
    publisher: Publisher,
    mut load: watch::Receiver<Vec<RankLoad>>,
    stop: CancellationToken,
) {
    let mut published: Vec<RankLoad> = Vec::new();
    let publishing = async {
        loop {
            let now = load.borrow_and_update().clone();
            for rank in now.iter().filter(|rank| !published.contains(rank)) {
                publisher.publish_load(&Load {
                    worker_id,
                    dp_rank: rank.dp_rank,
                    active_decode_blocks: Some(rank.active_blocks),
                    active_prefill_tokens: Some(rank.active_prefill_tokens),
                    kv_used_blocks: Some(rank.used_blocks),
                });
            }
            published = now;
            tokio::time::sleep(MIN_INTERVAL).await;
            if load.changed().await.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(publishing).await;
}
