use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::harness::*;
use crate::{
    Call, Client, ClientConfig, ListenerConfig, ResponseListener, frame::Ack, message::ControlSignal,
};

fn listener(config: ListenerConfig) -> Arc<ResponseListener> {
    ResponseListener::bind(config).unwrap()
}

#[tokio::test]
async fn garbage_is_dropped_without_a_word() {
    let listener = listener(ListenerConfig::default());
    let mut handshakes = 0;
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: roost.example.org\r\n\r\n"[..],
        &[0xff; 24],
        &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'{', b'}', b' '],
    ] {
        let mut home = FakeHome::connect(listener.address()).await;
        home.send(garbage).await;
        assert_eq!(home.heard().await, None);
        handshakes += 1;
    }
    for text in [
        r#"{"subject":"not-a-uuid","stream_type":"response"}"#,
        r#"{"subject":"0e5162b2-dba0-4922-a271-069fbfaabec6","stream_type":"request"}"#,
    ] {
        let mut home = FakeHome::connect(listener.address()).await;
        home.control(text).await;
        assert_eq!(home.heard().await, None);
        handshakes += 1;
    }
    assert_eq!(listener.stats().bad_handshakes, handshakes);
    assert_eq!((listener.stats().accepted, listener.stats().matched), (handshakes, 0));
}

#[tokio::test]
async fn an_unknown_subject_is_dropped() {
    let listener = listener(ListenerConfig::default());
    let mut home = FakeHome::connect(listener.address()).await;
    home.control(r#"{"subject":"0e5162b2-dba0-4922-a271-069fbfaabec6","stream_type":"response"}"#).await;
    assert_eq!(home.heard().await, Some(ControlSignal::Kill));
    assert_eq!(home.heard().await, None);
    assert_eq!(listener.stats().unknown_subjects, 1);
}

#[tokio::test]
async fn silent_connections_are_few_and_short() {
    let listener = listener(ListenerConfig {
        handshake_timeout: Duration::from_millis(50),
        max_handshakes: 1,
        ..Default::default()
    });
    let client = Client::new(ClientConfig::default(), Arc::clone(&listener));
    let mut silent = FakeHome::connect(listener.address()).await;
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let call = Call::new("id", Bytes::new());
    let (stream, home) = tokio::join!(within(client.call(&target, call)), async {
        let mut connection = worker.accept().await;
        let request = connection.request().await;
        connection.ack(Ack::Accepted).await;
        // Behind the silent one, which has to go first.
        FakeHome::begin(&request).await
    });
    assert!(stream.is_ok());
    assert_eq!(silent.heard().await, None);
    assert_eq!(listener.stats().bad_handshakes, 1);
    drop(home);
}

#[tokio::test]
async fn a_subject_serves_once() {
    let frontend = Frontend::new();
    let worker = FakeWorker::new().await;
    let target = worker.target();
    let (stream, (_connection, mut second)) = tokio::join!(frontend.call(&target), async {
        let mut connection = worker.accept().await;
        let request = connection.request().await;
        connection.ack(Ack::Accepted).await;
        let mut first = FakeHome::begin(&request).await;
        first.item(&[1]).await;
        let second = FakeHome::begin(&request).await;
        (connection, second)
    });
    assert!(stream.is_ok());
    assert_eq!(second.heard().await, Some(ControlSignal::Kill));
}

#[tokio::test]
async fn the_advertised_address_is_what_workers_are_told() {
    let listener = listener(ListenerConfig { advertise: Some([127, 0, 0, 2].into()), ..Default::default() });
    assert_eq!(listener.address().ip().to_string(), "127.0.0.2");
    assert_ne!(listener.address().port(), 0);
}
