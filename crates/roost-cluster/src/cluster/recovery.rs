//! Asking a worker for what was missed. The request plane is somebody else's; this is the asking.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use roost_kv::WorkerRank;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::events::{KvAnswer, KvQuery};
use crate::record::Target;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Calls a worker's query endpoint over the request plane.
pub trait RecoverySource: Send + Sync + fmt::Debug {
    /// Sends `request`, encoded in `target.codec`, and returns the first response item undecoded.
    ///
    /// The future may be dropped at any time; the call must then be cancelled. Deadlines are the caller's.
    fn query(&self, target: Target, request: Bytes) -> BoxFuture<'static, Result<Bytes, RecoveryError>>;
}

/// Why a query brought no item.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecoveryError(
    /// What went wrong, for the log.
    pub String,
);

/// One recovery, with its tries.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) source: Arc<dyn RecoverySource>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) timeout: Duration,
    pub(super) attempts: u32,
    pub(super) target: Target,
    pub(super) rank: WorkerRank,
    pub(super) from: Option<u64>,
}

impl Recovery {
    /// Asks until there is a useful answer; `None` when all tries have failed.
    pub(super) async fn run(self) -> Option<KvAnswer> {
        let request = Bytes::from(KvQuery::recovery(self.rank, self.from).encode(self.target.codec));
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=self.attempts {
            let reason = match self.ask(request.clone()).await {
                Ok(answer) => return Some(answer),
                Err(reason) => reason,
            };
            if attempt == self.attempts {
                tracing::warn!(rank = %self.rank, attempt, reason, "kv recovery given up; the rank's blocks are forgotten until it answers again");
                break;
            }
            tracing::debug!(rank = %self.rank, attempt, reason, "kv recovery failed; trying again");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        None
    }

    async fn ask(&self, request: Bytes) -> Result<KvAnswer, String> {
        let _permit = self.permits.acquire().await.map_err(|e| e.to_string())?;
        let call = self.source.query(self.target.clone(), request);
        let item = match timeout(self.timeout, call).await {
            Err(_) => return Err(format!("no answer within {:?}", self.timeout)),
            Ok(Err(error)) => return Err(error.to_string()),
            Ok(Ok(item)) => item,
        };
        match KvAnswer::decode(&item, self.target.codec).map_err(|e| e.to_string())? {
            KvAnswer::TreeDumpFailed { message, .. } => {
                Err(format!("the worker could not dump its state: {}", message.unwrap_or_default()))
            }
            KvAnswer::Error(text) => Err(format!("the worker answered: {text}")),
            answer => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests;
