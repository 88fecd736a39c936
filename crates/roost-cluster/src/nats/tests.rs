use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client::NatsSubscription;
use super::nkey::identity;
use super::protocol::{Decoder, MAX_PAYLOAD, Op, encode_publish};
use super::*;
use crate::events::Envelope;

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn what_the_server_says_is_understood_whatever_the_pieces() {
    let said = b"INFO {\"server_id\":\"x\",\"max_payload\":1048576,\"nonce\":\"n\",\"later\":[1]} \r\n\
        +OK\r\nMSG a.b 7 5\r\nhello\r\nMSG a.b 8 inbox.1 0\r\n\r\nping\r\nPONG\r\n\
        -ERR 'Authorization Violation'\r\nMSG x 9 4\r\n\r\n\r\n\r\n";
    for step in [1, 3, 1000] {
        let (mut decoder, mut buffer, mut ops) = (Decoder::default(), BytesMut::new(), Vec::new());
        for piece in said.chunks(step) {
            buffer.extend_from_slice(piece);
            while let Some(op) = decoder.decode(&mut buffer).unwrap() {
                ops.push(op);
            }
        }
        let Op::Info(info) = ops.remove(0) else { panic!("no INFO") };
        assert_eq!((info.max_payload, info.nonce.as_deref(), info.ldm), (1 << 20, Some("n"), false));
        let message = |sid, payload: &'static [u8]| Op::Message { sid, payload: Bytes::from_static(payload) };
        let wanted = [
            Op::Ok,
            message(7, b"hello"),
            message(8, b""),
            Op::Ping,
            Op::Pong,
            Op::Error("Authorization Violation".into()),
            message(9, b"\r\n\r\n"),
        ];
        assert_eq!(ops, wanted, "pieces of {step}");
        assert!(buffer.is_empty());
    }
    let mut out = BytesMut::new();
    encode_publish(&mut out, "a.b", b"hello");
    assert_eq!(out[..], b"PUB a.b 5\r\nhello\r\n"[..]);
}

#[test]
fn hostile_servers_are_refused_before_anything_is_reserved() {
    let over = format!("MSG a 1 {}\r\n", MAX_PAYLOAD + 1);
    for bad in [
        over.as_bytes(),
        b"MSG a 1 99999999999999999999\r\n",
        b"MSG a 1\r\n",
        b"MSG a b c d e\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 2\r\nabcd\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"INFO nothing\r\n",
        &[b'x'; 70_000],
    ] {
        let result = Decoder::default().decode(&mut BytesMut::from(bad));
        assert!(result.is_err(), "{:?}", String::from_utf8_lossy(&bad[..bad.len().min(40)]));
    }
    let mut waiting = BytesMut::from(&b"MSG a 1 60000000\r\n"[..]);
    assert_eq!(Decoder::default().decode(&mut waiting).unwrap(), None);
    assert!(waiting.capacity() < 1 << 20);
}

#[test]
fn urls() {
    let config = |urls: &str| NatsConfig::new(urls, NatsAuth::None, None);
    let plain = config("nats://a:1, b ,nats://c/,[::1]:5").unwrap();
    assert_eq!(plain.servers, ["a:1", "b:4222", "c:4222", "[::1]:5"]);
    assert_eq!((plain.auth, plain.tls), (NatsAuth::None, None));
    let secure = config("tls://u:p@w@host").unwrap();
    assert_eq!((&secure.servers[..], secure.tls.is_some()), (&["host:4222".to_owned()][..], true));
    assert_eq!(secure.auth, NatsAuth::UserPassword("u".into(), "p@w".into()));
    assert_eq!(config("token@host").unwrap().auth, NatsAuth::Token("token".into()));
    for bad in ["", " , ", "http://a", "nats://", "nats://:4222", "nats://a/b"] {
        assert!(config(bad).is_err(), "{bad}");
    }
    let error = config("ws://user:secret@host").unwrap_err().to_string();
    assert!(!error.contains("secret"), "{error}");
    assert!(!format!("{secure:?}").contains("p@w"));
}

/// The example key of NATS's own documentation of NKeys.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

#[test]
fn keys_are_read_and_written_as_nats_does() {
    let signed = identity(&NatsAuth::Nkey(SEED.into()), Some("a nonce")).unwrap();
    assert_eq!(signed["nkey"], PUBLIC);
    assert_eq!(signed["sig"].as_str().unwrap().len(), 86, "64 bytes in base64 without padding");
    let typo = SEED.replace('3', "4");
    for bad in [typo.as_str(), "", "SUAC", PUBLIC, "su!"] {
        assert!(identity(&NatsAuth::Nkey(bad.into()), Some("n")).is_err(), "{bad}");
    }
    assert!(identity(&NatsAuth::Nkey(SEED.into()), None).is_err(), "nothing to sign");

    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "-----BEGIN NATS USER JWT-----\nthe.jwt\n------END NATS USER JWT------\n\nkeep it secret\n\n\
         -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(file.path(), text).unwrap();
    let auth = NatsAuth::Credentials(file.path().to_owned());
    let by_file = identity(&auth, Some("a nonce")).unwrap();
    assert_eq!((&by_file["jwt"], &by_file["sig"]), (&json!("the.jwt"), &signed["sig"]));
    std::fs::write(file.path(), "nothing").unwrap();
    assert!(identity(&auth, Some("n")).is_err());
    assert_eq!(identity(&NatsAuth::Token("t".into()), None).unwrap(), json!({"auth_token": "t"}));
}

