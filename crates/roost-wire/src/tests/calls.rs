use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::harness::*;
use crate::{
    Call, CallError, ClientConfig, Codec, Fault, Item, StreamError, Target, WorkerConfig,
    message::{DynamoError, EngineOutput, EngineRequest, FinishReason, Reason, TokenIdFormat},
};

#[tokio::test]
async fn an_answer_streams_to_its_end() {
    let (seen, mut requests) = mpsc::channel(1);
    let worker = serve(move |context, body| {
        let request = EngineRequest::decode(context.codec, &body)?;
        let last = EngineOutput { finish_reason: Some(FinishReason::Length), ..output(&[3]) };
        seen.try_send((context, request)).unwrap();
        Ok(Feed::ready([output(&[1]).into(), output(&[2]).into(), last.into()]))
    });
    for codec in [Codec::Msgpack, Codec::Json] {
        let frontend = Frontend::new();
        let sent = EngineRequest { model: "m".into(), token_ids: [7, 70_000].into(), ..Default::default() };
        let call = Call {
            id: "the-id",
            body: sent.encode(codec, TokenIdFormat::Array).unwrap(),
            headers: &[("traceparent", "00-1-2-01")],
            metadata: None,
        };
        let target = Target { codec, ..target(worker.address()) };
        let mut stream = within(frontend.client.call(&target, call)).await.unwrap();
        let mut items = Vec::new();
        while let Some(item) = within(stream.next()).await {
            items.push(item.unwrap().data.unwrap());
        }
        assert_eq!(items.iter().flat_map(|item| item.token_ids.to_vec()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(items[2].finish_reason, Some(FinishReason::Length));
        assert!(within(stream.next()).await.is_none());

        let (context, request) = requests.recv().await.unwrap();
        assert_eq!(request, sent);
        assert_eq!((&*context.id, &*context.path, context.codec), ("the-id", PATH, codec));
        let header =
            |name| context.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
        assert_eq!(header("request-id"), Some("the-id"));
        assert_eq!(header("x-endpoint-path"), Some(PATH));
        assert_eq!(header("traceparent"), Some("00-1-2-01"));
        assert!(header("x-frontend-send-ts-ns").unwrap().parse::<u64>().is_ok());
        assert!(!context.cancellation.is_stopped());
        let stats = frontend.client.stats();
        assert_eq!((stats.calls, stats.connections, stats.acks_accepted), (1, 1, 1));
        assert_eq!((frontend.listener.stats().matched, frontend.listener.waiting()), (1, 0));
    }
    until(|| worker.stats().open_streams == 0).await;
    assert_eq!((worker.stats().requests, worker.stats().completed), (2, 2));
}

#[tokio::test]
async fn items_that_came_together_can_be_had_together() {
    let worker =
        serve(|_, _| Ok(Feed::ready([output(&[1, 2, 3]).into(), output(&[4]).into(), output(&[5]).into()])));
    let frontend = Frontend::new();
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    let first = within(stream.next()).await.unwrap().unwrap();
    assert_eq!(&first.data.unwrap().token_ids[..], [1, 2, 3]);
    // Prologue, items and end were one write, so they are here.
    let mut rest = Vec::new();
    assert!(stream.has_received());
    while let Some(item) = stream.next_received() {
        rest.extend_from_slice(&item.unwrap().data.unwrap().token_ids);
    }
    assert_eq!(rest, [4, 5]);
    assert!(!stream.has_received());
    assert!(within(stream.next()).await.is_none());
}

#[tokio::test]
async fn a_failure_in_an_item_ends_the_answer() {
    let worker = serve(|_, _| {
        let error = DynamoError::invalid_argument("not acceptable");
        Ok(Feed::ready([output(&[1]).into(), Item::Error(error), output(&[2]).into()]))
    });
    let frontend = Frontend::new();
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    let (ids, error) = tokens(&mut stream).await;
    let error = error.unwrap();
    assert_eq!((ids, error.reason()), (vec![1], Reason::BackendInvalidArgument));
    assert_eq!((error.fault(), error.is_retryable()), (Fault::Client, false));
    assert_eq!(error.public_message(), Some("not acceptable"));
    assert!(within(stream.next()).await.is_none());
}

#[tokio::test]
async fn a_body_that_cannot_be_decoded_is_refused_as_the_clients_fault() {
    let worker = serve(|context, body| {
        EngineRequest::decode(context.codec, &body)?;
        Ok(Feed::ready([]))
    });
    let frontend = Frontend::new();
    let call = Call::new("the-id", Bytes::from_static(b"\xc1"));
    let error = within(frontend.client.call(&target(worker.address()), call)).await.unwrap_err();
    assert!(matches!(&error, CallError::Rejected(_)), "{error}");
    assert_eq!((error.fault(), error.is_retryable(), error.inhibits_worker()), (Fault::Client, false, false));
    assert_eq!(error.public_message().as_deref(), Some("request body cannot be decoded"));
    assert_eq!(frontend.client.stats().prologue_errors, 1);
}

#[tokio::test]
async fn an_answer_that_is_broken_off_is_incomplete() {
    let worker = serve(|_, _| Ok(Feed::ready([output(&[1]).into(), Item::Abort, output(&[2]).into()])));
    let frontend = Frontend::new();
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    let (ids, error) = tokens(&mut stream).await;
    let error = error.unwrap();
    assert!(matches!(error, StreamError::Incomplete), "{error}");
    assert_eq!((ids, error.fault(), error.is_retryable()), (vec![1], Fault::Transport, true));
    until(|| worker.stats().aborted == 1).await;
}

#[tokio::test]
async fn dropping_an_answer_kills_it() {
    let (seen, mut contexts) = mpsc::channel(1);
    let worker = serve(move |context, _| {
        seen.try_send(context).unwrap();
        let (feed, fed) = mpsc::channel(1);
        feed.try_send(output(&[1]).into()).unwrap();
        // Nothing more comes until the end of the process.
        std::mem::forget(feed);
        Ok(Feed::fed(fed))
    });
    let frontend = Frontend::new();
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    assert!(within(stream.next()).await.unwrap().is_ok());
    let context = contexts.recv().await.unwrap();
    assert!(!context.cancellation.is_stopped());
    stream.kill();
    within(context.cancellation.killed()).await;
    assert!(context.cancellation.is_stopped());
    until(|| worker.stats().cancelled == 1 && worker.stats().open_streams == 0).await;
}

#[tokio::test]
async fn a_flood_of_items_can_be_killed() {
    let (seen, mut contexts) = mpsc::channel(1);
    let worker = serve(move |context, _| {
        seen.try_send(context).unwrap();
        let item: Item = output(&[1; 64]).into();
        Ok(Box::pin(Endless(item)))
    });
    let frontend = Frontend::new();
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    assert!(within(stream.next()).await.unwrap().is_ok());
    drop(stream);
    within(contexts.recv().await.unwrap().cancellation.killed()).await;
}

/// The same item for ever, always ready.
struct Endless(Item);

impl futures_core::Stream for Endless {
    type Item = Item;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Item>> {
        std::task::Poll::Ready(Some(self.0.clone()))
    }
}

#[tokio::test]
async fn a_stopped_answer_may_go_on_but_is_not_complete() {
    let (feeds, mut handlers) = mpsc::channel(1);
    let worker = serve(move |context, _| {
        let (feed, fed) = mpsc::channel(4);
        feeds.try_send((context, feed)).unwrap();
        Ok(Feed::fed(fed))
    });
    let frontend = Frontend::new();
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    let (context, feed) = handlers.recv().await.unwrap();
    stream.stop();
    within(context.cancellation.stopped()).await;
    assert!(!context.cancellation.is_killed());
    feed.send(output(&[9]).into()).await.unwrap();
    drop(feed);
    let (ids, error) = tokens(&mut stream).await;
    assert!(matches!(error, Some(StreamError::Incomplete)), "{error:?}");
    assert_eq!(ids, [9]);
}

#[tokio::test]
async fn an_answer_that_does_not_stop_is_cut_off() {
    let config = WorkerConfig { stop_grace: std::time::Duration::from_millis(20), ..Default::default() };
    let (seen, mut contexts) = mpsc::channel(1);
    let worker = serve_with(config, CancellationToken::new(), move |context, _| {
        seen.try_send(context).unwrap();
        let (feed, fed) = mpsc::channel(1);
        std::mem::forget(feed);
        Ok(Feed::fed(fed))
    });
    let frontend = Frontend::new();
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    stream.stop();
    within(contexts.recv().await.unwrap().cancellation.killed()).await;
    assert!(matches!(tokens(&mut stream).await.1, Some(StreamError::Incomplete)));
}

#[tokio::test]
async fn a_query_collects_the_items_as_they_are() {
    let worker = serve(|_, _| {
        Ok(Feed::ready([
            Item::Encoded(Bytes::from_static(b"\x81\xa1a\x01")),
            Item::Encoded(Bytes::from_static(b"\x07")),
        ]))
    });
    let query = |config| async {
        let frontend = Frontend::with(config);
        let call = Call::new("the-id", Bytes::from_static(b"\x80"));
        within(frontend.client.query(&target(worker.address()), call)).await
    };
    let items = query(ClientConfig::default()).await.unwrap();
    assert_eq!(items, [&b"\x81\xa1a\x01"[..], b"\x07"]);
    let few = query(ClientConfig { max_query_items: 1, ..Default::default() }).await;
    assert!(matches!(few, Err(CallError::AnswerTooLarge)));
    let small = query(ClientConfig { max_query_bytes: 4, ..Default::default() }).await;
    assert!(matches!(small, Err(CallError::AnswerTooLarge)));
}

#[tokio::test]
async fn large_answers_and_requests_pass_in_many_reads() {
    let worker = serve(|_, body| {
        let ids: Vec<u32> = (0..body.len() as u32).collect();
        Ok(Feed::ready([output(&ids).into(), output(&[1]).into()]))
    });
    let frontend = Frontend::new();
    let call = Call::new("the-id", Bytes::from(vec![0; 1_000_000]));
    let mut stream = within(frontend.client.call(&target(worker.address()), call)).await.unwrap();
    let (ids, error) = tokens(&mut stream).await;
    assert!(error.is_none());
    assert_eq!((ids.len(), ids[999_999], ids[1_000_000]), (1_000_001, 999_999, 1));
}

#[test]
fn targets_are_read_from_instance_records() {
    let parse = |text| Target::parse(text, Codec::Json);
    let plain = parse("127.0.0.1:18461/9f/dynamo/backend/generate").unwrap();
    assert_eq!(
        (plain.address, &*plain.path),
        ("127.0.0.1:18461".parse().unwrap(), "9f/dynamo/backend/generate")
    );
    assert_eq!(parse("tcp://127.0.0.1:18461/9f/dynamo/backend/generate").unwrap(), plain);
    assert_eq!(parse("[::1]:1/p").unwrap().address, "[::1]:1".parse().unwrap());
    for wrong in ["", "127.0.0.1:1", "127.0.0.1:1/", "localhost:1/p", "127.0.0.1/p"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(Target::path(0x9f, "a/b", "c%", "d"), "9f/a%2Fb/c%25/d");
}
