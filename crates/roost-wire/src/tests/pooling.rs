use std::time::Duration;

use super::harness::*;
use crate::{
    Call, CallError, ClientConfig, Fault,
    frame::{Ack, FrameError},
    message::Reason,
};
use bytes::Bytes;

#[tokio::test]
async fn many_calls_share_one_connection_and_are_acknowledged_in_order() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    let calls = async {
        let mut calls = tokio::task::JoinSet::new();
        let client = std::sync::Arc::new(frontend.client);
        for id in 0..8 {
            let (client, target) = (std::sync::Arc::clone(&client), target.clone());
            calls.spawn(async move {
                let id = id.to_string();
                let error = client.call(&target, Call::new(&id, Bytes::new())).await.unwrap_err();
                (id, error)
            });
        }
        within(calls.join_all()).await
    };
    let (outcomes, ()) = tokio::join!(calls, async {
        let mut connection = worker.accept().await;
        let mut requests = Vec::new();
        for _ in 0..8 {
            requests.push(connection.request().await);
        }
        for request in requests {
            connection.ack(Ack::Unavailable(request.id)).await;
        }
    });
    assert_eq!(outcomes.len(), 8);
    for (id, error) in outcomes {
        assert!(matches!(&error, CallError::Unavailable(why) if *why == id), "{id}: {error}");
    }
}

#[tokio::test]
async fn the_pool_grows_at_the_limit_of_a_connection_and_ends_at_its_own() {
    let frontend = Frontend::with(ClientConfig { channel_buffer: 1, pool_size: 2, ..Default::default() });
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let outcome = {
        let first = frontend.call(&target);
        let second = frontend.call(&target);
        tokio::pin!(first, second);
        let accept_both = async {
            let mut connections = (worker.accept().await, worker.accept().await);
            connections.0.request().await;
            connections.1.request().await;
            connections
        };
        let mut connections = tokio::select! {
            _ = &mut first => panic!("not answered"),
            _ = &mut second => panic!("not answered"),
            connections = accept_both => connections,
        };
        let full = frontend.call(&target).await.unwrap_err();
        connections.0.ack(Ack::at_capacity()).await;
        tokio::select! {
            result = &mut first => assert!(matches!(result, Err(CallError::Overloaded(_)))),
            result = &mut second => assert!(matches!(result, Err(CallError::Overloaded(_)))),
        }
        // There is room again.
        let (result, ()) = tokio::join!(frontend.call(&target), async {
            connections.0.request().await;
            connections.0.ack(Ack::at_capacity()).await;
        });
        assert!(matches!(result, Err(CallError::Overloaded(_))));
        full
    };
    assert!(matches!(outcome, CallError::PoolFull));
    assert_eq!((outcome.fault(), outcome.is_retryable()), (Fault::Overload, true));
    assert_eq!((frontend.client.stats().connections, frontend.client.stats().pool_full), (2, 1));
}

#[tokio::test]
async fn a_worker_that_is_not_there_cannot_be_connected_to() {
    let frontend = Frontend::new();
    // Bound and not listening, so that nobody else gets the port.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let error = frontend.call(&target(address)).await.unwrap_err();
    assert!(matches!(error, CallError::CannotConnect(_)), "{error}");
    assert_eq!(
        (error.fault(), error.is_retryable(), error.inhibits_worker()),
        (Fault::Transport, true, true)
    );
    assert_eq!(frontend.client.stats().connect_failures, 1);
}

/// A dead worker is unreachable each time, never full: full would not be tried elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_worker_never_looks_full() {
    let frontend = Frontend::new();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    for round in 0..300 {
        let error = frontend.call(&target(address)).await.unwrap_err();
        assert!(matches!(error, CallError::CannotConnect(_)), "round {round}: {error}");
    }
}

#[tokio::test]
async fn losing_the_connection_fails_what_is_unacknowledged() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    let (results, ()) =
        tokio::join!(async { tokio::join!(frontend.call(&target), frontend.call(&target)) }, async {
            let mut connection = worker.accept().await;
            connection.request().await;
            connection.request().await;
        });
    for result in [results.0, results.1] {
        let error = result.unwrap_err();
        assert!(matches!(error, CallError::Disconnected), "{error}");
        assert_eq!((error.reason(), error.is_retryable()), (Reason::Disconnected, true));
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    frontend.client.warm(target.address);
    drop(worker.accept().await);
    until(|| frontend.client.stats().connections == 1 && frontend.client.stats().open_connections == 0).await;
    let (result, ()) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        connection.request().await;
        connection.ack(Ack::at_capacity()).await;
    });
    assert!(matches!(result, Err(CallError::Overloaded(_))));
}

#[tokio::test]
async fn an_ack_that_nobody_waits_for_costs_the_connection() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    frontend.client.warm(worker.target().address);
    let mut connection = worker.accept().await;
    connection.ack(Ack::Accepted).await;
    connection.closed().await;
    assert_eq!(frontend.client.stats().disconnects, 0);
}

#[tokio::test]
async fn warming_opens_one_connection_and_forgetting_closes_it() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    frontend.client.warm(target.address);
    frontend.client.warm(target.address);
    let connection = worker.accept().await;
    until(|| frontend.client.stats().open_connections == 1).await;
    frontend.client.forget(&target);
    connection.closed().await;
    until(|| frontend.client.stats().open_connections == 0).await;
    assert_eq!(frontend.client.stats().connections, 1);
}

#[tokio::test]
async fn a_forgotten_worker_still_acknowledges() {
    let (frontend, worker) = (Frontend::new(), FakeWorker::new().await);
    let target = worker.target();
    let (result, connection) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        connection.request().await;
        frontend.client.forget(&target);
        connection.ack(Ack::at_capacity()).await;
        connection
    });
    assert!(matches!(result, Err(CallError::Overloaded(_))));
    connection.closed().await;
}

#[tokio::test]
async fn idle_connections_close() {
    let frontend = Frontend::with(ClientConfig { idle_ttl: Duration::from_millis(20), ..Default::default() });
    let worker = FakeWorker::new().await;
    frontend.client.warm(worker.target().address);
    worker.accept().await.closed().await;
}

#[tokio::test]
async fn a_request_over_the_limit_is_not_sent() {
    let frontend = Frontend::with(ClientConfig { max_message_bytes: 1024, ..Default::default() });
    let worker = FakeWorker::new().await;
    let call = Call::new("id", Bytes::from(vec![0; 1024]));
    let error = within(frontend.client.call(&worker.target(), call)).await.unwrap_err();
    assert!(matches!(error, CallError::Frame(FrameError::TooLarge { max: 1024, .. })), "{error}");
    assert_eq!((error.fault(), error.inhibits_worker()), (Fault::Client, false));
    assert_eq!((frontend.client.stats().connections, frontend.listener.waiting()), (0, 0));
}
