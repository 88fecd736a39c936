//! One connection: handshake, then frames. The subscriber's side is complete here.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::ZmtpError;
use crate::frame::{self, Decoder, GREETING_BYTES, Item};
use crate::socket::{EventSockets, Socket};

const CONNECT: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest wait for a sign that a subscription is in force.
const IN_FORCE: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 << 10;

/// A ZMTP connection whose handshake is done.
#[derive(Debug)]
pub struct Connection {
    pub(crate) stream: Socket,
    buffer: BytesMut,
    decoder: Decoder,
    minor: u8,
    /// Messages that came while something else was awaited; at most one.
    early: Option<Vec<Bytes>>,
}

impl Connection {
    /// Connects to a PUB socket at `tcp://HOST:PORT` and subscribes to a topic.
    ///
    /// Returns once the subscription is in force, so that what is asked about the publisher afterwards leaves no hole
    /// before the first message: a heartbeat is sent behind the subscription, and its answer comes after it was read.
    /// Peers of version 3.0 have no heartbeats, and one that does not answer is not waited for long.
    ///
    /// Cancel safe: dropping the future closes the connection.
    /// # Errors
    /// The peer cannot be reached in time, or is no PUB socket.
    pub async fn subscribe(sockets: &EventSockets, endpoint: &str, topic: &str) -> Result<Self, ZmtpError> {
        let stream = Self::reach(sockets, endpoint).await?;
        let mut connection = Self::handshake(stream, "SUB", "PUB").await?;
        let mut out = BytesMut::new();
        if connection.minor >= 1 {
            frame::encode_command(&mut out, "SUBSCRIBE", topic.as_bytes());
            frame::encode_command(&mut out, "PING", &[0, 0]);
        } else {
            let subscription = [b"\x01", topic.as_bytes()].concat();
            out.extend_from_slice(&frame::encode_message(&[&subscription]));
        }
        connection.stream.write_all(&out).await?;
        if connection.minor >= 1
            && let Ok(sign) = timeout(IN_FORCE, connection.sign_of_force()).await
        {
            sign?;
        }
        Ok(connection)
    }

    /// Connects to a ROUTER socket at `tcp://HOST:PORT`. Cancel safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// The peer cannot be reached in time, or is no ROUTER socket.
    pub async fn dealer(sockets: &EventSockets, endpoint: &str) -> Result<Self, ZmtpError> {
        let stream = Self::reach(sockets, endpoint).await?;
        Self::handshake(stream, "DEALER", "ROUTER").await
    }

    /// Sends one message. Not cancel safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn send(&mut self, frames: &[&[u8]]) -> Result<(), ZmtpError> {
        Ok(self.stream.write_all(&frame::encode_message(frames)).await?)
    }

    async fn reach(sockets: &EventSockets, endpoint: &str) -> Result<Socket, ZmtpError> {
        let address = endpoint.strip_prefix("tcp://").filter(|rest| rest.rsplit_once(':').is_some());
        let address = address.ok_or_else(|| ZmtpError::Address(endpoint.to_owned()))?;
        let connecting = timeout(CONNECT, sockets.connect(address)).await;
        Ok(connecting.map_err(|_| ZmtpError::Deadline(CONNECT))??)
    }

    /// Waits for the answer to a heartbeat, or for a message, which proves the same.
    async fn sign_of_force(&mut self) -> Result<(), ZmtpError> {
        loop {
            match self.item().await? {
                Item::Message(frames) => {
                    self.early = Some(frames);
                    return Ok(());
                }
                Item::Command { name, .. } if &name[..] == b"PONG" => return Ok(()),
                Item::Command { name, body } => self.answer_ping(&name, &body)?,
            }
        }
    }

    /// Receives the next message; commands are answered or ignored. Cancel safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn message(&mut self) -> Result<Vec<Bytes>, ZmtpError> {
        if let Some(frames) = self.early.take() {
            return Ok(frames);
        }
        loop {
            match self.item().await? {
                Item::Message(frames) => return Ok(frames),
                Item::Command { name, body } => self.answer_ping(&name, &body)?,
            }
        }
    }

    /// Greets and exchanges READY, with a deadline for the whole. `peer` may also be the X variant of a socket type.
    pub(crate) async fn handshake(stream: Socket, own: &str, peer: &str) -> Result<Self, ZmtpError> {
        stream.tune()?;
        let connection =
            Self { stream, buffer: BytesMut::new(), decoder: Decoder::default(), minor: 0, early: None };
        let done = timeout(HANDSHAKE, connection.shake(own, peer)).await;
        done.map_err(|_| ZmtpError::Deadline(HANDSHAKE))?
    }

    async fn shake(mut self, own: &str, peer: &str) -> Result<Self, ZmtpError> {
        let mut out = BytesMut::from(&frame::greeting()[..]);
        frame::encode_command(&mut out, "READY", &frame::ready(own));
        // Greeting and READY may go together: with NULL nothing depends on the peer's greeting.
        self.stream.write_all(&out).await?;
        let mut greeting = [0; GREETING_BYTES];
        self.stream.read_exact(&mut greeting).await.map_err(closed)?;
        self.minor = frame::check_greeting(&greeting)?;
        match self.item().await? {
            Item::Command { name, body } if &name[..] == b"READY" => {
                let found = frame::socket_type(body)?;
                if found.strip_prefix('X').unwrap_or(&found) != peer {
                    return Err(ZmtpError::SocketType(found));
                }
                Ok(self)
            }
            _ => Err(ZmtpError::Malformed("handshake")),
        }
    }

    /// Receives the next item. Cancel safe: what was read stays in the buffer.
    pub(crate) async fn item(&mut self) -> Result<Item, ZmtpError> {
        loop {
            if let Some(item) = self.decoder.decode(&mut self.buffer)? {
                return Ok(item);
            }
            if self.buffer.capacity() == self.buffer.len() {
                self.buffer.reserve(READ_BYTES);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(ZmtpError::Closed);
            }
        }
    }

    /// Answers a heartbeat without waiting: if the socket cannot take a few bytes now, the peer has other troubles.
    pub(crate) fn answer_ping(&mut self, name: &[u8], body: &[u8]) -> Result<(), ZmtpError> {
        if name == b"PING" {
            let mut out = BytesMut::new();
            frame::encode_command(&mut out, "PONG", body.get(2..).unwrap_or_default());
            match self.stream.write_now(&out) {
                Ok(written) if written < out.len() => {
                    return Err(ZmtpError::Malformed("heartbeat: peer does not read"));
                }
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn closed(error: std::io::Error) -> ZmtpError {
    if error.kind() == std::io::ErrorKind::UnexpectedEof { ZmtpError::Closed } else { error.into() }
}
