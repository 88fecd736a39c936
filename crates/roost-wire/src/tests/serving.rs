use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::harness::*;
use crate::{
    Admission, BoxFuture, CallError, Codec, Fault, Handler, ItemStream, RequestContext, ResponseStream,
    WorkerConfig, WorkerListener, fixtures,
    frame::{Ack, RequestHead},
    message::{ControlMessage, DynamoError},
};

type Handled = (RequestContext, mpsc::Sender<crate::Item>);

/// A worker whose answers are fed by the test.
fn fed(config: WorkerConfig, shutdown: CancellationToken) -> (Arc<WorkerListener>, mpsc::Receiver<Handled>) {
    let (handled, requests) = mpsc::channel(16);
    let worker = serve_with(config, shutdown, move |context, _| {
        let (feed, fed) = mpsc::channel(4);
        handled.try_send((context, feed)).unwrap();
        Ok(Feed::fed(fed))
    });
    (worker, requests)
}

async fn finish(handled: Handled, stream: &mut ResponseStream) {
    handled.1.send(output(&[1]).into()).await.unwrap();
    drop(handled);
    let (ids, error) = tokens(stream).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(ids, [1]);
}

/// A request connection played by hand.
struct Raw(TcpStream, BytesMut);

impl Raw {
    async fn connect(worker: &WorkerListener) -> Self {
        Self(TcpStream::connect(worker.address()).await.unwrap(), BytesMut::new())
    }

    async fn send(&mut self, path: &str, control: &[u8], body: &[u8]) {
        let head = RequestHead { path, headers: &[], control, body_len: body.len() };
        self.0.write_all(&head.encode(usize::MAX).unwrap()).await.unwrap();
        self.0.write_all(body).await.unwrap();
    }

    /// The next ack; `None` when the worker closes.
    async fn ack(&mut self) -> Option<Ack> {
        within(async {
            loop {
                if let Some((ack, len)) = Ack::decode(&self.1).unwrap() {
                    drop(self.1.split_to(len));
                    return Some(ack);
                }
                if self.0.read_buf(&mut self.1).await.unwrap() == 0 {
                    return None;
                }
            }
        })
        .await
    }
}

#[tokio::test]
async fn an_endpoint_is_served_while_it_is_registered() {
    let worker = serve(|_, _| Ok(Feed::ready([])));
    let frontend = Frontend::new();
    let target = target(worker.address());
    assert!(frontend.call(&target).await.is_ok());
    worker.unregister(PATH);
    let error = frontend.call(&target).await.unwrap_err();
    assert!(matches!(&error, CallError::Unavailable(why) if *why == format!("unknown endpoint {PATH}")));
    assert_eq!((error.fault(), error.is_retryable(), error.inhibits_worker()), (Fault::Worker, true, true));
    assert_eq!(worker.stats().unavailable, 1);
}

#[tokio::test]
async fn a_full_worker_refuses_and_recovers() {
    let config = WorkerConfig { max_active: 1, max_queued: 1, ..Default::default() };
    let (worker, mut requests) = fed(config, CancellationToken::new());
    let frontend = Frontend::new();
    let target = target(worker.address());
    let mut first = frontend.call(&target).await.unwrap();
    let handled = requests.recv().await.unwrap();
    let second = frontend.call(&target);
    tokio::pin!(second);
    tokio::select! {
        _ = &mut second => panic!("the only slot is taken"),
        () = until(|| worker.stats().open_queued == 1) => {}
    }
    let third = frontend.call(&target).await.unwrap_err();
    assert!(matches!(&third, CallError::Overloaded(what) if what == "worker at capacity"), "{third}");
    assert_eq!(
        (third.fault(), third.is_retryable(), third.inhibits_worker()),
        (Fault::Overload, true, false)
    );
    finish(handled, &mut first).await;
    // The queued one has its turn.
    let mut second = within(second).await.unwrap();
    finish(requests.recv().await.unwrap(), &mut second).await;
    until(|| worker.stats().completed == 2).await;
    assert_eq!(worker.stats().overloaded, 1);
}

