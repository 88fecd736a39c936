//! The task of one handle: what it sees, and the one resource that it writes.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use super::api::{Api, Failure};
use super::identity::{KubernetesMode, PodIdentity};
use super::join::Join;
use super::objects::{Collection, PodObject, Readiness, Records, RecordsObject, SliceObject, application};
use super::own::{Own, Write};
use super::reflector::{Report, follow};
use crate::discovery::orders::{Command, Reply};
use crate::discovery::{DiscoveryError, Snapshot};
use crate::record::{Bucket, RecordKey};

/// Reports that may wait for the keeper.
const REPORTS: usize = 256;
/// Our resource, or a part of it, that is missing is written again after this time: two who fight over it do so slowly.
const RESTORE_AFTER: Duration = Duration::from_secs(1);
/// Pauses between attempts to write.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Longest wait for the store at the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a write has to know.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) resource: String,
    pub(super) pod: PodIdentity,
}

#[derive(Debug)]
pub(super) struct Keeper {
    api: Arc<Api>,
    mode: KubernetesMode,
    /// `None`: this process only looks.
    writer: Option<Arc<Writer>>,
    join: Join,
    own: Own,
    /// A container's resource may be left from before its restart; nothing of it may stay.
    stale: bool,
    write_at: Option<Instant>,
    pause: Duration,
    away: Away,
    snapshot: watch::Sender<Arc<Snapshot>>,
    trouble: Arc<Mutex<Option<String>>>,
}

/// Which collection cannot be looked at, and since when any.
#[derive(Debug, Default)]
struct Away {
    records: bool,
    readiness: bool,
    since: Option<Instant>,
}

type Writing = BoxFuture<'static, Result<(), Failure>>;

impl Keeper {
    pub(super) fn new(
        api: Api,
        mode: KubernetesMode,
        writer: Option<Writer>,
        snapshot: watch::Sender<Arc<Snapshot>>,
        trouble: Arc<Mutex<Option<String>>>,
    ) -> Self {
        let stale = mode == KubernetesMode::Container && writer.is_some();
        Self {
            api: Arc::new(api),
            mode,
            writer: writer.map(Arc::new),
            join: Join::default(),
            own: Own::default(),
            stale,
            write_at: stale.then(Instant::now),
            pause: PAUSES.0,
            away: Away::default(),
            snapshot,
            trouble,
        }
    }

