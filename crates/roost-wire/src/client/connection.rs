use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::SocketAddr,
    sync::Arc,
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::{self, Instant},
};

use super::{ClientConfig, pool::InFlight};
use crate::{
    frame::Ack,
    stats::ClientCounters,
    transport::{self, Socket},
};

/// Most pieces of frames that are queued for writing and written with one call.
const MAX_BATCH: usize = 64;
/// Room for acknowledgements.
const READ_ROOM: usize = 4 * 1024;

/// Where the acknowledgement of a frame arrives.
pub(super) type AckReceiver = oneshot::Receiver<Result<Ack, AckFailure>>;

/// Why a frame was not acknowledged.
#[derive(Debug, Clone)]
pub(super) enum AckFailure {
    /// There never was a connection.
    CannotConnect(Arc<io::Error>),
    /// The connection ended; the worker may or may not have the frame.
    Disconnected,
    /// The connection ended before any of the frame was written.
    Unsent,
    /// The acknowledgement, or an earlier one on the connection, did not come in time.
    Timeout,
}

/// A frame to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) head: Bytes,
    pub(super) body: Bytes,
    pub(super) reply: oneshot::Sender<Result<Ack, AckFailure>>,
    pub(super) in_flight: InFlight,
}

/// A connection to a worker before it is made.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) address: SocketAddr,
    pub(super) config: Arc<ClientConfig>,
    pub(super) counters: Arc<ClientCounters>,
    pub(super) connects: Arc<Semaphore>,
    pub(super) queue: mpsc::Receiver<Outgoing>,
}

impl Connection {
    /// Connects, carries frames until the connection fails, idles too long or is forgotten, and answers for
    /// every frame it was given.
    pub(super) async fn run(mut self) {
        let connected = time::timeout(self.config.connect_timeout, async {
            let _place = self.connects.acquire().await;
            transport::connect(self.address).await
        });
        let failure = match connected.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(socket) => {
                let counters = Arc::clone(&self.counters);
                counters.connections.increment();
                let _open = counters.open_connections.hold();
                tracing::debug!(address = %self.address, "connected to worker");
                Established::new(&mut self, socket).run().await;
                AckFailure::Unsent
            }
            Err(error) => {
                self.counters.connect_failures.increment();
                tracing::debug!(address = %self.address, %error, "cannot connect to worker");
                AckFailure::CannotConnect(Arc::new(error))
            }
        };
        // Refuse first, so that no frame can slip in behind those that are answered here.
        self.queue.close();
        while let Some(Outgoing { reply, .. }) = self.queue.recv().await {
            // A caller that is gone needs no answer.
            let _ = reply.send(Err(failure.clone()));
        }
    }
}

/// A connection that is up. One task reads and writes: writes are batches of what is queued.
struct Established<'a> {
    connection: &'a mut Connection,
    socket: Socket,
    /// Pieces of frames not written yet.
    outbox: VecDeque<Bytes>,
    inbox: BytesMut,
    /// Frames whose acknowledgements are due, in the order of the frames.
    slots: VecDeque<Slot>,
    queued_bytes: u64,
    written_bytes: u64,
    last_used: Instant,
}

/// A place in the order of acknowledgements. It stays there when the caller is gone.
struct Slot {
    deadline: Instant,
    /// Bytes queued on the connection before the frame.
    starts_at: u64,
    reply: oneshot::Sender<Result<Ack, AckFailure>>,
    in_flight: InFlight,
}

/// Why a connection is over.
enum Over {
    /// Nothing is outstanding and nobody needs it.
    Unneeded,
    Disconnected(Option<io::Error>),
    AckTimeout,
}

impl<'a> Established<'a> {
    fn new(connection: &'a mut Connection, socket: Socket) -> Self {
        Self {
            connection,
            socket,
            outbox: VecDeque::new(),
            inbox: BytesMut::new(),
            slots: VecDeque::new(),
            queued_bytes: 0,
            written_bytes: 0,
            last_used: Instant::now(),
        }
    }