#[tokio::test]
async fn draining_lets_answers_end_and_refuses_new_requests() {
    let (worker, mut requests) = fed(WorkerConfig::default(), CancellationToken::new());
    let frontend = Frontend::new();
    let target = target(worker.address());
    let mut stream = frontend.call(&target).await.unwrap();
    let handled = requests.recv().await.unwrap();
    let drain = worker.drain();
    tokio::pin!(drain);
    let refused = tokio::select! {
        biased;
        () = &mut drain => panic!("an answer is open"),
        refused = frontend.call(&target) => refused.unwrap_err(),
    };
    assert!(matches!(refused, CallError::Unavailable(_)), "{refused}");
    finish(handled, &mut stream).await;
    within(drain).await;
    assert_eq!(worker.stats().open_streams, 0);
}

#[tokio::test]
async fn shutting_down_closes_everything_at_once() {
    let shutdown = CancellationToken::new();
    let (worker, mut requests) = fed(WorkerConfig::default(), shutdown.clone());
    let frontend = Frontend::new();
    let target = target(worker.address());
    let mut stream = frontend.call(&target).await.unwrap();
    let _handled = requests.recv().await.unwrap();
    shutdown.cancel();
    let (_, error) = tokens(&mut stream).await;
    assert!(error.unwrap().is_retryable());
    within(worker.closed()).await;
    let error = frontend.call(&target).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Transport);
}

#[tokio::test]
async fn a_frame_over_the_limit_is_refused_with_its_size() {
    let worker = serve(|_, _| Ok(Feed::ready([])));
    let mut raw = Raw::connect(&worker).await;
    raw.0.write_all(b"\0\x03abc\0\x02{}\x04\0\0\0").await.unwrap();
    let text = "Read error: message too large: 67108877 bytes (max: 33554432 bytes)";
    assert_eq!(raw.ack().await, Some(Ack::Refused(text.into())));
    assert_eq!(raw.ack().await, None);
    assert_eq!(worker.stats().unreadable, 1);
}

#[tokio::test]
async fn requests_that_cannot_be_answered_are_refused_in_the_ack() {
    let worker = serve(|_, _| Ok(Feed::ready([])));
    let mut raw = Raw::connect(&worker).await;
    let quic = fixtures::read("request", "chat_quic_response_plane").json["control"].to_string();
    // Written together: acks keep the order.
    raw.send(PATH, b"{not json", b"\x80").await;
    raw.send(PATH, quic.as_bytes(), b"").await;
    raw.send("0/none/none/none", b"{}", b"").await;
    assert!(
        matches!(raw.ack().await, Some(Ack::Unavailable(why)) if why.starts_with("undecodable control message"))
    );
    let mismatch = "response plane mismatch: frontend requested quic, worker configured tcp";
    assert_eq!(raw.ack().await, Some(Ack::Unavailable(mismatch.into())));
    assert_eq!(raw.ack().await, Some(Ack::unknown_endpoint("0/none/none/none")));
    // A payload that is no two-part message.
    raw.0.write_all(&[&[0, 26][..], PATH.as_bytes(), &[0, 0, 0, 0, 0, 1, 7]].concat()).await.unwrap();
    assert!(matches!(raw.ack().await, Some(Ack::Unavailable(_))));
}

#[tokio::test]
async fn a_context_that_is_not_the_request_is_refused_in_the_prologue() {
    let worker = serve(|_, _| Ok(Feed::ready([])));
    let home = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut control = ControlMessage::new("one", Codec::Msgpack, home.local_addr().unwrap(), "subject");
    control.id = "another".into();
    let mut raw = Raw::connect(&worker).await;
    raw.send(PATH, &serde_json::to_vec(&control).unwrap(), b"\x80").await;
    assert_eq!(raw.ack().await, Some(Ack::Accepted));
    let (mut socket, _) = within(home.accept()).await.unwrap();
    let mut answer = Vec::new();
    within(socket.read_to_end(&mut answer)).await.unwrap();
    let frames = fixtures::two_parts(&answer);
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0].header, br#"{"subject":"subject","stream_type":"response"}"#);
    let prologue: crate::message::Prologue = serde_json::from_slice(frames[1].header).unwrap();
    assert_eq!(prologue.typed_error.unwrap().fault(), Fault::Client);
}

