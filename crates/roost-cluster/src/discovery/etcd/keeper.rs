//! The task of one handle: connection, watch, lease, own records.

mod watching;
mod writing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::EtcdConfig;
use super::channel::{Connection, Failure};
use super::own::Own;
use crate::discovery::endpoint::Endpoint;
use crate::discovery::orders::Command;
use crate::discovery::view::View;
use crate::discovery::{DiscoveryError, Snapshot};
use crate::record::RecordKey;
use watching::Position;

/// Pauses between attempts to connect. The longest is well below the time for which records are held.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A connection that lasted this long was a good one: the pauses begin anew.
const STABLE: Duration = Duration::from_secs(10);
/// A record of ours that somebody deleted is written again after this time, so that two who fight over it do so slowly.
const RESTORE_AFTER: Duration = Duration::from_secs(1);

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
}

async fn alarm(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
