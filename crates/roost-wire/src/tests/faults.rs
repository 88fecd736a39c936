use std::time::Duration;

use super::harness::*;
use crate::{
    CallError, ClientConfig, Codec, Fault, ResponseStream, StreamError,
    frame::{Ack, TwoPart},
    message::{ControlSignal, Reason, envelope},
};

const SHORT: Duration = Duration::from_millis(50);

/// A call to a worker played by hand, as far as the positive prologue.
async fn begun() -> (Frontend, FakeConnection, FakeHome, ResponseStream) {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    let (stream, (connection, home)) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        let request = connection.request().await;
        connection.ack(Ack::Accepted).await;
        (connection, FakeHome::begin(&request).await)
    });
    (frontend, connection, home, stream.unwrap())
}

/// The end of a call whose worker does this after its acknowledgement.
async fn refused(prologue: Option<&str>) -> CallError {
    let frontend =
        Frontend::with(ClientConfig { prologue_timeout: Duration::from_millis(200), ..Default::default() });
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (stream, _kept) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        let request = connection.request().await;
        connection.ack(Ack::Accepted).await;
        let mut home = FakeHome::dial(&request).await;
        match prologue {
            Some("") => drop(home),
            Some(text) => {
                home.control(text).await;
                return Some((connection, home));
            }
            None => return Some((connection, home)),
        }
        None
    });
    assert_eq!(frontend.listener.waiting(), 0);
    stream.unwrap_err()
}

#[tokio::test]
async fn calling_home_may_come_before_the_ack() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    let (stream, mut connection) = tokio::join!(
        async {
            let mut stream = frontend.call(&target).await.unwrap();
            tokens(&mut stream).await
        },
        async {
            let mut connection = worker.accept().await;
            let request = connection.request().await;
            let mut home = FakeHome::begin(&request).await;
            home.item(&[5]).await;
            home.complete().await;
            home.control("\"sentinel\"").await;
            assert_eq!(home.heard().await, None);
            connection
        }
    );
    assert_eq!(stream.0, [5]);
    assert!(stream.1.is_none());
    // The place in the order of acks is still there: this one is not taken for the next call's.
    let (second, ()) = tokio::join!(frontend.call(&target), async {
        connection.request().await;
        connection.ack(Ack::Accepted).await;
        connection.ack(Ack::at_capacity()).await;
    });
    assert!(matches!(second, Err(CallError::Overloaded(_))));
}

#[tokio::test]
async fn a_worker_that_does_not_acknowledge_costs_its_connection() {
    let frontend = Frontend::with(ClientConfig { ack_timeout: SHORT, ..Default::default() });
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (result, connection) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        connection.request().await;
        connection
    });
    let error = result.unwrap_err();
    assert!(matches!(error, CallError::AckTimeout), "{error}");
    assert_eq!((error.fault(), error.is_retryable(), error.inhibits_worker()), (Fault::Deadline, true, true));
    connection.closed().await;
    assert_eq!(frontend.client.stats().ack_timeouts, 1);
    // The next call gets a new connection.
    let (result, ()) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        connection.request().await;
        connection.ack(Ack::unknown_endpoint("p")).await;
    });
    assert!(matches!(result, Err(CallError::Unavailable(why)) if why == "unknown endpoint p"));
}

#[tokio::test]
async fn a_worker_that_does_not_call_home_is_given_up() {
    let frontend = Frontend::with(ClientConfig { call_home_timeout: SHORT, ..Default::default() });
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (result, (_connection, request)) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        let request = connection.request().await;
        connection.ack(Ack::Accepted).await;
        (connection, request)
    });
    let error = result.unwrap_err();
    assert!(matches!(error, CallError::CallHomeTimeout), "{error}");
    assert_eq!((error.fault(), error.is_retryable()), (Fault::Deadline, true));
    assert_eq!(frontend.listener.waiting(), 0);
    // Calling home after all, it is told that nobody waits.
    let mut late = FakeHome::begin(&request).await;
    assert_eq!(late.heard().await, Some(ControlSignal::Kill));
    assert_eq!(late.heard().await, None);
    assert_eq!(frontend.listener.stats().unknown_subjects, 1);
}

