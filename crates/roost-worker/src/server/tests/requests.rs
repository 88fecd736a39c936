use roost_wire::message::{AgentContext, FinishReason, Reason, Routing, TokenIdFormat};
use roost_wire::{Call, CallError, Codec, StreamError};

use super::harness::{Harness, PATIENCE, collect, ids, request, within};
use crate::{CancelKind, Finish};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_crosses_the_plane_in_either_codec() {
    let harness = Harness::start().await;
    let mut answers = Vec::new();
    for (codec, format) in [
        (Codec::Msgpack, TokenIdFormat::Array),
        (Codec::Msgpack, TokenIdFormat::Bytes),
        (Codec::Json, TokenIdFormat::Array),
    ] {
        let body = request("hello world", 5).encode(codec, format).unwrap();
        let stream = harness.client.call(&harness.target(codec), Call::new("r", body)).await.unwrap();
        let (items, error) = collect(stream).await;
        assert!(error.is_none());
        assert_eq!(items.last().unwrap().finish_reason, Some(FinishReason::Length));
        answers.push(ids(&items));
    }
    assert_eq!(answers[0].len(), 5);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_tells_what_was_asked_and_how_it_ended() {
    let harness = Harness::start().await;
    let mut wanted = request("hello <|im_end|>", 3);
    wanted.routing = Some(Routing { dp_rank: Some(0), priority: Some(7), ..Routing::default() });
    wanted.agent_context = Some(AgentContext { session_id: "s".into(), ..AgentContext::default() });
    harness.ask("request-1", &wanted).await;
    let journal = harness.worker.journal();
    let finished = journal.wait_for(PATIENCE, |journal| journal.finished().pop()).await.unwrap();
    assert_eq!((finished.id.as_str(), finished.how, finished.items), ("request-1", Finish::Complete, 3));
    let asked = &journal.requests()[0];
    assert_eq!((asked.id.as_str(), asked.worker_id), ("request-1", harness.worker.id()));
    assert_eq!(asked.text.as_deref(), Some("hello <|im_end|>"));
    assert_eq!(asked.request, wanted);
    assert!(journal.cancellations().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_leaves_cancels_the_engine() {
    let harness = Harness::start().await;
    let mut stream = harness.call("gone", &request("@@drip@@", 1000)).await.unwrap();
    within(stream.next()).await.unwrap().unwrap();
    harness.load(|load| load[0].running_requests == 1).await;
    drop(stream);
    let journal = harness.worker.journal();
    let cancelled = journal.wait_for(PATIENCE, |journal| journal.cancellations().pop()).await.unwrap();
    assert_eq!((cancelled.id.as_str(), cancelled.kind), ("gone", CancelKind::Kill));
    let finished = journal.wait_for(PATIENCE, |journal| journal.finished().pop()).await.unwrap();
    assert_eq!(finished.how, Finish::Dropped);
    harness.load(|load| load[0].running_requests == 0 && load[0].active_blocks == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reaches_the_engine_as_one() {
    let harness = Harness::start().await;
    let mut stream = harness.call("stopped", &request("@@drip@@", 1000)).await.unwrap();
    within(stream.next()).await.unwrap().unwrap();
    stream.stop();
    let (items, _) = collect(stream).await;
    assert!(items.len() < 199, "it ended early");
    let cancelled =
        harness.worker.journal().wait_for(PATIENCE, |journal| journal.cancellations().pop()).await;
    assert_eq!(cancelled.unwrap().kind, CancelKind::Stop);
    harness.load(|load| load[0].running_requests == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_errors_are_items_and_undecodable_bodies_are_refused() {
    let harness = Harness::start().await;
    let (items, error) = harness.ask("a", &request("@@die@@", 100)).await;
    assert_eq!(ids(&items).len(), "partial answer".len());
    let Some(StreamError::Worker(error)) = error else { panic!("{error:?}") };
    assert_eq!((error.reason, error.public_message()), (Reason::BackendUnknown, None));
    let (_, error) = harness.ask("b", &request("", 1)).await;
    let Some(StreamError::Worker(error)) = error else { panic!("{error:?}") };
    assert_eq!(
        (error.reason, error.public_message()),
        (Reason::BackendInvalidArgument, Some("the prompt is empty"))
    );
    let body = bytes::Bytes::from_static(&[0xa3, b'a', b'b', b'c']);
    let refused = within(harness.client.call(&harness.target(Codec::Msgpack), Call::new("c", body))).await;
    assert!(
        matches!(refused, Err(CallError::Rejected(error)) if error.reason == Reason::RequestInvalidArgument)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_worker_refuses() {
    let harness = Harness::with(|settings| {
        settings.worker.listen.max_active = 1;
        settings.worker.listen.max_queued = 0;
    })
    .await;
    let mut first = harness.call("a", &request("@@drip@@", 1000)).await.unwrap();
    within(first.next()).await.unwrap().unwrap();
    let second = harness.call("b", &request("hello", 1)).await;
    assert!(matches!(second, Err(CallError::Overloaded(_))), "{second:?}");
    drop(first);
    harness.worker.journal().wait_for(PATIENCE, |journal| journal.finished().pop()).await.unwrap();
    // The slot is given back a moment after the answer's end: ask until it is.
    let served = within(async {
        loop {
            match harness.call("c", &request("hello", 1)).await {
                Ok(stream) => return collect(stream).await.0.len(),
                Err(CallError::Overloaded(_)) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    })
    .await;
    assert_eq!(served, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_are_all_answered() {
    let harness = Harness::start().await;
    let asking = (0..64).map(|number| {
        let harness = &harness;
        async move {
            ids(&harness.ask(&format!("r{number}"), &request(&format!("prompt {number}"), 5)).await.0).len()
        }
    });
    assert!(futures_util::future::join_all(asking).await.iter().all(|length| *length == 5));
}
