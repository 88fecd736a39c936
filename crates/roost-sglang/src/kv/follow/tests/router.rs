//! An engine's replay socket: a ROUTER by hand, as the captures show it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use roost_zmtp::encode_message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

type History = Arc<Mutex<Vec<(u64, Bytes)>>>;

pub(super) struct Router {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<u64>>>,
}

impl Router {
    pub(super) async fn start(history: History, with_topic: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::default();
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&history), Arc::clone(&log), with_topic));
            }
        });
        Router { address, asked }
    }

    /// From which numbers on replays were asked for.
    pub(super) fn asked(&self) -> Vec<u64> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, history: History, asked: Arc<Mutex<Vec<u64>>>, with_topic: bool) {
    let mut greeting = [0; 64];
    (greeting[0], greeting[8], greeting[9], greeting[10]) = (0xff, 1, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    let ready = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER";
    let mut out = greeting.to_vec();
    out.extend_from_slice(&ready[..2]);
    out.extend_from_slice(&ready[2..]);
    out[65] = u8::try_from(ready.len() - 2).unwrap();
    stream.write_all(&out).await.unwrap();
    let mut peer = [0; 64];
    stream.read_exact(&mut peer).await.unwrap();
    let mut head = [0; 2];
    stream.read_exact(&mut head).await.unwrap();
    let mut command = vec![0; head[1].into()];
    stream.read_exact(&mut command).await.unwrap();
    assert!(command.starts_with(b"\x05READY"), "{command:?}");
    // An empty delimiter with more to come, then eight bytes.
    let mut question = [0; 2 + 2 + 8];
    stream.read_exact(&mut question).await.unwrap();
    assert_eq!(&question[..4], [1, 0, 0, 8]);
    let from = u64::from_be_bytes(question[4..].try_into().unwrap());
    asked.lock().unwrap().push(from);
    let past = history.lock().unwrap().clone();
    for (number, payload) in past.into_iter().filter(|(number, _)| *number >= from) {
        let number = number.to_be_bytes();
        let message = match with_topic {
            true => encode_message(&[b"", b"kv", &number, &payload]),
            false => encode_message(&[b"", &number, &payload]),
        };
        stream.write_all(&message).await.unwrap();
    }
    let end = u64::MAX.to_be_bytes();
    let message =
        if with_topic { encode_message(&[b"", b"", &end, b""]) } else { encode_message(&[b"", &end, b""]) };
    stream.write_all(&message).await.unwrap();
    // The peer closes.
    let _closed = stream.read(&mut [0]).await;
}