/// A server that is told what to say.
struct Server {
    listener: TcpListener,
}

struct Peer {
    stream: BufReader<TcpStream>,
}

impl Server {
    async fn new() -> (Self, NatsConfig) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let auth = NatsAuth::UserPassword("user".into(), "secret".into());
        (Self { listener }, NatsConfig::new(&url, auth, None).unwrap())
    }

    /// Accepts and greets the client.
    async fn accept(&self) -> Peer {
        let (stream, _) = timeout(DEADLINE, self.listener.accept()).await.unwrap().unwrap();
        let mut peer = Peer { stream: BufReader::new(stream) };
        peer.say("INFO {\"max_payload\":1000}\r\n").await;
        let introduction: Value =
            serde_json::from_str(peer.line().await.strip_prefix("CONNECT ").unwrap()).unwrap();
        assert_eq!((&introduction["user"], &introduction["pass"]), (&json!("user"), &json!("secret")));
        assert_eq!(peer.line().await, "PING");
        peer.say("PONG\r\n").await;
        peer
    }
}

impl Peer {
    async fn say(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(DEADLINE, self.stream.read_line(&mut line)).await.unwrap().unwrap();
        line.trim_end().to_owned()
    }

    async fn message(&mut self, sid: u64, envelope: &Envelope) {
        let payload = envelope.encode();
        self.say(&format!("MSG s {sid} {}\r\n", payload.len())).await;
        self.stream.get_mut().write_all(&payload).await.unwrap();
        self.say("\r\n").await;
    }
}

fn envelope(publisher_id: u64, sequence: u64) -> Envelope {
    Envelope { publisher_id, sequence, published_at_ms: 1, topic: "t".into(), payload: Bytes::new() }
}

async fn next(subscription: &mut NatsSubscription) -> NatsEvent {
    timeout(DEADLINE, subscription.next()).await.expect("an event in time").expect("the client lives")
}

#[tokio::test]
async fn subscriptions_come_back_and_say_so() {
    let (server, config) = Server::new().await;
    let client = NatsClient::start(config, CancellationToken::new());
    let mut one = client.subscribe("s", 1).await.unwrap();
    let mut two = client.subscribe("s", 2).await.unwrap();
    let mut peer = server.accept().await;
    assert_eq!(peer.line().await, "PING");
    assert_eq!(peer.line().await, "SUB s 1", "one for both");
    assert_eq!(peer.line().await, "PING");
    peer.say("PONG\r\n").await;
    peer.message(1, &envelope(9, 0)).await; // of nobody known
    peer.say("PONG\r\n").await;
    assert_eq!(next(&mut one).await, NatsEvent::Up);
    assert_eq!(next(&mut two).await, NatsEvent::Up);
    peer.message(1, &envelope(2, 0)).await;
    peer.message(1, &envelope(1, 5)).await;
    assert_eq!(next(&mut one).await, NatsEvent::Message(envelope(1, 5)));
    assert_eq!(next(&mut two).await, NatsEvent::Message(envelope(2, 0)));
    peer.say("MSG s 1 2\r\nno\r\nPING\r\n").await;
    assert_eq!(peer.line().await, "PONG");
    assert_eq!(client.stats().undecodable, 1);

    drop(peer);
    assert_eq!(next(&mut one).await, NatsEvent::Down);
    let mut peer = server.accept().await;
    assert_eq!((peer.line().await, peer.line().await), ("SUB s 1".into(), "PING".into()));
    peer.say("PONG\r\n").await;
    assert_eq!(next(&mut one).await, NatsEvent::Up);
    assert_eq!(next(&mut two).await, NatsEvent::Down);
    assert_eq!(next(&mut two).await, NatsEvent::Up);
    assert_eq!(client.stats().connects, 2);

    let subject = "out".into();
    client.publish(&subject, Bytes::from(vec![b'x'; 1001]));
    client.publish(&subject, Bytes::from_static(b"small"));
    assert_eq!((peer.line().await, peer.line().await), ("PUB out 5".into(), "small".into()));
    assert_eq!((client.stats().published, client.stats().dropped), (1, 1), "the first was too large");
}

#[tokio::test]
async fn a_server_that_refuses_is_asked_again() {
    let (server, config) = Server::new().await;
    let client = NatsClient::start(config, CancellationToken::new());
    let mut subscription = client.subscribe("s", 1).await.unwrap();
    let (mut stream, _) = server.listener.accept().await.unwrap();
    stream.write_all(b"INFO {}\r\n-ERR 'Authorization Violation'\r\n").await.unwrap();
    drop(stream);
    let mut peer = server.accept().await;
    assert_eq!(peer.line().await, "PING");
    peer.say("PONG\r\nPONG\r\n").await;
    assert_eq!(next(&mut subscription).await, NatsEvent::Up);
    // No end without a word of the subscriber's.
    drop((client, subscription));
}
