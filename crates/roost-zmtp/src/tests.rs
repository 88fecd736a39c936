use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::frame::{Decoder, GREETING_BYTES, Item, check_greeting, greeting, socket_type};
use crate::*;

const DEADLINE: Duration = Duration::from_secs(20);
const LOOPBACK: &str = "127.0.0.1:0";

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/fixtures/wire/event/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn hex(bytes: &Bytes) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode_all(decoder: &mut Decoder, buffer: &mut BytesMut) -> Vec<Item> {
    std::iter::from_fn(|| decoder.decode(buffer).unwrap()).collect()
}

#[test]
fn captured_publisher_stream_decodes_whatever_the_splits() {
    let bytes = fixture("kv_events_zmtp_pub.bin");
    assert_eq!(check_greeting(bytes[..GREETING_BYTES].try_into().unwrap()).unwrap(), 1);
    let captured: serde_json::Value = serde_json::from_slice(&fixture("kv_events.json")).unwrap();
    for step in [1, 7, 4096, bytes.len()] {
        let (mut decoder, mut buffer, mut items) = (Decoder::default(), BytesMut::new(), Vec::new());
        for chunk in bytes[GREETING_BYTES..].chunks(step) {
            buffer.extend_from_slice(chunk);
            items.extend(decode_all(&mut decoder, &mut buffer));
        }
        let Item::Command { name, body } = items.remove(0) else { panic!("no READY") };
        assert_eq!((&name[..], socket_type(body).unwrap().as_str()), (&b"READY"[..], "PUB"));
        assert!(items.len() >= 4, "only {} messages", items.len());
        let mut compared = 0;
        for message in captured["messages"].as_array().unwrap() {
            let Some(item) = items.get(message["sequence"].as_u64().unwrap() as usize) else { continue };
            let Item::Message(frames) = item else { panic!("not a message: {item:?}") };
            let hex: Vec<String> = frames.iter().map(hex).collect();
            assert_eq!(serde_json::json!(hex), message["frames_hex"]);
            compared += 1;
        }
        assert!(compared >= 3, "only {compared} messages compared");
        assert!(!buffer.is_empty(), "the capture ends inside a message");
    }
}

#[tokio::test]
async fn our_subscriber_sends_the_captured_bytes() {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let subscriber =
        tokio::spawn(
            async move { Connection::subscribe(&EventSockets::default(), &endpoint, "kv-events").await },
        );
    let (mut stream, _) = listener.accept().await.unwrap();
    let published = fixture("kv_events_zmtp_pub.bin");
    stream.write_all(&published).await.unwrap();
    let mut sent = vec![0; fixture("kv_events_zmtp_sub.bin").len()];
    timeout(DEADLINE, stream.read_exact(&mut sent)).await.unwrap().unwrap();
    assert_eq!(sent, fixture("kv_events_zmtp_sub.bin"));
    let mut connection = subscriber.await.unwrap().unwrap();
    let first = timeout(DEADLINE, connection.message()).await.unwrap().unwrap();
    assert_eq!(first[2], 0u64.to_be_bytes()[..]);
}

#[tokio::test]
async fn our_publisher_sends_the_captured_bytes() {
    let socket =
        PubSocket::bind(&EventSockets::default(), LOOPBACK.parse().unwrap(), "kv-events").await.unwrap();
    let mut stream = TcpStream::connect(socket.address()).await.unwrap();
    stream.write_all(&fixture("kv_events_zmtp_sub.bin")).await.unwrap();
    let published = fixture("kv_events_zmtp_pub.bin");
    let mut buffer = BytesMut::from(&published[GREETING_BYTES..]);
    let mut decoder = Decoder::default();
    let items = decode_all(&mut decoder, &mut buffer);
    let whole = published.len() - buffer.len();

    publish_when_subscribed(&socket, 1).await;
    for item in &items {
        if let Item::Message(frames) = item {
            let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
            socket.publish(&encode_message(&frames));
        }
    }
    // Frames of the cut message that the decoder has taken already are not ours to repeat.
    let mut sent = vec![0; 200];
    timeout(DEADLINE, stream.read_exact(&mut sent)).await.unwrap().unwrap();
    assert!(whole > 200);
    assert_eq!(sent, published[..200]);
}

/// Waits until `count` peers have finished their handshake.
async fn publish_when_subscribed(socket: &PubSocket, count: usize) {
    let ready = timeout(DEADLINE, async {
        while socket.stats().peers < count {
            tokio::task::yield_now().await;
        }
    });
    ready.await.expect("the peers have connected");
}

