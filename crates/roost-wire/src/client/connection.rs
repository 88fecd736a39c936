use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite as _},
    sync::{Semaphore, mpsc, oneshot},
    time::{self, Instant, Sleep},
};
use tokio_util::sync::CancellationToken;

use super::{ClientConfig, pool::InFlight};
use crate::{frame::Ack, stats::ClientCounters, transport::Socket};

/// Most pieces of frames that are queued for writing and written with one call.
const MAX_BATCH: usize = 64;
/// Room for acknowledgements.
const READ_ROOM: usize = 4 * 1024;

/// Where the acknowledgement of a frame arrives.
pub(super) type AckReceiver = oneshot::Receiver<AckOutcome>;

/// The acknowledgement, with a token that tells when its connection is lost; or why there is none.
pub(super) type AckOutcome = Result<(Ack, CancellationToken), AckFailure>;

/// Why a frame was not acknowledged.
#[derive(Debug, Clone)]
pub(super) enum AckFailure {
    /// There never was a connection.
    CannotConnect(Arc<io::Error>),
    /// The connection ended; the worker may or may not have the frame.
    Disconnected,
    /// The connection ended before any of the frame was written.
    Unsent,
    /// The acknowledgement did not come in time.
    Timeout,
    /// The connection was given up for another frame's sake; the worker may or may not have this one.
    Retired,
}

/// A frame to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) head: Bytes,
    pub(super) body: Bytes,
    pub(super) reply: oneshot::Sender<AckOutcome>,
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
            self.config.transport.connect(self.address).await
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
    unflushed: bool,
    last_used: Instant,
    timer: Pin<Box<Sleep>>,
    /// Nobody sends on this connection any more.
    forgotten: bool,
    /// The worker could not read a frame and closes behind it.
    refused: bool,
    /// Cancelled when the worker ends the connection.
    lost: CancellationToken,
}

/// A place in the order of acknowledgements. It stays there when the caller is gone.
struct Slot {
    deadline: Instant,
    /// Bytes queued on the connection before the frame.
    starts_at: u64,
    reply: oneshot::Sender<AckOutcome>,
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
        let timer = Box::pin(time::sleep(connection.config.idle_ttl));
        Self {
            connection,
            socket,
            outbox: VecDeque::new(),
            inbox: BytesMut::new(),
            slots: VecDeque::new(),
            queued_bytes: 0,
            written_bytes: 0,
            unflushed: false,
            last_used: Instant::now(),
            timer,
            forgotten: false,
            refused: false,
            lost: CancellationToken::new(),
        }
    }

    async fn run(mut self) {
        let over = std::future::poll_fn(|cx| self.poll(cx)).await;
        if matches!(over, Over::Unneeded) {
            return;
        }
        // Refuse first: what is sent again must not come back here.
        self.connection.queue.close();
        let (address, frames) = (self.connection.address, self.slots.len());
        let counters = &self.connection.counters;
        let (first, others) = match over {
            Over::AckTimeout => {
                counters.ack_timeouts.increment();
                tracing::warn!(%address, frames, "worker does not acknowledge, giving the connection up");
                (AckFailure::Timeout, AckFailure::Retired)
            }
            Over::Disconnected(error) => {
                if frames > 0 {
                    counters.disconnects.increment();
                }
                tracing::debug!(%address, ?error, frames, "connection to worker ended");
                self.lost.cancel();
                let failure = if self.refused { AckFailure::Retired } else { AckFailure::Disconnected };
                (failure.clone(), failure)
            }
            Over::Unneeded => unreachable!("returned above"),
        };
        for (index, Slot { reply, starts_at, in_flight, .. }) in self.slots.into_iter().enumerate() {
            drop(in_flight);
            let failure = if starts_at >= self.written_bytes {
                AckFailure::Unsent
            } else if index == 0 {
                first.clone()
            } else {
                others.clone()
            };
            // A caller that is gone needs no answer.
            let _ = reply.send(Err(failure));
        }
    }

    /// Whatever is to be done on the connection, until it is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        loop {
            let taken = self.poll_queue(cx);
            if let Err(error) = self.poll_write(cx) {
                return Poll::Ready(Over::Disconnected(Some(error)));
            }
            if let Err(over) = self.poll_read(cx) {
                return Poll::Ready(over);
            }
            if self.forgotten && self.slots.is_empty() {
                return Poll::Ready(Over::Unneeded);
            }
            // A full batch that was written makes room for what else is queued.
            if taken && self.outbox.is_empty() {
                continue;
            }
            ready!(self.poll_deadline(cx));
            return Poll::Ready(if self.slots.is_empty() { Over::Unneeded } else { Over::AckTimeout });
        }
    }

    /// Takes what is queued, up to a batch; tells whether there may be more.
    fn poll_queue(&mut self, cx: &mut Context<'_>) -> bool {
        while self.outbox.len() < MAX_BATCH {
            if self.forgotten {
                return false;
            }
            match self.connection.queue.poll_recv(cx) {
                Poll::Ready(Some(frame)) => self.take(frame),
                Poll::Ready(None) => self.forgotten = true,
                Poll::Pending => return false,
            }
        }
        true
    }

    /// Ready when the acknowledgement that is due first is late, or when nothing has happened for too long.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let deadline = match self.slots.front() {
                Some(slot) => slot.deadline,
                None => self.last_used + self.connection.config.idle_ttl,
            };
            // Moved only when it would run out too late, or has run out: not for every frame.
            if deadline < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(deadline);
            }
            ready!(self.timer.as_mut().poll(cx));
            if deadline <= Instant::now() {
                return Poll::Ready(());
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

    /// Writes what is taken, as much as the socket takes.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_BATCH + 2];
            for (slice, piece) in slices.iter_mut().zip(&self.outbox) {
                *slice = IoSlice::new(piece);
            }
            let count = self.outbox.len().min(slices.len());
            let written = match Pin::new(&mut self.socket).poll_write_vectored(cx, &slices[..count])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => written,
                Poll::Pending => return Ok(()),
            };
            self.unflushed = true;
            self.connection.counters.sent_bytes.add(written as u64);
            self.written_bytes += written as u64;
            self.written(written);
        }
        if self.unflushed && Pin::new(&mut self.socket).poll_flush(cx)?.is_ready() {
            self.unflushed = false;
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

    /// Reads and hands out acknowledgements until no more have come.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<(), Over> {
        loop {
            self.inbox.reserve(READ_ROOM);
            match pin!(self.socket.read_buf(&mut self.inbox)).poll(cx) {
                Poll::Ready(Ok(0)) => return Err(Over::Disconnected(None)),
                Poll::Ready(Ok(_)) => self.acknowledge()?,
                Poll::Ready(Err(error)) => return Err(Over::Disconnected(Some(error))),
                Poll::Pending => return Ok(()),
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
                Ack::Refused(_) => {
                    self.refused = true;
                    counters.acks_refused.increment();
                }
            }
            self.last_used = Instant::now();
            // The place is free before the caller learns of it.
            drop(in_flight);
            let _ = reply.send(Ok((ack, self.lost.clone())));
        }
        Ok(())
    }
}