#[tokio::test]
async fn refusals_in_the_prologue_keep_their_meaning() {
    let error = refused(Some(r#"{"error":"no engine"}"#)).await;
    assert!(matches!(&error, CallError::Prologue(text) if text == "no engine"), "{error}");
    assert_eq!((error.fault(), error.inhibits_worker()), (Fault::Worker, true));
    assert_eq!(error.public_message(), None);

    let error = refused(Some(
        r#"{"error":"x","typed_error":{"error_type":"InvalidArgument","class":"InvalidRequest",
        "reason":"request.invalid_argument","message":"in","public":{"type":"message","message":"out"}}}"#,
    ))
    .await;
    assert!(matches!(error, CallError::Rejected(_)), "{error}");
    assert_eq!((error.fault(), error.inhibits_worker()), (Fault::Client, false));
    assert_eq!(error.public_message().as_deref(), Some("out"));

    let error = refused(Some(
        r#"{"error":"x","typed_error":{"error_type":{"Backend":"EngineShutdown"},"class":"Unavailable",
        "reason":"backend.engine_shutdown","message":"bye"}}"#,
    ))
    .await;
    assert_eq!((error.reason(), error.is_retryable()), (Reason::EngineShutdown, true));
    assert!(error.inhibits_worker());
}

#[tokio::test]
async fn a_missing_prologue_is_an_error() {
    assert!(matches!(refused(Some("")).await, CallError::Stream(StreamError::Incomplete)));
    assert!(matches!(refused(Some("nonsense")).await, CallError::Stream(StreamError::Protocol(_))));
    let error = refused(None).await;
    assert!(matches!(error, CallError::PrologueTimeout), "{error}");
    assert_eq!(error.reason(), Reason::ResponseTimeout);
}

#[tokio::test]
async fn closing_before_completion_is_incomplete() {
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    home.item(&[1]).await;
    drop(home);
    let (ids, error) = tokens(&mut stream).await;
    assert!(matches!(error, Some(StreamError::Incomplete)), "{error:?}");
    assert_eq!(ids, [1]);
}

#[tokio::test]
async fn closing_within_a_frame_is_incomplete() {
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    let frame = item_frame(&[1]);
    home.send(&frame[..frame.len() - 1]).await;
    drop(home);
    let (ids, error) = tokens(&mut stream).await;
    assert!(matches!(error, Some(StreamError::Incomplete)), "{error:?}");
    assert!(ids.is_empty());
}

#[tokio::test]
async fn a_reset_is_a_lost_connection() {
    let (_frontend, _connection, home, mut stream) = begun().await;
    socket2::SockRef::from(&home.socket).set_linger(Some(Duration::ZERO)).unwrap();
    drop(home);
    let (_, error) = tokens(&mut stream).await;
    let error = error.unwrap();
    assert!(matches!(error, StreamError::Broken(_)), "{error}");
    assert_eq!((error.fault(), error.is_retryable()), (Fault::Transport, true));
}

#[tokio::test]
async fn a_missing_sentinel_is_tolerated() {
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    home.item(&[1]).await;
    home.complete().await;
    drop(home);
    let (ids, error) = tokens(&mut stream).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(ids, [1]);

    // Even when the worker neither says nor closes anything.
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    home.complete().await;
    let (ids, error) = tokens(&mut stream).await;
    assert!(error.is_none() && ids.is_empty(), "{error:?}");
    assert_eq!(home.heard().await, None);
}

#[tokio::test]
async fn a_reset_after_completion_is_an_end() {
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    let mut item_and_end = item_frame(&[1]);
    let end = envelope::end(Codec::Msgpack);
    TwoPart { header: &[], body: end }.encode(&mut item_and_end);
    home.send(&item_and_end).await;
    // One write is one read here: with the item the end has been read too.
    assert!(within(stream.next()).await.unwrap().is_ok());
    socket2::SockRef::from(&home.socket).set_linger(Some(Duration::ZERO)).unwrap();
    drop(home);
    let (_, error) = tokens(&mut stream).await;
    assert!(error.is_none(), "{error:?}");
}

