//! One connection for all subjects: subscribes, publishes, and connects again when the server goes away.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::NatsError;
use super::config::NatsConfig;
use super::nkey::identity;
use super::protocol::{Decoder, Info, MAX_PAYLOAD, Op, encode_publish};
use crate::events::Envelope;

const CONNECT: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A server that is silent for two of these is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Subscriptions and messages that wait to be written; further messages are dropped and counted.
const OUTGOING: usize = 16_384;
/// Messages that wait for one subscriber. Then the connection is not read until it has taken one.
const INCOMING: usize = 256;
const READ_BYTES: usize = 64 << 10;
/// Commands that go into one write.
const BATCH: usize = 256;

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// The connection, shared. Cheap to clone; it ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct NatsClient {
    outgoing: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    connected: AtomicBool,
    connects: AtomicU64,
    received: AtomicU64,
    published: AtomicU64,
    dropped: AtomicU64,
    undecodable: AtomicU64,
    tasks: TaskTracker,
}

/// Counters of a [`NatsClient`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatsStats {
    /// Whether the server is connected now.
    pub connected: bool,
    /// Connections made.
    pub connects: u64,
    /// Messages received.
    pub received: u64,
    /// Messages published.
    pub published: u64,
    /// Messages that were not published because too many waited.
    pub dropped: u64,
    /// Messages that hold no envelope.
    pub undecodable: u64,
}

#[derive(Debug)]
enum Command {
    Subscribe { subject: String, publisher_id: u64, sink: mpsc::Sender<NatsEvent> },
    Publish { subject: Arc<str>, payload: Bytes },
}

/// What a subscription brings.
#[derive(Debug, PartialEq)]
pub(crate) enum NatsEvent {
    /// The subscription is in force: what is published from now on arrives.
    Up,
    /// It is not any more.
    Down,
    /// Something was published.
    Message(Envelope),
}

/// One publisher's messages on one subject. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct NatsSubscription {
    events: mpsc::Receiver<NatsEvent>,
}

impl NatsSubscription {
    /// The next event; `None` when the client has ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<NatsEvent> {
        self.events.recv().await
    }
}

impl NatsClient {
    /// Starts the task that keeps the connection, until `cancel` is cancelled or nobody holds the client.
    pub fn start(config: NatsConfig, cancel: CancellationToken) -> Self {
        let (outgoing, commands) = mpsc::channel(OUTGOING);
        let shared = Arc::<Shared>::default();
        let task = Task {
            config,
            shared: Arc::clone(&shared),
            commands,
            subjects: BTreeMap::new(),
            sids: 0,
            awaited: Vec::new(),
        };
        shared.tasks.spawn(async move { cancel.run_until_cancelled_owned(task.run()).await });
        shared.tasks.close();
        Self { outgoing, shared }
    }

    /// Subscribes to what one publisher publishes on a subject.
    pub(crate) async fn subscribe(&self, subject: &str, publisher_id: u64) -> Option<NatsSubscription> {
        let (sink, events) = mpsc::channel(INCOMING);
        let command = Command::Subscribe { subject: subject.to_owned(), publisher_id, sink };
        self.outgoing.send(command).await.ok()?;
        Some(NatsSubscription { events })
    }

    /// Queues a message. Never waits; what does not fit is lost, as on a socket whose reader is behind.
    pub(crate) fn publish(&self, subject: &Arc<str>, payload: Bytes) {
        let command = Command::Publish { subject: Arc::clone(subject), payload };
        if self.outgoing.try_send(command).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counters so far.
    pub fn stats(&self) -> NatsStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NatsStats {
            connected: self.shared.connected.load(Ordering::Relaxed),
            connects: read(&self.shared.connects),
            received: read(&self.shared.received),
            published: read(&self.shared.published),
            dropped: read(&self.shared.dropped),
            undecodable: read(&self.shared.undecodable),
        }
    }

    /// Waits for the end of the connection's task. Cancel safe.
    pub async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }
}

struct Task {
    config: NatsConfig,
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    subjects: BTreeMap<String, Subject>,
    sids: u64,
    /// Questions under way, oldest first: each answer puts the subjects subscribed to before it in force.
    awaited: Vec<Vec<u64>>,
}

/// All who listen on a subject share one subscription.
#[derive(Debug)]
struct Subject {
    sid: u64,
    in_force: bool,
    sinks: Vec<(u64, mpsc::Sender<NatsEvent>)>,
}

struct Connection {
    stream: Pin<Box<dyn Stream>>,
    buffer: BytesMut,
    decoder: Decoder,
    max_payload: usize,
}

