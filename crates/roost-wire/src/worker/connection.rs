use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time,
};

use super::{
    Admission, Admitted, Handler, Misbehaviour, Shared,
    answer::{self, Request},
};
use crate::{
    frame::{Ack, FrameError, RequestFrame},
    message::{ConnectionInfo, ControlMessage, ResponseAddress},
    transport::{Incoming, Socket},
};

/// Room to read into.
const READ_ROOM: usize = 64 * 1024;
/// Largest control message.
const MAX_CONTROL_BYTES: usize = 128 * 1024;
/// How long what follows an unreadable frame is swallowed, so that its acknowledgement arrives before a reset.
const LINGER: Duration = Duration::from_secs(1);

/// Reads frames one after the other and acknowledges each; never waits for a handler.
pub(super) async fn serve(shared: Arc<Shared>, incoming: Incoming, peer: SocketAddr) {
    let serving = async {
        let socket = incoming.establish().await?;
        Connection { shared, socket, acks: Vec::new(), misbehaviour: None }.run().await
    };
    if let Err(error) = serving.await {
        tracing::debug!(%peer, %error, "request connection failed");
    }
}

struct Connection {
    shared: Arc<Shared>,
    socket: Socket,
    /// Acknowledgements not written yet: those of all frames that came with one read.
    acks: Vec<u8>,
    /// What is to be done wrong with them.
    misbehaviour: Option<Misbehaviour>,
}

/// What is no acknowledgement: a length that no frame has.
const GARBAGE: [u8; 16] = [0xff; 16];

impl Connection {
    async fn run(mut self) -> io::Result<()> {
        let mut inbox = BytesMut::new();
        loop {
            match RequestFrame::decode(&mut inbox, self.shared.config.max_message_bytes) {
                Ok(Some(frame)) => self.take(&frame),
                Ok(None) => {
                    self.flush().await?;
                    inbox.reserve(READ_ROOM);
                    if self.socket.read_buf(&mut inbox).await? == 0 {
                        return Ok(());
                    }
                }
                Err(error) => return self.give_up(error, inbox).await,
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        match self.misbehaviour.take() {
            Some(Misbehaviour::CloseBeforeAck) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Misbehaviour::GarbledAck) => self.acks.extend_from_slice(&GARBAGE),
            Some(Misbehaviour::LateAck(by)) => time::sleep(by).await,
            Some(Misbehaviour::CloseBeforePrologue | Misbehaviour::GarbledPrologue) | None => {}
        }
        if !self.acks.is_empty() {
            self.socket.write_all(&self.acks).await?;
            self.socket.flush().await?;
            self.acks.clear();
        }
        Ok(())
    }

    /// Acknowledges a frame behind which nothing can be made out, and closes.
    async fn give_up(mut self, error: FrameError, mut inbox: BytesMut) -> io::Result<()> {
        self.shared.counters.unreadable.increment();
        Ack::unreadable(error).encode(&mut self.acks);
        self.flush().await?;
        self.socket.shutdown().await?;
        let swallow = async {
            loop {
                inbox.clear();
                inbox.reserve(READ_ROOM);
                if !matches!(self.socket.read_buf(&mut inbox).await, Ok(1..)) {
                    return;
                }
            }
        };
        let _ = time::timeout(LINGER, swallow).await;
        Ok(())
    }

    fn take(&mut self, frame: &RequestFrame) {
        self.shared.counters.requests.increment();
        let ack = self.dispatch(frame);
        let counters = &self.shared.counters;
        match &ack {
            Some(Ack::Overloaded(_)) => counters.overloaded.increment(),
            Some(Ack::Unavailable(_)) => counters.unavailable.increment(),
            Some(Ack::Refused(_)) => counters.unreadable.increment(),
            Some(Ack::Accepted) | None => {}
        }
        if let Some(ack) = ack {
            ack.encode(&mut self.acks);
        }
    }

    /// Starts the answer to a frame, or says why not. `None`: nothing is acknowledged.
    fn dispatch(&mut self, frame: &RequestFrame) -> Option<Ack> {
        let Ok(path) = std::str::from_utf8(&frame.path) else {
            return Some(Ack::Refused("Invalid endpoint path".to_owned()));
        };
        let handler = self.shared.endpoints.read().get(path).map(Arc::clone);
        let Some(handler) = handler else { return Some(Ack::unknown_endpoint(path)) };
        if self.shared.draining.load(std::sync::atomic::Ordering::Acquire) {
            return Some(Ack::Unavailable("worker is draining".to_owned()));
        }
        let (control, home, body) = match open(frame) {
            Ok(parts) => parts,
            Err(why) => return Some(Ack::Unavailable(why)),
        };
        match handler.admit(&body) {
            Admission::Accept => {}
            Admission::Overloaded => return Some(Ack::at_capacity()),
            Admission::Unavailable(why) => return Some(Ack::Unavailable(why)),
            Admission::Forget => return Some(Ack::Accepted),
            Admission::Ignore => return None,
            Admission::Misbehave(how) => {
                self.misbehaviour = Some(how);
                if matches!(how, Misbehaviour::CloseBeforeAck | Misbehaviour::GarbledAck) {
                    return None;
                }
            }
        }
        let Some(admitted) = self.shared.admit() else { return Some(Ack::at_capacity()) };
        self.start(
            Request {
                path: path.into(),
                headers: frame.headers(),
                control,
                home,
                body,
                misbehaviour: self.misbehaviour,
            },
            handler,
            admitted,
        );
        Some(Ack::Accepted)
    }

    fn start(&self, request: Request, handler: Arc<dyn Handler>, admitted: Admitted) {
        let shutdown = self.shared.shutdown.clone();
        let answering = answer::answer(Arc::clone(&self.shared), request, handler);
        self.shared.answers.spawn(async move {
            shutdown.run_until_cancelled(answering).await;
            drop(admitted);
        });
    }
}

/// Opens the payload: control message, where the answer goes, body.
fn open(frame: &RequestFrame) -> Result<(ControlMessage, ResponseAddress, Bytes), String> {
    let (control, body) = frame.parts().map_err(|error| error.to_string())?;
    if control.len() > MAX_CONTROL_BYTES {
        return Err("control message too large".to_owned());
    }
    let control: ControlMessage =
        serde_json::from_slice(&control).map_err(|error| format!("undecodable control message: {error}"))?;
    if control.connection_info.transport == ConnectionInfo::QUIC {
        // Only a worker with the other plane could say so there.
        return Err("response plane mismatch: frontend requested quic, worker configured tcp".to_owned());
    }
    let home =
        control.connection_info.tcp().map_err(|error| format!("undecodable connection info: {error}"))?;
    Ok((control, home, body))
}