    async fn run(mut self) {
        let over = self.carry().await;
        let counters = &self.connection.counters;
        let failure = match over {
            Over::Unneeded => return,
            Over::AckTimeout => {
                counters.ack_timeouts.increment();
                tracing::warn!(address = %self.connection.address, frames = self.slots.len(),
                    "worker does not acknowledge, giving the connection up");
                AckFailure::Timeout
            }
            Over::Disconnected(error) => {
                if !self.slots.is_empty() {
                    counters.disconnects.increment();
                }
                tracing::debug!(address = %self.connection.address, ?error, frames = self.slots.len(),
                    "worker closed the connection");
                AckFailure::Disconnected
            }
        };
        for Slot { reply, starts_at, in_flight, .. } in self.slots {
            drop(in_flight);
            let untouched = starts_at >= self.written_bytes;
            let _ = reply.send(Err(if untouched { AckFailure::Unsent } else { failure.clone() }));
        }
    }

    async fn carry(&mut self) -> Over {
        let mut forgotten = false;
        loop {
            if forgotten && self.slots.is_empty() {
                return Over::Unneeded;
            }
            let deadline = match self.slots.front() {
                Some(slot) => slot.deadline,
                None => self.last_used + self.connection.config.idle_ttl,
            };
            let has_room = self.outbox.len() < MAX_BATCH && !forgotten;
            tokio::select! {
                ready = self.socket.readable() => {
                    if let Err(over) = ready.map_err(|error| Over::Disconnected(Some(error))).and_then(|()| self.read()) {
                        return over;
                    }
                }
                ready = self.socket.writable(), if !self.outbox.is_empty() => {
                    if let Err(error) = ready.and_then(|()| self.write()) {
                        return Over::Disconnected(Some(error));
                    }
                }
                frame = self.connection.queue.recv(), if has_room => match frame {
                    Some(frame) => {
                        self.take(frame);
                        while self.outbox.len() < MAX_BATCH
                            && let Ok(frame) = self.connection.queue.try_recv()
                        {
                            self.take(frame);
                        }
                    }
                    None => forgotten = true,
                },
                () = time::sleep_until(deadline) => {
                    return if self.slots.is_empty() { Over::Unneeded } else { Over::AckTimeout };
                }
            }
        }
    }

    fn take(&mut self, frame: Outgoing) {
        if frame.reply.is_closed() {
            // Nothing of it was written, so it needs no place in the order.
            return;
        }
        self.last_used = Instant::now();
        let deadline = self.last_used + self.connection.config.ack_timeout;
        self.slots.push_back(Slot {
            deadline,
            starts_at: self.queued_bytes,
            reply: frame.reply,
            in_flight: frame.in_flight,
        });
        self.queued_bytes += (frame.head.len() + frame.body.len()) as u64;
        self.outbox.push_back(frame.head);
        if !frame.body.is_empty() {
            self.outbox.push_back(frame.body);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_BATCH + 2];
            for (slice, piece) in slices.iter_mut().zip(&self.outbox) {
                *slice = IoSlice::new(piece);
            }
            let count = self.outbox.len().min(slices.len());
            let written = match self.socket.try_write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.connection.counters.sent_bytes.add(written as u64);
            self.written_bytes += written as u64;
            self.written(written);
        }
        Ok(())
    }

    fn written(&mut self, mut bytes: usize) {
        while let Some(piece) = self.outbox.front_mut() {
            if piece.len() > bytes {
                piece.advance(bytes);
                return;
            }
            bytes -= piece.len();
            self.outbox.pop_front();
        }
    }

    fn read(&mut self) -> Result<(), Over> {
        loop {
            self.inbox.reserve(READ_ROOM);
            match self.socket.try_read_buf(&mut self.inbox) {
                Ok(0) => return Err(Over::Disconnected(None)),
                Ok(_) => self.acknowledge()?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Over::Disconnected(Some(error))),
            }
        }
    }

    fn acknowledge(&mut self) -> Result<(), Over> {
        let invalid = |what: &str| Over::Disconnected(Some(io::Error::new(io::ErrorKind::InvalidData, what)));
        while let Some((ack, len)) = Ack::decode(&self.inbox).map_err(|error| invalid(&error.to_string()))? {
            self.inbox.advance(len);
            let Some(Slot { reply, in_flight, .. }) = self.slots.pop_front() else {
                return Err(invalid("ack without a frame"));
            };
            let counters = &self.connection.counters;
            match &ack {
                Ack::Accepted => counters.acks_accepted.increment(),
                Ack::Overloaded(_) => counters.acks_overloaded.increment(),
                Ack::Unavailable(_) => counters.acks_unavailable.increment(),
                Ack::Refused(_) => counters.acks_refused.increment(),
            }
            self.last_used = Instant::now();
            // The place is free before the caller learns of it.
            drop(in_flight);
            let _ = reply.send(Ok(ack));
        }
        Ok(())
    }
}