impl Task {
    async fn run(mut self) {
        let (mut pause, mut failures) = (FIRST_PAUSE, 0u32);
        for turn in 0.. {
            let server = self.config.servers[turn % self.config.servers.len()].clone();
            let error = match Connection::open(&server, &self.config).await {
                Ok(connection) => {
                    tracing::debug!(server, "connected to nats");
                    (pause, failures) = (FIRST_PAUSE, 0);
                    self.shared.connects.fetch_add(1, Ordering::Relaxed);
                    self.shared.connected.store(true, Ordering::Relaxed);
                    let end = self.session(connection).await;
                    self.shared.connected.store(false, Ordering::Relaxed);
                    self.down().await;
                    match end {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            failures += 1;
            if failures.is_power_of_two() {
                tracing::warn!(server, %error, failures, "no connection to nats; trying again");
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One connection, to its end. `Ok` means that nobody holds the client any more.
    async fn session(&mut self, mut connection: Connection) -> Result<(), NatsError> {
        let mut out = BytesMut::new();
        let subjects: Vec<u64> = self.subjects.values().map(|subject| subject.sid).collect();
        for (name, subject) in &self.subjects {
            out.extend_from_slice(format!("SUB {name} {}\r\n", subject.sid).as_bytes());
        }
        self.awaited.clear();
        self.ask(&mut out, subjects);
        connection.write(&mut out).await?;
        let mut alive = interval(KEEP_ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        alive.reset();
        let mut commands = Vec::with_capacity(BATCH);
        let mut quiet = false;
        loop {
            tokio::select! {
                op = connection.op() => {
                    quiet = false;
                    self.take(op?, &mut out).await?;
                }
                count = self.commands.recv_many(&mut commands, BATCH) => {
                    if count == 0 {
                        return Ok(());
                    }
                    for command in commands.drain(..) {
                        self.obey(command, connection.max_payload, &mut out).await;
                    }
                }
                _ = alive.tick() => {
                    if quiet {
                        return Err(NatsError::Deadline { what: "sign of life", limit: KEEP_ALIVE });
                    }
                    quiet = true;
                    self.sweep(&mut out);
                    self.ask(&mut out, Vec::new());
                }
            }
            connection.write(&mut out).await?;
        }
    }

    async fn take(&mut self, op: Op, out: &mut BytesMut) -> Result<(), NatsError> {
        match op {
            Op::Ping => out.extend_from_slice(b"PONG\r\n"),
            Op::Pong if !self.awaited.is_empty() => {
                for sid in self.awaited.remove(0) {
                    self.in_force(sid).await;
                }
            }
            Op::Message { sid, payload } => self.deliver(sid, &payload).await,
            Op::Error(text) if text.to_ascii_lowercase().starts_with("permissions violation") => {
                tracing::warn!(error = text, "nats refuses a subject");
            }
            Op::Error(text) => return Err(NatsError::Refused(text)),
            Op::Info(Info { ldm: true, .. }) => {
                return Err(NatsError::Refused("going down; connect again".to_owned()));
            }
            Op::Info(_) | Op::Ok | Op::Pong => {}
        }
        Ok(())
    }

    async fn obey(&mut self, command: Command, max_payload: usize, out: &mut BytesMut) {
        match command {
            Command::Publish { payload, .. } if payload.len() > max_payload => {
                tracing::debug!(
                    bytes = payload.len(),
                    max_payload,
                    "event is too large for this nats server"
                );
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Command::Publish { subject, payload } => {
                encode_publish(out, &subject, &payload);
                self.shared.published.fetch_add(1, Ordering::Relaxed);
            }
            Command::Subscribe { subject, publisher_id, sink } => {
                if let Some(known) = self.subjects.get_mut(&subject) {
                    if known.in_force {
                        // Closed when nobody waits for it any more, which the sweep finds.
                        let _gone = sink.send(NatsEvent::Up).await;
                    }
                    known.sinks.push((publisher_id, sink));
                    return;
                }
                self.sids += 1;
                let sid = self.sids;
                out.extend_from_slice(format!("SUB {subject} {sid}\r\n").as_bytes());
                let sinks = vec![(publisher_id, sink)];
                self.subjects.insert(subject, Subject { sid, in_force: false, sinks });
                self.ask(out, vec![sid]);
            }
        }
    }

    fn ask(&mut self, out: &mut BytesMut, subjects: Vec<u64>) {
        out.extend_from_slice(b"PING\r\n");
        self.awaited.push(subjects);
    }

    async fn in_force(&mut self, sid: u64) {
        let Some(subject) = self.subjects.values_mut().find(|subject| subject.sid == sid) else { return };
        subject.in_force = true;
        for (_, sink) in &subject.sinks {
            let _gone = sink.send(NatsEvent::Up).await;
        }
    }

    async fn deliver(&mut self, sid: u64, payload: &Bytes) {
        self.shared.received.fetch_add(1, Ordering::Relaxed);
        let Some(subject) = self.subjects.values().find(|subject| subject.sid == sid) else { return };
        let envelope = match Envelope::decode(payload) {
            Ok(envelope) => envelope,
            Err(error) => {
                if self.shared.undecodable.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "nats message dropped; further ones are counted only");
                }
                return;
            }
        };
        let publisher = envelope.publisher_id;
        for (_, sink) in subject.sinks.iter().filter(|(id, _)| *id == publisher) {
            let _gone = sink.send(NatsEvent::Message(envelope.clone())).await;
        }
    }

    /// Nothing is in force without a connection.
    async fn down(&mut self) {
        for subject in self.subjects.values_mut().filter(|subject| subject.in_force) {
            subject.in_force = false;
            for (_, sink) in &subject.sinks {
                let _gone = sink.send(NatsEvent::Down).await;
            }
        }
    }

    /// Lets go of what nobody listens to any more.
    fn sweep(&mut self, out: &mut BytesMut) {
        self.subjects.retain(|_, subject| {
            subject.sinks.retain(|(_, sink)| !sink.is_closed());
            if subject.sinks.is_empty() {
                out.extend_from_slice(format!("UNSUB {}\r\n", subject.sid).as_bytes());
            }
            !subject.sinks.is_empty()
        });
    }
}

impl Connection {
    /// Connects and introduces us; returns when the server has accepted that.
    async fn open(server: &str, config: &NatsConfig) -> Result<Self, NatsError> {
        let connecting = timeout(CONNECT, TcpStream::connect(server)).await;
        let stream = connecting.map_err(|_| NatsError::Deadline { what: "connection", limit: CONNECT })??;
        stream.set_nodelay(true)?;
        let shaking = Self::shake(server, stream, config);
        let shaken = timeout(HANDSHAKE, shaking).await;
        shaken.map_err(|_| NatsError::Deadline { what: "handshake", limit: HANDSHAKE })?
    }

    async fn shake(server: &str, stream: TcpStream, config: &NatsConfig) -> Result<Self, NatsError> {
        let mut connection = Self {
            stream: Box::pin(stream),
            buffer: BytesMut::new(),
            decoder: Decoder::default(),
            max_payload: MAX_PAYLOAD,
        };
        let Op::Info(info) = connection.op().await? else { return Err(NatsError::Malformed("greeting")) };
        if let Some(tls) = &config.tls {
            if !info.tls_required && !info.tls_available {
                return Err(NatsError::Refused("it offers no TLS".to_owned()));
            }
            let credentials = |error: &dyn std::fmt::Display| NatsError::Credentials(error.to_string());
            let mut tls = (*tls.client_config(b"nats").map_err(|error| credentials(&error))?).clone();
            tls.alpn_protocols.clear();
            let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
                .map_err(|error| credentials(&error))?;
            let stream = TlsConnector::from(Arc::new(tls)).connect(name, connection.stream).await?;
            connection.stream = Box::pin(stream);
        } else if info.tls_required {
            return Err(NatsError::Refused("it requires TLS: use tls://".to_owned()));
        }
        if info.max_payload > 0 {
            connection.max_payload = info.max_payload;
        }
        let mut introduction = json!({
            "verbose": false, "pedantic": false, "lang": "rust", "name": "roost",
            "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "echo": true, "headers": false,
            "tls_required": config.tls.is_some(),
        });
        let identity = identity(&config.auth, info.nonce.as_deref())?;
        for (key, value) in identity.as_object().into_iter().flatten() {
            introduction[key] = value.clone();
        }
        let mut out = BytesMut::from(format!("CONNECT {introduction}\r\nPING\r\n").as_bytes());
        connection.write(&mut out).await?;
        loop {
            match connection.op().await? {
                Op::Pong => return Ok(connection),
                Op::Error(text) => return Err(NatsError::Refused(text)),
                Op::Ping => connection.write(&mut BytesMut::from(&b"PONG\r\n"[..])).await?,
                Op::Info(_) | Op::Ok | Op::Message { .. } => {}
            }
        }
    }

    /// Receives what the server says next. Cancel safe: what was read stays in the buffer.
    async fn op(&mut self) -> Result<Op, NatsError> {
        loop {
            if let Some(op) = self.decoder.decode(&mut self.buffer)? {
                return Ok(op);
            }
            if self.buffer.capacity() == self.buffer.len() {
                self.buffer.reserve(READ_BYTES);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(NatsError::Closed);
            }
        }
    }

    async fn write(&mut self, out: &mut BytesMut) -> Result<(), NatsError> {
        if !out.is_empty() {
            let written = timeout(HANDSHAKE, async {
                self.stream.write_all(out).await?;
                self.stream.flush().await
            });
            written.await.map_err(|_| NatsError::Deadline { what: "room to write", limit: HANDSHAKE })??;
            out.clear();
        }
        Ok(())
    }
}