#[tokio::test]
async fn messages_reach_those_who_subscribed() {
    let socket =
        PubSocket::bind(&EventSockets::default(), LOOPBACK.parse().unwrap(), "kv-events").await.unwrap();
    let endpoint = format!("tcp://{}", socket.address());
    let mut right = Connection::subscribe(&EventSockets::default(), &endpoint, "kv-events").await.unwrap();
    let mut wrong = Connection::subscribe(&EventSockets::default(), &endpoint, "kv_metrics").await.unwrap();
    let big = vec![7; 300_000];
    // The subscription is in force already: one message is enough.
    socket.publish(&encode_message(&[b"kv-events", &big]));
    let received = timeout(DEADLINE, right.message()).await.unwrap().unwrap();
    assert_eq!(received, [Bytes::from_static(b"kv-events"), Bytes::from(big)]);
    socket.close().await;
    let end = timeout(DEADLINE, wrong.message()).await.unwrap();
    assert!(end.is_err(), "another topic: nothing but the end, got {end:?}");
}

#[tokio::test]
async fn old_style_subscriptions_and_heartbeats_are_answered() {
    let socket =
        PubSocket::bind(&EventSockets::default(), LOOPBACK.parse().unwrap(), "kv-events").await.unwrap();
    let mut stream = TcpStream::connect(socket.address()).await.unwrap();
    let mut hello = greeting().to_vec();
    hello[11] = 0;
    hello.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB");
    hello.extend_from_slice(b"\x00\x04\x01kv-");
    hello.extend_from_slice(b"\x04\x09\x04PING\x00\x0aab");
    stream.write_all(&hello).await.unwrap();
    let mut head = vec![0; GREETING_BYTES + 27 + 9];
    timeout(DEADLINE, stream.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(
        head[GREETING_BYTES + 27..],
        *b"\x04\x07\x04PONGab",
        "the subscription before it has been read as well"
    );
    socket.publish(&encode_message(&[b"kv-events"]));
    let mut message = [0; 11];
    timeout(DEADLINE, stream.read_exact(&mut message)).await.unwrap().unwrap();
    assert_eq!(message, *b"\x00\x09kv-events");
}

#[test]
fn hostile_lengths_are_refused_before_they_are_reserved() {
    let mut buffer = BytesMut::from(&[2, 0, 0, 1, 0, 0, 0, 0, 0][..]);
    assert!(matches!(Decoder::default().decode(&mut buffer), Err(ZmtpError::TooLarge { .. })));
    let mut buffer = BytesMut::from(&[2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..]);
    assert!(Decoder::default().decode(&mut buffer).is_err());
    // Within the limit, but not there yet.
    let mut buffer = BytesMut::from(&[2, 0, 0, 0, 0, 3, 0, 0, 0][..]);
    assert_eq!(Decoder::default().decode(&mut buffer).unwrap(), None);
    assert!(buffer.capacity() < 1 << 20, "reserved {}", buffer.capacity());
    // The limit is one of the message, not of the frame.
    let (mut decoder, mut parts) = (Decoder::default(), BytesMut::new());
    parts.extend_from_slice(&[3, 0, 0, 0, 0, 3, 0, 0, 0]);
    parts.resize(parts.len() + (3 << 24), 0);
    parts.extend_from_slice(&[2, 0, 0, 0, 0, 1, 0, 0, 1]);
    assert!(matches!(decoder.decode(&mut parts), Err(ZmtpError::TooLarge { .. })));
    for bad in [&b"\x08\x00"[..], b"\x04\x00", b"\x04\x01\x05"] {
        assert!(Decoder::default().decode(&mut BytesMut::from(bad)).is_err(), "{bad:?}");
    }
    let mut endless = BytesMut::new();
    (0..17).for_each(|_| endless.extend_from_slice(&[1, 0]));
    assert!(Decoder::default().decode(&mut endless).is_err());
}

#[tokio::test]
async fn strangers_are_turned_away() {
    async fn answer(bytes: Vec<u8>) -> ZmtpError {
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        });
        let error = timeout(
            DEADLINE,
            Connection::subscribe(&EventSockets::default(), &format!("tcp://{address}"), "t"),
        )
        .await;
        server.abort();
        error.unwrap().unwrap_err()
    }
    assert!(matches!(answer(b"HTTP/1.1 200 OK\r\n".repeat(10)).await, ZmtpError::Greeting));
    assert!(matches!(answer(greeting().to_vec()).await, ZmtpError::Closed));
    let mut pull = greeting().to_vec();
    pull.extend_from_slice(b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL");
    assert!(matches!(answer(pull).await, ZmtpError::SocketType(_)));
    let mut curve = greeting().to_vec();
    curve[12..17].copy_from_slice(b"CURVE");
    assert!(matches!(answer(curve).await, ZmtpError::Greeting));
    for bad in ["ipc:///tmp/x", "tcp://nowhere", "127.0.0.1:1"] {
        let error = Connection::subscribe(&EventSockets::default(), bad, "t").await.unwrap_err();
        assert!(matches!(error, ZmtpError::Address(_)), "{bad}: {error}");
    }
}
