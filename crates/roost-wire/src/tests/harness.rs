use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_core::Stream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time,
};
use tokio_util::sync::CancellationToken;

use crate::{
    BoxFuture, Call, CallError, Client, ClientConfig, Codec, Handler, Item, ItemStream, ListenerConfig,
    RequestContext, ResponseListener, ResponseStream, StreamError, Target, WorkerConfig, WorkerListener,
    frame::{self, Ack, RequestFrame, TwoPart},
    message::{Annotated, ControlMessage, ControlSignal, DynamoError, EngineOutput, envelope},
};

pub(super) const PATH: &str = "1f/dynamo/backend/generate";

/// Fails the test when something that must happen does not.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

/// Waits for a condition that other tasks bring about.
pub(super) async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The calling side with its listener.
pub(super) struct Frontend {
    pub(super) listener: Arc<ResponseListener>,
    pub(super) client: Client,
}

impl Frontend {
    pub(super) fn new() -> Self {
        Self::with(ClientConfig::default())
    }

    pub(super) fn with(config: ClientConfig) -> Self {
        let listener = ResponseListener::bind(ListenerConfig::default()).unwrap();
        Self { client: Client::new(config, Arc::clone(&listener)), listener }
    }

    pub(super) async fn call(&self, target: &Target) -> Result<ResponseStream, CallError> {
        within(self.client.call(target, Call::new("the-id", Bytes::from_static(b"\x80")))).await
    }
}

pub(super) fn target(address: SocketAddr) -> Target {
    Target { address, path: PATH.into(), codec: Codec::Msgpack }
}

/// The tokens of an answer up to its end.
pub(super) async fn tokens(stream: &mut ResponseStream) -> (Vec<u32>, Option<StreamError>) {
    let mut all = Vec::new();
    loop {
        match within(stream.next()).await {
            Some(Ok(item)) => all.extend_from_slice(&item.data.unwrap().token_ids),
            Some(Err(error)) => return (all, Some(error)),
            None => return (all, None),
        }
    }
}

pub(super) fn output(ids: &[u32]) -> EngineOutput {
    EngineOutput { token_ids: ids.into(), ..Default::default() }
}

/// Items that are ready at once, then those that are fed.
pub(super) struct Feed {
    pub(super) ready: VecDeque<Item>,
    pub(super) fed: Option<mpsc::Receiver<Item>>,
}

impl Feed {
    pub(super) fn ready(items: impl IntoIterator<Item = Item>) -> ItemStream {
        Box::pin(Self { ready: items.into_iter().collect(), fed: None })
    }

    pub(super) fn fed(fed: mpsc::Receiver<Item>) -> ItemStream {
        Box::pin(Self { ready: VecDeque::new(), fed: Some(fed) })
    }
}

impl Stream for Feed {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        match (self.ready.pop_front(), &mut self.fed) {
            (Some(item), _) => Poll::Ready(Some(item)),
            (None, Some(fed)) => fed.poll_recv(cx),
            (None, None) => Poll::Ready(None),
        }
    }
}

/// A handler made of a closure.
pub(super) struct Answer<F>(pub(super) F);

impl<F> fmt::Debug for Answer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

impl<F> Handler for Answer<F>
where
    F: Fn(RequestContext, Bytes) -> Result<ItemStream, DynamoError> + Send + Sync + 'static,
{
    fn handle(
        &self,
        context: RequestContext,
        body: Bytes,
    ) -> BoxFuture<'static, Result<ItemStream, DynamoError>> {
        let answer = self.0(context, body);
        Box::pin(async move { answer })
    }
}

/// The serving side with one endpoint.
pub(super) fn serve<F>(answer: F) -> Arc<WorkerListener>
where
    F: Fn(RequestContext, Bytes) -> Result<ItemStream, DynamoError> + Send + Sync + 'static,
{
    serve_with(WorkerConfig::default(), CancellationToken::new(), answer)
}

pub(super) fn serve_with<F>(
    config: WorkerConfig,
    shutdown: CancellationToken,
    answer: F,
) -> Arc<WorkerListener>
where
    F: Fn(RequestContext, Bytes) -> Result<ItemStream, DynamoError> + Send + Sync + 'static,
{
    let worker = WorkerListener::bind(config, shutdown).unwrap();
    worker.register(PATH, Arc::new(Answer(answer)));
    worker
}