    /// Works until the handle is closed or dropped.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        let (records_sender, mut records) = mpsc::channel(REPORTS);
        let (readiness_sender, mut readiness) = mpsc::channel(REPORTS);
        let api = self.api.clone();
        let _records = AbortOnDropHandle::new(tokio::spawn(follow::<RecordsObject>(
            api.clone(),
            Collection::RECORDS,
            records_sender,
        )));
        let _readiness = AbortOnDropHandle::new(match self.mode {
            KubernetesMode::Pod => {
                tokio::spawn(follow::<SliceObject>(api, Collection::SLICES, readiness_sender))
            }
            KubernetesMode::Container => {
                tokio::spawn(follow::<PodObject>(api, Collection::PODS, readiness_sender))
            }
        });
        let mut writing: Option<(Write, Writing)> = None;
        let closed = loop {
            let write_at = self.write_at.filter(|_| writing.is_none());
            tokio::select! {
                biased;
                command = inbox.recv() => match command {
                    None => break None,
                    Some(Command::Close { reply }) => break Some(reply),
                    Some(command) => self.obey(command),
                },
                done = finished(&mut writing) => {
                    if let Some((write, _)) = writing.take() {
                        self.written(write, done);
                    }
                }
                () = alarm(write_at) => writing = self.write(),
                report = records.recv() => {
                    // What has arrived already is taken at once: a burst makes one snapshot.
                    let mut next = report;
                    while let Some(report) = next {
                        self.records(report);
                        next = records.try_recv().ok();
                    }
                    self.publish();
                }
                report = readiness.recv() => {
                    let mut next = report;
                    while let Some(report) = next {
                        self.readiness(report);
                        next = readiness.try_recv().ok();
                    }
                    self.publish();
                }
            }
        };
        self.farewell(writing).await;
        if let Some(reply) = closed {
            // Whoever asked may have stopped waiting.
            let _: Result<(), ()> = oneshot::Sender::send(reply, ());
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Put { key, value, reply } => match self.refusal(&key) {
                Some(error) => {
                    let _ = Reply::send(reply, Err(error));
                }
                None => self.own.put(key, value, reply),
            },
            Command::Delete { key, reply } => self.own.delete(key, reply),
            Command::Abandon { key } => self.own.abandon(&key),
            Command::Close { .. } => unreachable!("handled by run, which owns the task's end"),
        }
        if self.own.dirty() {
            self.write_at.get_or_insert_with(Instant::now);
        }
    }

    /// Why this record cannot be written here.
    fn refusal(&self, key: &RecordKey) -> Option<DiscoveryError> {
        if self.writer.is_none() {
            let text = "this process does not know its pod (POD_NAME, POD_UID) and can register nothing";
            return Some(DiscoveryError::Config(text.to_owned()));
        }
        let id = key.key.rsplit('/').next().and_then(|id| u64::from_str_radix(id, 16).ok());
        let publisher = matches!(key.bucket, Bucket::EventChannels | Bucket::EventSources);
        (publisher && id.is_some_and(|id| id >= 1 << 53)).then(|| DiscoveryError::Key {
            key: key.clone(),
            reason: "the publisher's id has more than 53 bits".to_owned(),
        })
    }

    /// Begins to write all records of this process, if there is anything to write.
    fn write(&mut self) -> Option<(Write, Writing)> {
        self.write_at = None;
        let writer = self.writer.clone()?;
        if !self.own.dirty() && self.missing() {
            tracing::warn!(
                resource = writer.resource,
                "own discovery records are gone; they are written again"
            );
            self.own.spoil();
        }
        let (dirty, stale) = (self.own.dirty(), self.stale);
        if !dirty && !stale {
            return None;
        }
        let write = self.own.begin();
        let body = application(&writer.resource, &writer.pod, &write.records);
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                self.own.refused(write, &format!("not JSON: {error}"));
                return None;
            }
        };
        let api = self.api.clone();
        let writing = async move {
            let path = Collection::RECORDS.path(&api.namespace, Some(&writer.resource));
            if stale {
                match api.delete(&path).await {
                    Err(failure) if !failure.is_not_found() => return Err(failure),
                    _ => {}
                }
            }
            if dirty {
                api.apply(&format!("{path}?force=true&fieldManager=dynamo-worker"), body).await?;
            }
            Ok(())
        };
        Some((write, writing.boxed()))
    }

    fn written(&mut self, write: Write, done: Result<(), Failure>) {
        match done {
            Ok(()) => {
                self.stale = false;
                self.pause = PAUSES.0;
                self.own.written(write);
                self.write_at = self.own.dirty().then(Instant::now);
            }
            Err(failure) if failure.is_final() => {
                tracing::warn!(%failure, "own discovery records are refused");
                self.own.refused(write, &failure.to_string());
                self.write_at = self.own.dirty().then(Instant::now);
            }
            Err(failure) => {
                tracing::warn!(%failure, "own discovery records not written; trying again");
                self.own.failed(write, &failure.to_string());
                let asked = failure.retry_after().unwrap_or_default().min(Duration::from_secs(60));
                let again = self.own.dirty() || self.stale;
                self.write_at = again.then(|| Instant::now() + self.pause.max(asked));
                self.pause = (self.pause * 2).min(PAUSES.1);
            }
        }
    }

    /// The store lacks what it should hold of ours. Values are not compared: the server writes them in its own way.
    fn missing(&self) -> bool {
        let (Some(writer), true) = (&self.writer, self.join.synced()) else { return false };
        let stored = self.join.stored(&writer.resource);
        let stored = stored.filter(|stored| stored.pod_uid.as_deref() == Some(&*writer.pod.uid));
        let held = stored.and_then(|stored| stored.records.as_ref());
        self.own.stored().any(|key| held.is_none_or(|held| !held.contains_key(key)))
    }

    fn records(&mut self, report: Report<Records>) {
        match report {
            Report::Listed(all) => self.join.records_listed(all),
            Report::Changed(one) => self.join.records_changed(one),
            Report::Deleted(name) => self.join.records_deleted(&name),
            Report::Here => self.away.records = false,
            Report::Away(failure) => {
                self.away.records = true;
                self.complain(&failure);
            }
        }
        if self.write_at.is_none() && self.missing() {
            // Often only an echo of an older write, with a newer one on its way.
            self.write_at = Some(Instant::now() + RESTORE_AFTER);
        }
    }

    fn readiness(&mut self, report: Report<Readiness>) {
        match report {
            Report::Listed(all) => self.join.readiness_listed(all),
            Report::Changed(one) => self.join.readiness_changed(one),
            Report::Deleted(name) => self.join.readiness_deleted(&name),
            Report::Here => self.away.readiness = false,
            Report::Away(failure) => {
                self.away.readiness = true;
                self.complain(&failure);
            }
        }
    }

    fn complain(&mut self, failure: &Failure) {
        if self.away.since.is_none() {
            let server = self.api.server.origin();
            tracing::warn!(%failure, server, "discovery store is away; the last known workers stay");
        }
        *self.trouble.lock() = Some(failure.to_string());
    }

    fn publish(&mut self) {
        let away = self.away.records || self.away.readiness;
        if away {
            self.away.since.get_or_insert_with(Instant::now);
        } else if self.away.since.take().is_some() {
            *self.trouble.lock() = None;
            tracing::info!("discovery store is back");
        }
        let synced = self.join.synced();
        let records = if synced { self.join.effective() } else { Default::default() };
        self.snapshot.send_if_modified(|before| {
            let same = before.synced == synced
                && before.unreachable_since == self.away.since
                && before.records == records;
            if !same {
                *before = Arc::new(Snapshot { records, synced, unreachable_since: self.away.since });
            }
            !same
        });
    }

    /// Takes the records back.
    async fn farewell(&mut self, writing: Option<(Write, Writing)>) {
        let last = async {
            if let Some((write, writing)) = writing {
                let done = writing.await;
                self.written(write, done);
            }
            self.own.withdraw_all();
            match self.write() {
                Some((write, writing)) => {
                    let done = writing.await;
                    let told = done.as_ref().map_err(ToString::to_string).copied();
                    self.written(write, done);
                    told
                }
                None => Ok(()),
            }
        };
        let done = tokio::time::timeout(FAREWELL, last).await;
        if let Err(error) = done.unwrap_or_else(|_| Err(Failure::Timeout(FAREWELL).to_string())) {
            tracing::warn!(error, "own discovery records not deleted; they end with the pod");
        }
    }
}

async fn finished(writing: &mut Option<(Write, Writing)>) -> Result<(), Failure> {
    match writing {
        Some((_, writing)) => writing.await,
        None => pending().await,
    }
}

async fn alarm(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}
