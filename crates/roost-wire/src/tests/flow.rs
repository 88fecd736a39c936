//! Who waits for whom, and who has the last word.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time,
};
use tokio_util::sync::CancellationToken;

use super::harness::*;
use crate::{
    Call, Client, ClientConfig, Codec, Item, ListenerConfig, ResponseListener, Transport, WorkerConfig,
    frame::RequestHead,
    line,
    message::{ControlMessage, ControlSignal},
};
use roost_simulation::{Network, Weather};

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_makes_only_its_own_worker_wait() {
    let transport = Transport::simulated(Network::new(1, Weather::calm()));
    let produced = Arc::new(AtomicU32::new(0));
    let config = WorkerConfig { transport: transport.clone(), ..Default::default() };
    let counter = Arc::clone(&produced);
    let worker = serve_with(config, CancellationToken::new(), move |context, _| {
        let (feed, fed) = mpsc::channel(1);
        let (endless, counter) = (&*context.id == "endless", Arc::clone(&counter));
        tokio::spawn(async move {
            for number in 0..if endless { u32::MAX } else { 50 } {
                if feed.send(output(&[number]).into()).await.is_err() {
                    return;
                }
                if endless {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Feed::fed(fed))
    });
    let config = ListenerConfig { transport: transport.clone(), ..Default::default() };
    let listener = ResponseListener::bind(config).unwrap();
    let client = Client::new(ClientConfig { transport, ..Default::default() }, listener);
    let target = target(worker.address());
    let call = |id: &'static str| client.call(&target, Call::new(id, Bytes::new()));

    let mut slow = call("endless").await.unwrap();
    assert!(slow.next().await.unwrap().is_ok());
    time::sleep(Duration::from_secs(60)).await;
    let stalled = produced.load(Ordering::Relaxed);
    assert!(stalled < 10_000, "{stalled} items for nobody");
    // A minute more changes nothing, and a quick consumer is served in the meantime.
    let mut quick = call("quick").await.unwrap();
    assert_eq!(tokens(&mut quick).await.0.len(), 50);
    time::sleep(Duration::from_secs(60)).await;
    assert_eq!(produced.load(Ordering::Relaxed), stalled);
    // What was held back is all there.
    for number in 1..stalled + 100 {
        assert_eq!(*slow.next().await.unwrap().unwrap().data.unwrap().token_ids, [number]);
    }
}

/// Asks the worker with a listener of our own, so that what is said on the answer's connection is ours to decide.
async fn asked(worker: std::net::SocketAddr) -> (TcpStream, TcpStream) {
    let home = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = ControlMessage::new("id", Codec::Msgpack, home.local_addr().unwrap(), "subject");
    let control = serde_json::to_vec(&control).unwrap();
    let head = RequestHead { path: PATH, headers: &[], control: &control, body_len: 0 };
    let mut request = TcpStream::connect(worker).await.unwrap();
    request.write_all(&head.encode(usize::MAX).unwrap()).await.unwrap();
    let (answer, _) = within(home.accept()).await.unwrap();
    (request, answer)
}

#[tokio::test]
async fn a_kill_that_comes_after_the_end_has_lost_the_race() {
    let worker = serve(|_, _| Ok(Feed::ready([Item::from(output(&[1]))])));
    let (_request, mut answer) = asked(worker.address()).await;
    let mut seen = BytesMut::new();
    while !seen.ends_with(b"\"sentinel\"") {
        assert_ne!(within(answer.read_buf(&mut seen)).await.unwrap(), 0);
    }
    answer.write_all(&line::control_frame(ControlSignal::Kill)).await.unwrap();
    drop(answer);
    until(|| worker.stats().open_streams == 0).await;
    let stats = worker.stats();
    assert_eq!((stats.completed, stats.cancelled), (1, 0));
}

#[tokio::test]
async fn a_worker_does_not_wait_for_ever_for_the_frontend_to_close() {
    let config = WorkerConfig { close_timeout: Duration::from_millis(20), ..Default::default() };
    let worker =
        serve_with(config, CancellationToken::new(), |_, _| Ok(Feed::ready([Item::from(output(&[1]))])));
    let (_request, mut answer) = asked(worker.address()).await;
    let mut seen = BytesMut::new();
    while within(answer.read_buf(&mut seen)).await.unwrap() > 0 {}
    assert!(seen.ends_with(b"\"sentinel\""));
    assert_eq!(worker.stats().completed, 1);
}

#[tokio::test]
async fn a_million_tokens_pass_with_the_usual_limit() {
    let (frontend, worker) = (
        Frontend::new(),
        serve(|_, body| {
            let request = crate::message::EngineRequest::decode(Codec::Msgpack, &body)?;
            Ok(Feed::ready([Item::from(output(&[request.token_ids.len() as u32]))]))
        }),
    );
    let ids: Arc<[u32]> = (0..1_000_000).map(|n| n % 150_000).collect();
    let request = crate::message::EngineRequest { token_ids: ids[..].into(), ..Default::default() };
    let body = request.encode(Codec::Msgpack, Default::default()).unwrap();
    let target = target(worker.address());
    let mut stream = within(frontend.client.call(&target, Call::new("id", body))).await.unwrap();
    assert_eq!(tokens(&mut stream).await.0, [1_000_000]);
}