/// A worker played by hand.
pub(super) struct FakeWorker {
    listener: TcpListener,
}

impl FakeWorker {
    pub(super) async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(super) fn target(&self) -> Target {
        target(self.listener.local_addr().unwrap())
    }

    pub(super) async fn accept(&self) -> FakeConnection {
        let (socket, _) = within(self.listener.accept()).await.unwrap();
        FakeConnection { socket, inbox: BytesMut::new() }
    }
}

/// The worker's end of a request connection.
pub(super) struct FakeConnection {
    pub(super) socket: TcpStream,
    inbox: BytesMut,
}

impl FakeConnection {
    pub(super) async fn request(&mut self) -> ControlMessage {
        let frame = within(async {
            loop {
                if let Some(frame) = RequestFrame::decode(&mut self.inbox, usize::MAX).unwrap() {
                    break frame;
                }
                assert_ne!(self.socket.read_buf(&mut self.inbox).await.unwrap(), 0, "closed by the client");
            }
        })
        .await;
        let (control, _) = frame.parts().unwrap();
        serde_json::from_slice(&control).unwrap()
    }

    pub(super) async fn ack(&mut self, ack: Ack) {
        let mut bytes = Vec::new();
        ack.encode(&mut bytes);
        self.socket.write_all(&bytes).await.unwrap();
    }

    /// Waits until the client closes.
    pub(super) async fn closed(mut self) {
        while !matches!(within(self.socket.read_buf(&mut self.inbox)).await, Ok(0) | Err(_)) {}
    }
}

/// The worker's end of a call-home connection.
pub(super) struct FakeHome {
    pub(super) socket: TcpStream,
    inbox: BytesMut,
}

impl FakeHome {
    /// Connects and names the subject.
    pub(super) async fn dial(request: &ControlMessage) -> Self {
        let home = request.connection_info.tcp().unwrap();
        let mut this = Self::connect(home.address).await;
        this.control(&format!(r#"{{"subject":"{}","stream_type":"response"}}"#, home.subject)).await;
        this
    }

    pub(super) async fn connect(address: SocketAddr) -> Self {
        Self { socket: TcpStream::connect(address).await.unwrap(), inbox: BytesMut::new() }
    }

    /// Connects, names the subject and accepts.
    pub(super) async fn begin(request: &ControlMessage) -> Self {
        let mut this = Self::dial(request).await;
        this.control(r#"{"error":null}"#).await;
        this
    }

    pub(super) async fn control(&mut self, text: &str) {
        let mut bytes = Vec::new();
        TwoPart { header: text.as_bytes(), body: &[] }.encode(&mut bytes);
        self.send(&bytes).await;
    }

    pub(super) async fn data(&mut self, body: &[u8]) {
        let mut bytes = Vec::new();
        TwoPart { header: &[], body }.encode(&mut bytes);
        self.send(&bytes).await;
    }

    pub(super) async fn item(&mut self, ids: &[u32]) {
        self.send(&item_frame(ids)).await;
    }

    pub(super) async fn complete(&mut self) {
        self.data(envelope::end(Codec::Msgpack)).await;
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Waits for what the frontend says; `None` when it closes.
    pub(super) async fn heard(&mut self) -> Option<ControlSignal> {
        within(async {
            loop {
                if let Some((frame, len)) = TwoPart::decode(&self.inbox, 1024).unwrap() {
                    let signal = serde_json::from_slice(frame.header).unwrap();
                    self.inbox.advance(len);
                    return Some(signal);
                }
                if matches!(self.socket.read_buf(&mut self.inbox).await, Ok(0) | Err(_)) {
                    return None;
                }
            }
        })
        .await
    }
}

/// The frame of a token item.
pub(super) fn item_frame(ids: &[u32]) -> Vec<u8> {
    let item = Annotated::from_data(output(ids));
    let mut bytes = Vec::new();
    frame::put_data(&mut bytes, |out| {
        envelope::put_item(Codec::Msgpack, out, |out| Codec::Msgpack.encode_into(&item, out))
    })
    .unwrap();
    bytes
}
