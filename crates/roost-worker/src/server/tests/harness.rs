//! A worker behind real sockets, memory discovery, and a frontend's end of the plane.

use std::sync::Arc;
use std::time::Duration;

use roost_cluster::discovery::{Discovery, MemoryDiscovery};
use roost_cluster::record::{Bucket, CardRecord, InstanceRecord};
use roost_wire::message::{EngineOutput, EngineRequest, StopConditions, TokenIdFormat};
use roost_wire::{
    Call, CallError, Client, ClientConfig, Codec, ListenerConfig, ResponseListener, ResponseStream,
    StreamError, Target,
};
use tempfile::TempDir;

use crate::{
    Answer, Engine, MockConfig, MockEngine, MockTiming, RankLoad, RunningWorker, ScriptBook, TextCodec,
    WorkerConfig, WorkerServer, tiny_chat,
};

/// Longest wait for anything in these tests.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

const BOOK: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/cases/fixtures/worker-scripts.json"
));

pub(super) struct Harness {
    pub(super) store: Arc<MemoryDiscovery>,
    pub(super) engine: Arc<MockEngine>,
    pub(super) worker: RunningWorker,
    pub(super) client: Arc<Client>,
    _model: TempDir,
}

/// What a test may change before the worker starts.
pub(super) struct Settings {
    pub(super) engine: MockConfig,
    pub(super) worker: WorkerConfig,
}

impl Harness {
    pub(super) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let model = tempfile::tempdir().unwrap();
        let store = MemoryDiscovery::new();
        let mut settings = Settings {
            engine: MockConfig {
                block_size: 4,
                total_blocks: 256,
                timing: MockTiming::INSTANT,
                codec: Some(TextCodec::tiny_chat()),
                answer: Answer::Tokens { vocabulary: 97..123, length: 6..7 },
                scripts: ScriptBook::from_json(BOOK).unwrap(),
                ..MockConfig::new("tiny", tiny_chat(model.path()).unwrap())
            },
            worker: WorkerConfig {
                codec_for_journal: Some(TextCodec::tiny_chat()),
                ..WorkerConfig::new(store.participant())
            },
        };
        settings.worker.crash = settings.engine.exit.clone();
        change(&mut settings);
        let engine = Arc::new(MockEngine::new(settings.engine));
        let worker = WorkerServer::start(engine.clone(), settings.worker).await.unwrap();
        let listener = ResponseListener::bind(ListenerConfig::default()).unwrap();
        let client = Arc::new(Client::new(client_config(), listener));
        Self { store, engine, worker, client, _model: model }
    }

    pub(super) fn target(&self, codec: Codec) -> Target {
        Target { address: self.worker.address(), path: self.worker.path().into(), codec }
    }

    pub(super) async fn call(&self, id: &str, request: &EngineRequest) -> Result<ResponseStream, CallError> {
        let body = request.encode(Codec::Msgpack, TokenIdFormat::Array).unwrap();
        within(self.client.call(&self.target(Codec::Msgpack), Call::new(id, body))).await
    }

    /// The whole answer, which must begin; its end is the second part.
    pub(super) async fn ask(
        &self,
        id: &str,
        request: &EngineRequest,
    ) -> (Vec<EngineOutput>, Option<StreamError>) {
        collect(self.call(id, request).await.unwrap()).await
    }

    /// Records of one bucket as the store holds them.
    pub(super) fn records(&self, bucket: Bucket) -> Vec<(String, serde_json::Value)> {
        let snapshot = self.store.watch().borrow().clone();
        let of_bucket = snapshot.records.iter().filter(|(key, _)| key.bucket == bucket);
        of_bucket.map(|(key, value)| (key.key.clone(), serde_json::from_slice(value).unwrap())).collect()
    }

    pub(super) fn card(&self) -> CardRecord {
        let (_, value) = self.records(Bucket::Cards).pop().unwrap();
        CardRecord::decode(value.to_string().as_bytes()).unwrap()
    }

    pub(super) fn instances(&self) -> Vec<InstanceRecord> {
        let records = self.records(Bucket::Instances);
        records
            .iter()
            .map(|(_, value)| InstanceRecord::decode(value.to_string().as_bytes()).unwrap())
            .collect()
    }

    pub(super) async fn load(&self, wanted: impl FnMut(&Vec<RankLoad>) -> bool) {
        within(self.engine.load().wait_for(wanted)).await.unwrap();
    }
}

/// Deadlines short enough to see them pass, long enough for a busy machine.
fn client_config() -> ClientConfig {
    ClientConfig {
        ack_timeout: Duration::from_secs(2),
        call_home_timeout: Duration::from_secs(2),
        prologue_timeout: Duration::from_secs(2),
        ..ClientConfig::default()
    }
}

pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}

pub(super) async fn collect(mut stream: ResponseStream) -> (Vec<EngineOutput>, Option<StreamError>) {
    let mut items = Vec::new();
    loop {
        match within(stream.next()).await {
            None => return (items, None),
            Some(Err(error)) => return (items, Some(error)),
            Some(Ok(mut item)) => match item.take_error() {
                Some(error) => return (items, Some(StreamError::Worker(Box::new(error)))),
                None => items.extend(item.data),
            },
        }
    }
}

pub(super) fn request(prompt: &str, max_tokens: u32) -> EngineRequest {
    EngineRequest {
        model: "tiny".to_owned(),
        token_ids: TextCodec::tiny_chat().encode(prompt).into(),
        stop_conditions: StopConditions { max_tokens: Some(max_tokens), ..StopConditions::default() },
        eos_token_ids: vec![258],
        ..EngineRequest::default()
    }
}

pub(super) fn ids(items: &[EngineOutput]) -> Vec<u32> {
    items.iter().flat_map(|item| item.token_ids.iter().copied()).collect()
}
