//! The task of one handle: connection, watch, lease, own records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::EtcdConfig;
use super::channel::{Answers, Connection, Failure};
use super::endpoint::Endpoint;
use super::lease::{self, Written};
use super::messages::{
    Header, KeyValue, RangeRequest, RangeResponse, WatchCreate, WatchRequest, WatchResponse, method,
};
use super::own::{Own, Reply};
use crate::discovery::view::View;
use crate::discovery::{DiscoveryError, Snapshot};
use crate::record::{Bucket, RecordKey};

/// All buckets are below this.
const ALL: (&[u8], &[u8]) = (b"v1/", b"v10");
/// Records of one page of a listing.
const PAGE: i64 = 1000;
/// Pauses between attempts to connect. The longest is well below the time for which records are held.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A connection that lasted this long was a good one: the pauses begin anew.
const STABLE: Duration = Duration::from_secs(10);
/// A record of ours that somebody deleted is written again after this time, so that two who fight over it do so slowly.
const RESTORE_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the store at the end.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) enum Command {
    Put { key: RecordKey, value: Bytes, reply: Reply },
    Delete { key: RecordKey, reply: Reply },
    Abandon { key: RecordKey },
    Close { reply: oneshot::Sender<()> },
}

/// Up to where the store's history is known.
#[derive(Clone, Copy, Debug)]
struct Position {
    cluster_id: u64,
    revision: i64,
}

/// The handle was closed or dropped.
#[derive(Debug)]
struct Closed(Option<oneshot::Sender<()>>);

