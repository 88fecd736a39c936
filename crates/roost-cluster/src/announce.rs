//! What a frontend tells the others of its kind: one publisher per topic and endpoint, registered like a worker's.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::HashMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::discovery::Discovery;
use crate::events::{BindingEvent, Publisher, PublisherConfig, SequenceEvent};
use crate::nats::NatsClient;
use crate::record::{EndpointId, RecordKey, Topic};
use roost_zmtp::EventSockets;

/// Words that may wait to be published; further ones are dropped and counted.
const QUEUE: usize = 16_384;
/// Between two tries to open a channel.
const PAUSE: Duration = Duration::from_secs(10);
/// Words that are taken at one time.
const BATCH: usize = 256;

/// Settings of [`Announcer::start`].
#[derive(Clone, Debug)]
pub struct AnnouncerConfig {
    /// Id of all its publishers; see [`crate::ClusterConfig::own_publisher`].
    pub publisher_id: u64,
    /// Where its sockets listen.
    pub bind: IpAddr,
    /// Host that the others should connect to; `None` for that of `bind`, which must then not be a wildcard.
    pub advertise_host: Option<String>,
    /// Publish over NATS instead.
    pub nats: Option<NatsClient>,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum Announcement {
    /// Where a session lives.
    Binding(BindingEvent),
    /// What a request does.
    Sequence(SequenceEvent),
}

/// Tells other frontends. Cheap to clone; telling never waits.
#[derive(Clone, Debug)]
pub struct Announcer {
    shared: Arc<Shared>,
    words: mpsc::Sender<Word>,
}

#[derive(Debug)]
struct Shared {
    dropped: AtomicU64,
    published: AtomicU64,
    tasks: TaskTracker,
}

#[derive(Debug)]
enum Word {
    Open(Topic, EndpointId),
    Tell(EndpointId, Announcement),
}

/// Counters of an [`Announcer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnouncerStats {
    /// Words published.
    pub published: u64,
    /// Words dropped because too many waited or their channel could not be opened.
    pub dropped: u64,
}

impl Announcer {
    /// Starts the task that publishes. When `cancel` is cancelled the records are removed and the sockets closed.
    pub fn start(config: AnnouncerConfig, discovery: Arc<dyn Discovery>, cancel: CancellationToken) -> Self {
        let (words, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            dropped: AtomicU64::new(0),
            published: AtomicU64::new(0),
            tasks: TaskTracker::new(),
        });
        let task = Task {
            config,
            discovery,
            shared: Arc::clone(&shared),
            publishers: HashMap::default(),
            keys: Vec::new(),
        };
        shared.tasks.spawn(task.run(queue, cancel));
        shared.tasks.close();
        Self { shared, words }
    }

    /// Opens a channel before there is something to tell, so that nobody misses the first words.
    pub fn open(&self, topic: Topic, scope: &EndpointId) {
        self.send(Word::Open(topic, scope.clone()));
    }

    /// Tells what concerns the workers of `scope`.
    pub fn tell(&self, scope: &EndpointId, announcement: Announcement) {
        self.send(Word::Tell(scope.clone(), announcement));
    }

    /// Counters so far.
    pub fn stats(&self) -> AnnouncerStats {
        AnnouncerStats {
            published: self.shared.published.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
        }
    }

    /// Waits until everything is closed and no longer registered. Cancel safe.
    pub async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }

    fn send(&self, word: Word) {
        if self.words.try_send(word).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn count(&self, is_published: bool, words: u64) {
        let counter = if is_published { &self.published } else { &self.dropped };
        counter.fetch_add(words, Ordering::Relaxed);
    }
}

struct Task {
    config: AnnouncerConfig,
    discovery: Arc<dyn Discovery>,
    shared: Arc<Shared>,
    /// Or when a socket or a record could not be had.
    publishers: HashMap<(Topic, EndpointId), Result<Publisher, Instant>>,
    keys: Vec<RecordKey>,
}

impl Task {
    async fn run(mut self, mut queue: mpsc::Receiver<Word>, cancel: CancellationToken) {
        let mut words = Vec::with_capacity(BATCH);
        while let Some(count) = cancel.run_until_cancelled(queue.recv_many(&mut words, BATCH)).await {
            if count == 0 {
                break;
            }
            self.publish(words.drain(..)).await;
        }
        for key in self.keys {
            if let Err(error) = self.discovery.delete(key.clone()).await {
                tracing::warn!(%key, %error, "cannot remove the record of a channel between frontends");
            }
        }
    }

    /// Publishes in order; neighbouring steps of one endpoint's requests go together.
    async fn publish(&mut self, words: impl Iterator<Item = Word>) {
        let mut steps: Option<(EndpointId, Vec<SequenceEvent>)> = None;
        for word in words {
            match word {
                Word::Open(topic, scope) => drop(self.publisher(topic, scope).await),
                Word::Tell(scope, Announcement::Binding(binding)) => {
                    let publisher = self.publisher(Topic::SessionAffinity, scope).await;
                    let is_open = publisher.map(|publisher| publisher.publish_binding(&binding)).is_some();
                    self.shared.count(is_open, 1);
                }
                Word::Tell(scope, Announcement::Sequence(step)) => match &mut steps {
                    Some((of, steps)) if *of == scope => steps.push(step),
                    _ => self.publish_steps(steps.replace((scope, vec![step]))).await,
                },
            }
        }
        self.publish_steps(steps).await;
    }

    async fn publish_steps(&mut self, steps: Option<(EndpointId, Vec<SequenceEvent>)>) {
        let Some((scope, steps)) = steps else { return };
        let publisher = self.publisher(Topic::ActiveSequences, scope).await;
        let is_open = publisher.map(|publisher| publisher.publish_sequences(&steps)).is_some();
        self.shared.count(is_open, steps.len() as u64);
    }

    /// The channel, opened on first use. One that cannot be opened is tried again after a while.
    async fn publisher(&mut self, topic: Topic, scope: EndpointId) -> Option<&Publisher> {
        let key = (topic, scope);
        let is_due = match self.publishers.get(&key) {
            None => true,
            Some(Ok(_)) => false,
            Some(Err(failed)) => failed.elapsed() > PAUSE,
        };
        if is_due {
            let opened = self.open(topic, &key.1).await.map_err(|reason| {
                tracing::warn!(topic = topic.as_str(), endpoint = %key.1, reason, "other frontends cannot be told");
                Instant::now()
            });
            self.publishers.insert(key.clone(), opened);
        }
        self.publishers.get(&key)?.as_ref().ok()
    }

    async fn open(&mut self, topic: Topic, scope: &EndpointId) -> Result<Publisher, String> {
        let id = Some(self.config.publisher_id);
        let publisher = match &self.config.nats {
            Some(nats) => Publisher::on_nats(nats.clone(), scope.clone(), topic, id),
            None => Publisher::bind(PublisherConfig {
                sockets: EventSockets::default(),
                endpoint: scope.clone(),
                topic,
                bind: SocketAddr::new(self.config.bind, 0),
                advertise_host: self.config.advertise_host.clone(),
                publisher_id: id,
            })
            .await
            .map_err(|error| error.to_string())?,
        };
        let record = publisher.channel_record();
        let put = self.discovery.put(record.key(), Bytes::from(record.encode())).await;
        put.map_err(|error| error.to_string())?;
        self.keys.push(record.key());
        Ok(publisher)
    }
}

#[cfg(test)]
mod tests;