#[tokio::test]
async fn an_item_after_completion_is_an_error() {
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    home.complete().await;
    home.item(&[1]).await;
    let (ids, error) = tokens(&mut stream).await;
    let error = error.unwrap();
    assert!(matches!(error, StreamError::AfterEnd), "{error}");
    assert_eq!((ids.len(), error.fault(), error.is_retryable()), (0, Fault::Worker, false));
}

#[tokio::test]
async fn control_frames_end_an_answer() {
    for (text, complete) in
        [("\"sentinel\"", false), ("\"kill\"", false), ("\"stop\"", true), ("\"later\"", false)]
    {
        let (_frontend, _connection, mut home, mut stream) = begun().await;
        if complete {
            home.complete().await;
        }
        home.control(text).await;
        let (_, error) = tokens(&mut stream).await;
        match text {
            "\"sentinel\"" => assert!(matches!(error, Some(StreamError::Incomplete)), "{error:?}"),
            _ => assert!(matches!(error, Some(StreamError::Killed(_))), "{text}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn frames_without_meaning_are_errors_and_kill() {
    let huge = [&u64::MAX.to_be_bytes()[..], &[0; 16]].concat();
    for (case, sent) in [
        ("neither", None),
        ("undecodable", Some(&b"\x82\xa4data\xc1\xaecomplete_final\xc2"[..])),
        ("no item", Some(b"\x82\xa4data\x81\xa4data\x80\xaecomplete_final\xc2")),
        ("huge", Some(&huge)),
    ] {
        let (_frontend, _connection, mut home, mut stream) = begun().await;
        match (case, sent) {
            ("huge", Some(bytes)) => home.send(bytes).await,
            (_, Some(body)) => home.data(body).await,
            (_, None) => home.data(b"\x81\xaecomplete_final\xc2").await,
        }
        let (_, error) = tokens(&mut stream).await;
        let error = error.unwrap();
        match case {
            "neither" => assert!(matches!(error, StreamError::Protocol(_)), "{error}"),
            "huge" => assert!(matches!(error, StreamError::Frame(_)), "{error}"),
            _ => assert!(matches!(error, StreamError::Undecodable(_)), "{case}: {error}"),
        }
        assert_eq!(error.reason(), Reason::BackendProtocol);
        assert_eq!(home.heard().await, Some(ControlSignal::Kill), "{case}");
    }
}

#[tokio::test]
async fn a_stream_may_come_byte_by_byte() {
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    let ((ids, error), ()) = tokio::join!(tokens(&mut stream), async {
        for byte in [item_frame(&[1, 2]), item_frame(&[3])].concat() {
            home.send(&[byte]).await;
            tokio::task::yield_now().await;
        }
        home.complete().await;
        home.control("\"sentinel\"").await;
    });
    assert_eq!(ids, [1, 2, 3]);
    assert!(error.is_none());
}

#[tokio::test]
async fn a_normal_end_is_not_followed_by_a_kill() {
    let (_frontend, _connection, mut home, mut stream) = begun().await;
    home.complete().await;
    home.control("\"sentinel\"").await;
    assert!(within(stream.next()).await.is_none());
    drop(stream);
    assert_eq!(home.heard().await, None);
}

#[tokio::test]
async fn a_dropped_call_is_withdrawn_and_told() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    let call = frontend.call(&target);
    let mut connection = tokio::select! {
        _ = call => panic!("nothing was answered"),
        connection = async {
            let mut connection = worker.accept().await;
            let request = connection.request().await;
            (connection, request)
        } => connection,
    };
    assert_eq!(frontend.listener.waiting(), 0);
    let mut home = FakeHome::begin(&connection.1).await;
    assert_eq!(home.heard().await, Some(ControlSignal::Kill));
    // Its ack comes in its turn and is not the next call's.
    let (second, ()) = tokio::join!(frontend.call(&target), async {
        connection.0.request().await;
        connection.0.ack(Ack::at_capacity()).await;
        connection.0.ack(Ack::Unavailable("no".into())).await;
    });
    assert!(matches!(second, Err(CallError::Unavailable(why)) if why == "no"));
}
