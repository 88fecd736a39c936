//! What a lost acknowledgement, a lost connection or a worker that leaves means for the requests concerned.

use std::time::Duration;

use super::harness::*;
use crate::{
    CallError, ClientConfig, Fault, Target,
    frame::Ack,
    message::{ControlMessage, Reason},
};

/// Deadlines that only the event itself can beat within a test's patience.
fn patient() -> ClientConfig {
    ClientConfig {
        ack_timeout: Duration::from_secs(600),
        call_home_timeout: Duration::from_secs(600),
        farewell_timeout: Duration::from_millis(50),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_lost_ack_moves_the_innocent_to_another_connection() {
    let frontend = Frontend::with(ClientConfig { ack_timeout: Duration::from_millis(100), ..patient() });
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (guilty, innocent, ()) = tokio::join!(
        frontend.call(&target),
        async {
            // Behind the other on the same connection, and due later.
            until(|| frontend.client.stats().sent_bytes > 0).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut stream = frontend.call(&target).await?;
            Ok::<_, CallError>(tokens(&mut stream).await)
        },
        async {
            let mut first = worker.accept().await;
            first.request().await;
            let before = first.request().await;
            // Neither is acknowledged; the connection is given up and only the second one comes back.
            let mut second = worker.accept().await;
            let again = second.request().await;
            assert_eq!(again, before, "same request, same subject");
            second.ack(Ack::Accepted).await;
            let mut home = FakeHome::begin(&again).await;
            home.item(&[4]).await;
            home.complete().await;
            home.control("\"sentinel\"").await;
            assert_eq!(home.heard().await, None);
            // The worker that was merely slow with the first copy finds the subject taken.
            let mut twice = FakeHome::begin(&before).await;
            assert!(twice.heard().await.is_some());
            first.closed().await;
        }
    );
    assert!(matches!(guilty, Err(CallError::AckTimeout)), "{guilty:?}");
    let (ids, error) = innocent.unwrap();
    assert_eq!(ids, [4]);
    assert!(error.is_none(), "{error:?}");
    let stats = frontend.client.stats();
    assert_eq!((stats.ack_timeouts, stats.sent_again, stats.connections), (1, 1, 2));
    assert_eq!(frontend.listener.waiting(), 0);
}

#[tokio::test]
async fn what_was_sent_behind_a_refused_frame_is_sent_again() {
    let frontend = Frontend::with(patient());
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (refused, innocent, ()) = tokio::join!(
        frontend.call(&target),
        async {
            until(|| frontend.client.stats().sent_bytes > 0).await;
            frontend.call(&target).await
        },
        async {
            let mut first = worker.accept().await;
            first.request().await;
            first.request().await;
            first.ack(Ack::Refused("Read error: message too large: 9 bytes (max: 8 bytes)".into())).await;
            drop(first);
            let mut second = worker.accept().await;
            second.request().await;
            second.ack(Ack::at_capacity()).await;
        }
    );
    let error = refused.unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), (Reason::PayloadTooLarge, false));
    assert!(matches!(innocent, Err(CallError::Overloaded(_))), "{innocent:?}");
}

/// The end of a call that was acknowledged and not called home, when `then` happens.
async fn acknowledged(
    then: impl AsyncFnOnce(&Frontend, &Target, FakeConnection, ControlMessage),
) -> CallError {
    let frontend = Frontend::with(patient());
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (result, ()) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        let request = connection.request().await;
        connection.ack(Ack::Accepted).await;
        until(|| frontend.client.stats().acks_accepted == 1).await;
        then(&frontend, &target, connection, request).await;
    });
    assert_eq!(frontend.listener.waiting(), 0);
    result.unwrap_err()
}

#[tokio::test]
async fn a_worker_that_dies_after_its_ack_is_noticed() {
    let error = acknowledged(async |_, _, connection, _| drop(connection)).await;
    assert!(matches!(error, CallError::Disconnected), "{error}");
    assert_eq!(
        (error.fault(), error.is_retryable(), error.inhibits_worker()),
        (Fault::Transport, true, true)
    );
}

#[tokio::test]
async fn a_worker_that_leaves_after_its_ack_is_not_waited_for() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let error = acknowledged(async |frontend, target, connection, _| {
        // Another instance behind the same address that leaves is not meant.
        let other = Target { path: "20/dynamo/backend/generate".into(), ..target.clone() };
        frontend.listener.left(&other);
        assert_eq!(frontend.listener.waiting(), 1);
        frontend.client.forget(target);
        sender.send(connection).ok();
    })
    .await;
    drop(receiver);
    assert!(matches!(error, CallError::Left), "{error}");
    assert_eq!((error.reason(), error.is_retryable()), (Reason::WorkerUnavailable, true));
}

#[tokio::test]
async fn a_worker_that_takes_its_leave_may_still_call_home() {
    let frontend = Frontend::with(ClientConfig { farewell_timeout: Duration::from_secs(600), ..patient() });
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (stream, mut home) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        let request = connection.request().await;
        connection.ack(Ack::Accepted).await;
        until(|| frontend.client.stats().acks_accepted == 1).await;
        frontend.client.forget(&target);
        connection.closed().await;
        FakeHome::begin(&request).await
    });
    let mut stream = stream.unwrap();
    home.item(&[1]).await;
    home.complete().await;
    assert_eq!(tokens(&mut stream).await.0, [1]);
}
