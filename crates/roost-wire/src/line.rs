use std::{
    future::Future as _,
    io,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::io::AsyncReadExt as _;

use crate::{
    frame::{FrameError, TwoPart},
    message::ControlSignal,
    stats::ListenerCounters,
    transport::Socket,
};

/// Least room to read into; a token item takes 70 to 200 bytes.
const READ_ROOM: usize = 8 * 1024;
/// Most room that is made because a frame announces its length.
const MAX_READ_ROOM: usize = 256 * 1024;

/// The frontend's end of a call-home connection: the socket and what has been read ahead.
///
/// Reads only when polled, so a consumer that stops polling makes the worker wait. When dropped before
/// [`Line::finish`] it tells the worker to stop at once.
#[derive(Debug)]
pub(crate) struct Line {
    socket: Socket,
    inbox: BytesMut,
    max_frame_bytes: usize,
    finished: bool,
    counters: Arc<ListenerCounters>,
}

/// Why no frame can be had.
#[derive(Debug)]
pub(crate) enum LineError {
    /// The worker closed between frames or within one.
    Closed,
    /// The connection broke.
    Broken(io::Error),
    /// The next frame is not acceptable.
    Frame(FrameError),
}

impl Line {
    pub(crate) fn new(socket: Socket, max_frame_bytes: usize, counters: Arc<ListenerCounters>) -> Self {
        Self { socket, inbox: BytesMut::new(), max_frame_bytes, finished: false, counters }
    }

    /// Changes the size of the largest acceptable frame.
    pub(crate) fn allow_frames(&mut self, max_frame_bytes: usize) {
        self.max_frame_bytes = max_frame_bytes;
    }

    /// Waits until [`Line::frame`] has a whole frame, and returns its length.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, LineError>> {
        loop {
            if let Some(len) = self.buffered()? {
                return Poll::Ready(Ok(len));
            }
            let wanted = TwoPart::announced_len(&self.inbox).unwrap_or(0).saturating_sub(self.inbox.len());
            self.inbox.reserve(wanted.clamp(READ_ROOM, MAX_READ_ROOM));
            match ready!(pin!(self.socket.read_buf(&mut self.inbox)).poll(cx)) {
                Ok(0) => return Poll::Ready(Err(LineError::Closed)),
                Ok(read) => self.counters.received_bytes.add(read as u64),
                // TLS without a farewell is as closed as TCP.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Err(LineError::Closed));
                }
                Err(error) => return Poll::Ready(Err(LineError::Broken(error))),
            }
        }
    }

    /// Waits for a frame. Cancel safe: nothing that was read is lost.
    pub(crate) async fn next_frame(&mut self) -> Result<usize, LineError> {
        std::future::poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// The length of the frame that has been read already, if one has.
    pub(crate) fn buffered(&self) -> Result<Option<usize>, LineError> {
        match TwoPart::decode(&self.inbox, self.max_frame_bytes) {
            Ok(found) => Ok(found.map(|(_, len)| len)),
            Err(error) => Err(LineError::Frame(error)),
        }
    }

    /// The frame at the front, of the length that was returned for it.
    pub(crate) fn frame(&self, len: usize) -> TwoPart<'_> {
        match TwoPart::decode(&self.inbox[..len], len) {
            Ok(Some((frame, _))) => frame,
            _ => unreachable!("the length came from decoding these bytes"),
        }
    }

    /// Removes the frame at the front.
    pub(crate) fn consume(&mut self, len: usize) {
        self.inbox.advance(len);
    }

    /// Sends a control frame if the socket takes it at once, which it does unless thousands are unread.
    pub(crate) fn signal(&mut self, signal: ControlSignal) {
        let frame = control_frame(signal);
        if let Err(error) = self.socket.write_now(&frame) {
            tracing::debug!(%error, ?signal, "could not signal the worker");
        }
    }

    /// Marks the answer as ended: the worker needs no signal when the connection closes.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.finished {
            self.signal(ControlSignal::Kill);
        }
    }
}

/// The frame that carries a signal.
pub(crate) fn control_frame(signal: ControlSignal) -> Vec<u8> {
    let text: &[u8] = match signal {
        ControlSignal::Stop => b"\"stop\"",
        ControlSignal::Kill => b"\"kill\"",
        ControlSignal::Sentinel => b"\"sentinel\"",
    };
    let mut frame = Vec::with_capacity(40);
    TwoPart { header: text, body: &[] }.encode(&mut frame);
    frame
}
