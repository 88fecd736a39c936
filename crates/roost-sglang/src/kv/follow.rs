//! One rank's events, made whole: live ones from the publisher, missed ones from its replay. The sequence numbers decide
//! (`order`, pure); this is the shell with the sockets.

mod order;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use roost_worker::KvChange;
use roost_zmtp::{Connection, ZmtpError};
use tokio::time::timeout;

use super::{KvSource, decode};
use order::{Order, Step};

/// First pause before a new connection; doubles up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Longest wait for each message of a replay.
const REPLAY_STEP: Duration = Duration::from_secs(10);
/// Most batches of one replay: ten times the buffer that publishers have by default.
const MAX_REPLAYED: usize = 100_000;
/// The number that ends a replay.
const END: u64 = u64::MAX;

/// A batch as it came.
struct Message {
    number: u64,
    payload: Bytes,
}

/// Follows one rank. Reads its sockets only when asked for the next change: a slow reader makes the publisher drop
/// batches, which shows as a gap, which is replayed.
pub(super) struct Follower {
    source: KvSource,
    live: Option<Connection>,
    order: Order,
    ready: VecDeque<KvChange>,
    pause: Duration,
    /// A failure was told; the same again is not.
    complained: bool,
}

impl Follower {
    pub(super) fn new(source: KvSource) -> Self {
        Follower {
            source,
            live: None,
            order: Order::default(),
            ready: VecDeque::new(),
            pause: PAUSE,
            complained: false,
        }
    }

    /// The next change; `None` once the server is given up.
    pub(super) async fn next(&mut self) -> Option<KvChange> {
        let gone = self.source.gone.clone();
        gone.run_until_cancelled(self.change()).await
    }

    async fn change(&mut self) -> KvChange {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return change;
            }
            if let Err(error) = self.step().await {
                self.live = None;
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::warn!(endpoint = self.source.endpoint, %error, "kv events");
                }
                tokio::time::sleep(self.pause).await;
                self.pause = (self.pause * 2).min(MAX_PAUSE);
            }
        }
    }

    /// Connects, or takes one message.
    async fn step(&mut self) -> Result<(), ZmtpError> {
        let Some(live) = &mut self.live else {
            // Subscribed first: what comes during the replay waits in the socket.
            let source = &self.source;
            self.live = Some(Connection::subscribe(&source.sockets, &source.endpoint, &source.topic).await?);
            self.order.connected();
            self.catch_up().await?;
            (self.pause, self.complained) = (PAUSE, false);
            return Ok(());
        };
        let Some(message) = message(&live.message().await?) else {
            return Err(ZmtpError::Malformed("kv event message"));
        };
        match self.order.live(message.number) {
            Step::Apply => self.apply(&message),
            Step::Skip => {}
            Step::Gap => {
                tracing::info!(
                    endpoint = self.source.endpoint,
                    expected = self.order.expected(),
                    got = message.number,
                    "kv events were missed"
                );
                self.catch_up().await?;
                // The replay has brought this one as well, unless there is none.
                match self.order.live(message.number) {
                    Step::Apply => self.apply(&message),
                    Step::Skip => {}
                    Step::Gap => {
                        self.forget();
                        self.order.jump(message.number);
                        self.apply(&message);
                    }
                }
            }
        }
        Ok(())
    }

    /// Brings what was missed. Where that cannot be had, what was known is forgotten.
    async fn catch_up(&mut self) -> Result<(), ZmtpError> {
        if self.source.replay.is_none() {
            if self.order.is_reconnected() {
                self.forget();
            }
            return Ok(());
        }
        // One that is known already comes first: it tells whether this is still the same process.
        if let Some(from) = self.order.last() {
            let replayed = self.replay(from).await?;
            if replayed.first().is_some_and(|first| self.order.is_same(first.number, &first.payload)) {
                self.take(&replayed[1..]);
                return Ok(());
            }
            tracing::info!(
                endpoint = self.source.endpoint,
                from,
                "the engine was restarted, or has forgotten what was missed: its cache is read anew"
            );
            self.forget();
        }
        let all = self.replay(0).await?;
        if let Some(first) = all.first().filter(|first| first.number > 0) {
            tracing::info!(
                endpoint = self.source.endpoint,
                first = first.number,
                "older kv events are no longer to be had: blocks stored before stay unknown"
            );
        }
        self.take(&all);
        Ok(())
    }

    fn take(&mut self, messages: &[Message]) {
        for message in messages {
            match self.order.replayed(message.number) {
                Step::Apply => self.apply(message),
                Step::Skip => {}
                Step::Gap => {
                    self.forget();
                    self.order.jump(message.number);
                    self.apply(message);
                }
            }
        }
    }

    fn apply(&mut self, message: &Message) {
        self.order.applied(message.number, &message.payload);
        match decode::batch(&message.payload, self.source.cut) {
            Ok(changes) => self.ready.extend(changes),
            Err(error) => {
                // Whatever it said is missing now.
                tracing::warn!(endpoint = self.source.endpoint, %error, "a batch of kv events cannot be read");
                self.forget();
            }
        }
    }

    /// Everything that is known of the rank goes, also what was not handed out yet.
    fn forget(&mut self) {
        self.ready.clear();
        self.ready.push_back(KvChange::CLEARED);
        self.order.forget();
    }

    /// Past batches from a number on, in order.
    async fn replay(&self, from: u64) -> Result<Vec<Message>, ZmtpError> {
        let Some(endpoint) = &self.source.replay else { return Ok(Vec::new()) };
        let mut connection = Connection::dealer(&self.source.sockets, endpoint).await?;
        connection.send(&[b"", &from.to_be_bytes()]).await?;
        let mut replayed = Vec::new();
        loop {
            let frames = timeout(REPLAY_STEP, connection.message()).await;
            let frames = frames.map_err(|_| ZmtpError::Deadline(REPLAY_STEP))??;
            match message(&frames) {
                Some(Message { number: END, .. }) => return Ok(replayed),
                Some(message) => replayed.push(message),
                None => return Err(ZmtpError::Malformed("replayed kv events")),
            }
            if replayed.len() >= MAX_REPLAYED {
                return Err(ZmtpError::Malformed("replay without an end"));
            }
        }
    }
}

/// The last two frames, whatever comes before them: subject, delimiter, or both.
fn message(frames: &[Bytes]) -> Option<Message> {
    let [.., number, payload] = frames else { return None };
    let number = u64::from_be_bytes(number[..].try_into().ok()?);
    Some(Message { number, payload: payload.clone() })
}

#[cfg(test)]
mod tests;