#[tokio::test]
async fn closing_the_answer_without_a_word_cancels_it() {
    let (worker, mut requests) = fed(WorkerConfig::default(), CancellationToken::new());
    let home = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = ControlMessage::new("one", Codec::Msgpack, home.local_addr().unwrap(), "subject");
    let mut raw = Raw::connect(&worker).await;
    raw.send(PATH, &serde_json::to_vec(&control).unwrap(), b"\x80").await;
    let (socket, _) = within(home.accept()).await.unwrap();
    let (context, _feed) = within(requests.recv()).await.unwrap();
    drop(socket);
    within(context.cancellation.killed()).await;
}

#[tokio::test]
async fn a_frontend_that_cannot_be_reached_ends_the_request() {
    let (worker, _requests) = fed(WorkerConfig::default(), CancellationToken::new());
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    let nobody = socket.local_addr().unwrap().as_socket().unwrap();
    let control = ControlMessage::new("one", Codec::Msgpack, nobody, "subject");
    let mut raw = Raw::connect(&worker).await;
    raw.send(PATH, &serde_json::to_vec(&control).unwrap(), b"\x80").await;
    assert_eq!(raw.ack().await, Some(Ack::Accepted));
    until(|| worker.stats().dial_failures == 1 && worker.stats().open_streams == 0).await;
}

/// A handler that only decides what is acknowledged.
#[derive(Debug)]
struct Gate(Admission);

impl Handler for Gate {
    fn handle(&self, _: RequestContext, _: Bytes) -> BoxFuture<'static, Result<ItemStream, DynamoError>> {
        Box::pin(async { Ok(Feed::ready([])) })
    }

    fn admit(&self, _: &[u8]) -> Admission {
        self.0.clone()
    }
}

#[tokio::test]
async fn a_handler_decides_what_is_acknowledged() {
    let worker = WorkerListener::bind(WorkerConfig::default(), CancellationToken::new()).unwrap();
    worker.register("overloaded", Arc::new(Gate(Admission::Overloaded)));
    worker.register("unavailable", Arc::new(Gate(Admission::Unavailable("why".into()))));
    worker.register("forget", Arc::new(Gate(Admission::Forget)));
    worker.register("ignore", Arc::new(Gate(Admission::Ignore)));
    let nobody = "127.0.0.1:1".parse().unwrap();
    let control = serde_json::to_vec(&ControlMessage::new("one", Codec::Json, nobody, "subject")).unwrap();
    let mut raw = Raw::connect(&worker).await;
    for path in ["overloaded", "ignore", "unavailable", "forget"] {
        raw.send(path, &control, b"{}").await;
    }
    assert_eq!(raw.ack().await, Some(Ack::at_capacity()));
    assert_eq!(raw.ack().await, Some(Ack::Unavailable("why".into())));
    assert_eq!(raw.ack().await, Some(Ack::Accepted));
    assert_eq!((worker.stats().requests, worker.stats().dial_failures), (4, 0));
}

#[tokio::test]
async fn captured_requests_are_acknowledged_in_order() {
    let (worker, mut requests) = fed(WorkerConfig::default(), CancellationToken::new());
    let fixture = fixtures::read("request", "chat_plain");
    let path = fixture.json["path"].as_str().unwrap();
    let handled = mpsc::channel(1);
    worker.register(
        path,
        Arc::new(Answer(move |context: RequestContext, body: Bytes| {
            let request = crate::message::EngineRequest::decode(context.codec, &body)?;
            handled.0.try_send(request.token_ids.len()).unwrap();
            Ok(Feed::ready([]))
        })),
    );
    let mut raw = Raw::connect(&worker).await;
    // Sent in two pieces, with the frame of another endpoint close behind.
    let (head, tail) = fixture.bytes.split_at(500);
    raw.0.write_all(head).await.unwrap();
    tokio::task::yield_now().await;
    raw.0.write_all(tail).await.unwrap();
    raw.send("nothing", b"{}", b"").await;
    assert_eq!(raw.ack().await, Some(Ack::Accepted));
    assert_eq!(raw.ack().await, Some(Ack::unknown_endpoint("nothing")));
    // Nobody listens at the captured address any more, so the handler is never reached.
    until(|| worker.stats().dial_failures == 1).await;
    assert!(requests.try_recv().is_err());
}
