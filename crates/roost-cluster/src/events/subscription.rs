//! One subscription: connects, decodes, hands on, and connects again when the publisher goes away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use roost_kv::KvEvent;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::EventError;
use super::binding::BindingEvent;
use super::envelope::Envelope;
use super::kv::decode_kv_events;
use super::load::Load;
use super::meter::Meter;
use super::sequence::SequenceEvent;
use crate::nats::{NatsClient, NatsEvent};
use crate::record::Topic;
use roost_zmtp::{Connection, EventSockets, ZmtpError};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Failures in a row before a warning. A worker that leaves closes its publisher a moment before discovery tells.
const FAILURES_TO_WARN: u32 = 3;

/// What to subscribe to, and whom to tell.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Travels with everything received.
    pub(crate) id: u64,
    pub(crate) source: Origin,
    pub(crate) topic: Topic,
    /// The publisher that the record names; messages of others are dropped.
    pub(crate) publisher_id: u64,
    pub(crate) out: mpsc::Sender<Received>,
    pub(crate) meter: Arc<Meter>,
}

/// Where messages come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The publisher's own socket, `tcp://HOST:PORT`.
    Zmq(EventSockets, String),
    /// A subject that publishers may share.
    Nats(NatsClient, String),
}

/// Something from a subscription.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) id: u64,
    pub(crate) signal: Signal,
}

#[derive(Debug)]
pub(crate) enum Signal {
    Connected,
    Disconnected,
    Kv(Vec<KvEvent>),
    Load(Load),
    Sequences(Vec<SequenceEvent>),
    Binding(BindingEvent),
}

/// Nobody takes what is received.
#[derive(Debug)]
struct Unheard;

impl Subscription {
    /// Runs until the receiver of `out` is gone or the task is dropped.
    pub(crate) async fn run(self) {
        // Nobody listens any more, or NATS has ended: either way this is over.
        let _over = match &self.source {
            Origin::Zmq(sockets, endpoint) => self.follow_socket(sockets, endpoint).await,
            Origin::Nats(client, subject) => self.follow_subject(client, subject).await,
        };
    }

    async fn follow_subject(&self, client: &NatsClient, subject: &str) -> Result<(), Unheard> {
        let mut events = client.subscribe(subject, self.publisher_id).await.ok_or(Unheard)?;
        while let Some(event) = events.next().await {
            match event {
                NatsEvent::Up => self.tell(Signal::Connected).await?,
                NatsEvent::Down => self.tell(Signal::Disconnected).await?,
                NatsEvent::Message(envelope) => self.pass_on(Ok(envelope), subject).await?,
            }
        }
        Ok(())
    }

    async fn follow_socket(&self, sockets: &EventSockets, endpoint: &str) -> Result<(), Unheard> {
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        // Of the publisher, not of a connection: what passed between two of them is missing.
        let mut last = None;
        loop {
            let begin = Instant::now();
            let Err(error) = self.session(sockets, endpoint, (&mut failures, &mut last)).await else {
                return Err(Unheard);
            };
            failures += 1;
            let topic = self.topic.as_str();
            if failures == FAILURES_TO_WARN {
                tracing::warn!(endpoint, topic, %error, "event publisher is not reachable; trying again");
            } else {
                tracing::debug!(endpoint, topic, %error, "event publisher is not reachable; trying again");
            }
            pause =
                if begin.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            sleep(pause).await;
            self.meter.reconnects(self.topic);
        }
    }

    /// One connection, to its end. `Ok` means that nobody listens any more.
    async fn session(
        &self,
        sockets: &EventSockets,
        endpoint: &str,
        (failures, last): (&mut u32, &mut Option<u64>),
    ) -> Result<(), ZmtpError> {
        let mut connection = Connection::subscribe(sockets, endpoint, self.topic.as_str()).await?;
        tracing::debug!(endpoint, topic = self.topic.as_str(), "subscribed");
        *failures = 0;
        self.meter.connected(self.topic);
        if self.tell(Signal::Connected).await.is_err() {
            return Ok(());
        }
        loop {
            let frames = match connection.message().await {
                Ok(frames) => frames,
                Err(error) => {
                    let told = self.tell(Signal::Disconnected).await;
                    return if told.is_err() { Ok(()) } else { Err(error) };
                }
            };
            let envelope = Envelope::from_frames(&frames);
            if let Ok(envelope) = &envelope {
                self.meter.message(self.topic, envelope.sequence, last);
            }
            if self.pass_on(envelope, endpoint).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Hands a message on; one that cannot be used is counted.
    async fn pass_on(&self, envelope: Result<Envelope, EventError>, from: &str) -> Result<(), Unheard> {
        match envelope.and_then(|envelope| self.decode(&envelope)) {
            Ok(signal) => self.tell(signal).await,
            Err(error) => {
                if self.meter.unusable(self.topic, &error) {
                    tracing::warn!(from, topic = self.topic.as_str(), %error,
                        "event message dropped; further ones are counted only");
                }
                Ok(())
            }
        }
    }

    async fn tell(&self, signal: Signal) -> Result<(), Unheard> {
        self.out.send(Received { id: self.id, signal }).await.map_err(|_| Unheard)
    }

    fn decode(&self, envelope: &Envelope) -> Result<Signal, EventError> {
        if envelope.publisher_id != self.publisher_id || envelope.topic != self.topic.as_str() {
            return Err(EventError::Identity(format!(
                "publisher {:x} of {:?} instead of {:x}",
                envelope.publisher_id, envelope.topic, self.publisher_id
            )));
        }
        match self.topic {
            Topic::KvEvents => {
                let lag = unix_ms().saturating_sub(envelope.published_at_ms);
                self.meter.kv_lag_ms.store(lag, Ordering::Relaxed);
                decode_kv_events(&envelope.payload).map(Signal::Kv)
            }
            Topic::KvMetrics => Load::decode(&envelope.payload).map(Signal::Load),
            Topic::ActiveSequences => SequenceEvent::decode(&envelope.payload).map(Signal::Sequences),
            Topic::SessionAffinity => BindingEvent::decode(&envelope.payload).map(Signal::Binding),
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
