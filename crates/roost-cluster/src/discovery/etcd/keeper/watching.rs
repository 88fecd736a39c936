//! What the store holds: listed once, watched from there, and watched on after a break if its history still tells.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;

use super::{Keeper, RESTORE_AFTER};
use crate::discovery::etcd::channel::{Answers, Connection, Failure};
use crate::discovery::etcd::lease;
use crate::discovery::etcd::messages::{
    Header, KeyValue, RangeRequest, RangeResponse, WatchCreate, WatchRequest, WatchResponse, method,
};
use crate::record::{Bucket, RecordKey};

/// All buckets are below this.
const ALL: (&[u8], &[u8]) = (b"v1/", b"v10");
/// Records of one page of a listing.
const PAGE: i64 = 1000;

/// Up to where the store's history is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    cluster_id: u64,
    revision: i64,
}

impl Keeper {
    /// Brings store and view together on a new connection, and starts to watch.
    pub(super) async fn begin(&mut self, connection: &Connection) -> Result<Answers, Failure> {
        for key in self.own.doomed() {
            lease::delete(connection, &key).await?;
            self.own.is_gone(&key);
        }
        if !self.own.is_empty() && self.renew_at.is_some() {
            self.renew(connection).await?;
        }
        if self.position.is_some() {
            self.view.hold(Instant::now() + self.config.hold);
        }
        let resumed = match self.position {
            None => None,
            Some(position) => self.resume(connection, position).await?,
        };
        let answers = match resumed {
            Some(answers) => answers,
            None => self.list_and_watch(connection).await?,
        };
        self.restore(connection).await?;
        Ok(answers)
    }

    /// Watches on from where the last watch ended; `None` when that is not possible.
    async fn resume(&self, connection: &Connection, position: Position) -> Result<Option<Answers>, Failure> {
        let (created, answers) = watch(connection, position.revision + 1).await?;
        let header = created.header.unwrap_or_default();
        let same = header.cluster_id == position.cluster_id && header.revision >= position.revision;
        Ok((same && !created.canceled).then_some(answers))
    }

    async fn list_and_watch(&mut self, connection: &Connection) -> Result<Answers, Failure> {
        let (records, position) = loop {
            match list(connection).await {
                // Compacted between two pages.
                Err(failure) if failure.has_code(Failure::OUT_OF_RANGE) => {}
                other => break other?,
            }
        };
        self.view.listed(records);
        self.position = Some(position);
        let gone: Vec<RecordKey> = self
            .own
            .keys()
            .filter(|key| self.own.get(key).map(|record| &record.value) != self.view.stored(key))
            .cloned()
            .collect();
        for key in gone {
            self.own.lost(&key);
        }
        let (created, answers) = watch(connection, position.revision + 1).await?;
        if created.canceled {
            return Err(Failure::Transport(format!("the watch is refused: {}", created.cancel_reason)));
        }
        Ok(answers)
    }

    pub(super) async fn watched(
        &mut self,
        connection: &Connection,
        answers: &mut Answers,
        answer: Result<Option<WatchResponse>, Failure>,
    ) -> Result<(), Failure> {
        let mut answer = Some(answer);
        while let Some(next) = answer {
            let Some(response) = next? else {
                return Err(Failure::Transport("the watch has ended".to_owned()));
            };
            if response.canceled {
                // The history that was asked for is compacted away, or the watch was ended: look at everything anew.
                tracing::info!(
                    compacted = response.compact_revision,
                    reason = response.cancel_reason,
                    "watch of the discovery store ended; listing it again"
                );
                *answers = self.list_and_watch(connection).await?;
                self.restore(connection).await?;
                break;
            }
            self.take_events(response);
            // What has arrived already is taken at once: a burst makes one snapshot.
            answer = answers.next().now_or_never();
        }
        self.publish();
        Ok(())
    }

    fn take_events(&mut self, response: WatchResponse) {
        for event in response.events {
            let Some(KeyValue { key, value, .. }) = event.kv else { continue };
            let Some(key) = record_key(&key) else { continue };
            if event.kind == 0 {
                self.view.put(key, value);
            } else {
                if self.own.lost(&key) {
                    tracing::warn!(%key, "own discovery record has been deleted; it will be written again");
                    self.restore_at.get_or_insert_with(|| Instant::now() + RESTORE_AFTER);
                }
                self.view.delete(key);
            }
        }
        if let (Some(position), Some(header)) = (&mut self.position, response.header) {
            position.revision = position.revision.max(header.revision);
        }
    }
}

/// Reads all buckets as of one revision.
async fn list(connection: &Connection) -> Result<(BTreeMap<RecordKey, Bytes>, Position), Failure> {
    let mut records = BTreeMap::new();
    let mut request = RangeRequest {
        key: Bytes::from_static(ALL.0),
        range_end: Bytes::from_static(ALL.1),
        limit: PAGE,
        revision: 0,
    };
    loop {
        let page: RangeResponse = connection.unary(method::RANGE, &request).await?;
        let Header { cluster_id, revision } = page.header.unwrap_or_default();
        if request.revision == 0 {
            request.revision = revision;
        }
        let last = page.kvs.last().map(|kv| kv.key.clone());
        records.extend(page.kvs.into_iter().filter_map(|kv| Some((record_key(&kv.key)?, kv.value))));
        match last {
            Some(last) if page.more => {
                // The key that comes directly after the last one.
                request.key = [&last[..], b"\0"].concat().into();
            }
            _ => return Ok((records, Position { cluster_id, revision: request.revision })),
        }
    }
}

/// Starts a watch and returns the answer that says so.
async fn watch(connection: &Connection, start_revision: i64) -> Result<(WatchResponse, Answers), Failure> {
    let create = WatchCreate {
        key: Bytes::from_static(ALL.0),
        range_end: Bytes::from_static(ALL.1),
        start_revision,
        progress_notify: true,
    };
    let begun = async {
        let mut answers = connection.stream(method::WATCH, &WatchRequest { create: Some(create) }).await?;
        match answers.next::<WatchResponse>().await? {
            Some(first) if first.created => Ok((first, answers)),
            _ => Err(Failure::Transport("the watch has not been created".to_owned())),
        }
    };
    const PATIENCE: Duration = Duration::from_secs(5);
    tokio::time::timeout(PATIENCE, begun).await.unwrap_or(Err(Failure::Timeout(PATIENCE)))
}

/// The record behind a key of the store; `None` for keys of no concern.
fn record_key(key: &[u8]) -> Option<RecordKey> {
    let text = std::str::from_utf8(key).ok()?;
    Bucket::ALL.into_iter().find_map(|bucket| {
        let key = text.strip_prefix(bucket.path())?.strip_prefix('/')?;
        Some(RecordKey { bucket, key: key.to_owned() })
    })
}