#[derive(Debug)]
pub(super) struct Keeper {
    config: Arc<EtcdConfig>,
    endpoints: Arc<[Endpoint]>,
    tls: Option<Arc<rustls::ClientConfig>>,
    next_endpoint: usize,
    lease: i64,
    /// When the lease must be renewed; `None` while we have none.
    renew_at: Option<Instant>,
    restore_at: Option<Instant>,
    own: Own,
    view: View,
    position: Option<Position>,
    unreachable_since: Option<Instant>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Keeper {
    pub(super) fn new(
        config: EtcdConfig,
        endpoints: Vec<Endpoint>,
        tls: Option<Arc<rustls::ClientConfig>>,
        lease: i64,
        snapshot: watch::Sender<Arc<Snapshot>>,
        trouble: Arc<Mutex<Option<String>>>,
    ) -> Self {
        Self {
            config: Arc::new(config),
            endpoints: endpoints.into(),
            tls,
            next_endpoint: 0,
            lease,
            renew_at: None,
            restore_at: None,
            own: Own::default(),
            view: View::default(),
            position: None,
            unreachable_since: None,
            snapshot,
            trouble,
        }
    }

    /// Works until the handle is closed or dropped.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        let mut pause = PAUSES.0;
        let closed = loop {
            let begun = Instant::now();
            let ended = match self.connect(&mut inbox).await {
                Err(closed) => break closed,
                Ok(Err(failure)) => Err((false, failure)),
                Ok(Ok(connection)) => match self.live(&connection, &mut inbox).await {
                    Ok(closed) => {
                        self.farewell(&connection).await;
                        Ok(closed)
                    }
                    Err(ended) => Err(ended),
                },
            };
            match ended {
                Ok(closed) => break closed,
                // Often just a member that restarts: the next one is tried before anybody is alarmed.
                Err((true, failure)) => tracing::info!(%failure, "connection to etcd lost"),
                Err((false, failure)) => self.away(&failure),
            }
            if begun.elapsed() > STABLE {
                pause = PAUSES.0;
            }
            let rest = Instant::now() + pause / 2 + pause.mul_f64(fastrand::f64() / 2.0);
            pause = (pause * 2).min(PAUSES.1);
            if let Err(closed) = self.idle_until(rest, &mut inbox).await {
                break closed;
            }
        };
        if let Closed(Some(reply)) = closed {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
    }

    /// Tries the next member, taking orders meanwhile.
    async fn connect(
        &mut self,
        inbox: &mut mpsc::Receiver<Command>,
    ) -> Result<Result<Connection, Failure>, Closed> {
        let (endpoints, config, tls) = (self.endpoints.clone(), self.config.clone(), self.tls.clone());
        let endpoint = &endpoints[self.next_endpoint % endpoints.len()];
        self.next_endpoint = self.next_endpoint.wrapping_add(1);
        let mut open = std::pin::pin!(Connection::open(endpoint, &config, tls.as_ref()));
        loop {
            tokio::select! {
                opened = &mut open => {
                    return Ok(opened.map_err(|failure| match failure {
                        Failure::Transport(why) => Failure::Transport(format!("{}: {why}", endpoint.origin())),
                        other => other,
                    }));
                }
                command = inbox.recv() => self.note(command)?,
            }
        }
    }

    async fn idle_until(&mut self, end: Instant, inbox: &mut mpsc::Receiver<Command>) -> Result<(), Closed> {
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(end.into()) => return Ok(()),
                command = inbox.recv() => self.note(command)?,
            }
        }
    }

    /// Takes an order while there is no connection.
    fn note(&mut self, command: Option<Command>) -> Result<(), Closed> {
        match command {
            None => return Err(Closed(None)),
            Some(Command::Close { reply }) => return Err(Closed(Some(reply))),
            Some(Command::Put { key, value, reply }) => self.own.promise(key, value, reply),
            Some(Command::Abandon { key }) => self.abandon(&key),
            Some(Command::Delete { key, reply }) => {
                let result = match self.own.withdraw(&key) {
                    Some(record) if record.created => {
                        self.own.doom(key);
                        let reason =
                            self.trouble.lock().clone().unwrap_or_else(|| "not connected".to_owned());
                        Err(DiscoveryError::Unreachable { reason })
                    }
                    _ => Ok(()),
                };
                let _ = reply.send(result);
            }
        }
        Ok(())
    }

    fn abandon(&mut self, key: &RecordKey) {
        self.own.abandoned |= self.own.withdraw(key).is_some();
        if self.own.is_empty() {
            self.renew_at = None;
        }
    }

    /// The store cannot be used.
    fn away(&mut self, failure: &Failure) {
        *self.trouble.lock() = Some(failure.to_string());
        if self.unreachable_since.is_none() {
            let members: Vec<String> = self.endpoints.iter().map(Endpoint::origin).collect();
            tracing::warn!(%failure, etcd = members.join(","), "discovery store is away; the last known workers stay");
            self.unreachable_since = Some(Instant::now());
            self.publish();
        }
    }

    fn back(&mut self) {
        *self.trouble.lock() = None;
        if self.unreachable_since.take().is_some() {
            tracing::info!("discovery store is back");
        }
        self.publish();
    }

    fn publish(&self) {
        let synced = self.position.is_some();
        self.snapshot.send_replace(Arc::new(Snapshot {
            records: self.view.records().clone(),
            synced,
            unreachable_since: self.unreachable_since,
        }));
    }

    /// Uses a connection until the handle is closed or it breaks, and tells then whether it was of use before.
    async fn live(
        &mut self,
        connection: &Connection,
        inbox: &mut mpsc::Receiver<Command>,
    ) -> Result<Closed, (bool, Failure)> {
        let mut answers = self.begin(connection).await.map_err(|failure| (false, failure))?;
        self.back();
        loop {
            let step = tokio::select! {
                biased;
                command = inbox.recv() => match self.obey(connection, command).await {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(closed)) => return Ok(closed),
                    Err(failure) => Err(failure),
                },
                answer = answers.next() => self.watched(connection, &mut answers, answer).await,
                () = alarm(self.next_alarm()) => self.tick(connection).await,
            };
            step.map_err(|failure| (true, failure))?;
        }
    }

    /// Brings store and view together on a new connection, and starts to watch.
    async fn begin(&mut self, connection: &Connection) -> Result<Answers, Failure> {
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

    async fn watched(
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

    fn next_alarm(&self) -> Option<Instant> {
        [self.renew_at, self.restore_at, self.view.hold_until()].into_iter().flatten().min()
    }

    async fn tick(&mut self, connection: &Connection) -> Result<(), Failure> {
        let now = Instant::now();
        if self.view.expire(now) {
            self.publish();
        }
        if self.renew_at.is_some_and(|at| at <= now) {
            self.renew(connection).await?;
            self.restore(connection).await?;
        }
        if self.restore_at.is_some_and(|at| at <= now) {
            self.restore(connection).await?;
        }
        Ok(())
    }

    /// Keeps the lease alive; one that is gone is asked for again under its old id.
    async fn renew(&mut self, connection: &Connection) -> Result<(), Failure> {
        if !lease::renew(connection, self.lease).await? {
            tracing::warn!(lease = %format_args!("{:x}", self.lease), "the lease in etcd was lost; registering again");
            self.own.all_lost();
            lease::grant(connection, self.lease, self.config.lease_ttl).await?;
        }
        self.renew_at = Some(Instant::now() + self.config.lease_ttl / 3);
        Ok(())
    }

    /// Writes every own record that the store does not have.
    async fn restore(&mut self, connection: &Connection) -> Result<(), Failure> {
        self.restore_at = None;
        for key in self.own.unstored() {
            self.store(connection, &key).await?;
        }
        Ok(())
    }

    async fn store(&mut self, connection: &Connection, key: &RecordKey) -> Result<(), Failure> {
        if self.renew_at.is_none() {
            lease::grant(connection, self.lease, self.config.lease_ttl).await?;
            self.renew_at = Some(Instant::now() + self.config.lease_ttl / 3);
        }
        let Some(record) = self.own.get(key) else { return Ok(()) };
        let (value, created) = (record.value.clone(), record.created);
        let written = if created {
            lease::put(connection, key, &value, self.lease).await
        } else {
            lease::create(connection, key, &value, self.lease).await
        };
        match written {
            Ok(Written::Yes) => self.own.is_stored(key),
            Ok(Written::Exists) => {
                self.own.is_refused(key, DiscoveryError::Exists { key: key.clone() });
            }
            Ok(Written::NoLease) => {
                // The next alarm writes everything again.
                self.own.all_lost();
                lease::grant(connection, self.lease, self.config.lease_ttl).await?;
                self.restore_at = Some(Instant::now() + RESTORE_AFTER);
            }
            Err(failure) if failure.is_of_connection() => return Err(failure),
            Err(failure) => {
                let reason = failure.to_string();
                self.own.is_refused(key, DiscoveryError::Refused { key: key.clone(), reason });
                self.restore_at = Some(Instant::now() + RESTORE_AFTER * 5);
            }
        }
        Ok(())
    }

    async fn obey(
        &mut self,
        connection: &Connection,
        command: Option<Command>,
    ) -> Result<Result<(), Closed>, Failure> {
        match command {
            None => return Ok(Err(Closed(None))),
            Some(Command::Close { reply }) => return Ok(Err(Closed(Some(reply)))),
            Some(Command::Put { key, value, reply }) => {
                self.own.promise(key.clone(), value, reply);
                self.store(connection, &key).await?;
            }
            Some(Command::Abandon { key }) => self.abandon(&key),
            Some(Command::Delete { key, reply }) => {
                let created = self.own.withdraw(&key).is_some_and(|record| record.created);
                let deleted = if created { lease::delete(connection, &key).await } else { Ok(()) };
                let reason = deleted.as_ref().err().map(ToString::to_string);
                let told = match reason {
                    None => Ok(()),
                    Some(reason) => {
                        self.own.doom(key.clone());
                        Err(DiscoveryError::Refused { key, reason })
                    }
                };
                let _ = reply.send(told);
                if let Err(failure) = deleted
                    && failure.is_of_connection()
                {
                    return Err(failure);
                }
            }
        }
        Ok(Ok(()))
    }

    /// Takes the records back.
    async fn farewell(&mut self, connection: &Connection) {
        let last = async {
            if self.own.abandoned {
                for key in self.own.keys() {
                    lease::delete(connection, key).await?;
                }
                Ok(())
            } else if self.renew_at.is_some() {
                lease::revoke(connection, self.lease).await
            } else {
                Ok(())
            }
        };
        let done = tokio::time::timeout(FAREWELL, last).await;
        if let Err(error) = done.unwrap_or(Err(Failure::Timeout(FAREWELL))) {
            tracing::warn!(%error, "own discovery records not deleted; they expire with their lease");
        }
    }
}

async fn alarm(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
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
