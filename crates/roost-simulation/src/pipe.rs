//! One connection's two directions: bounded pipes with delays and an end that is decided beforehand.

use std::{
    collections::VecDeque,
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep, sleep_until},
};

use super::NOTICE;

/// Bytes that may be on their way in one direction.
const CAPACITY: usize = 64 * 1024;

/// What becomes of a connection, after so many bytes in the direction.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Kept,
    Reset { after: usize },
    Vanished { after: usize },
}

/// One direction of a connection.
#[derive(Clone)]
pub(super) struct Pipe(Arc<Mutex<State>>);

struct State {
    random: fastrand::Rng,
    fate: Fate,
    delay: Duration,
    piece: usize,
    /// Pieces on their way and when they arrive.
    pieces: VecDeque<(Instant, Vec<u8>)>,
    in_flight: usize,
    written: usize,
    /// When the writer's end, or the reset, arrives.
    end: Option<(Instant, End)>,
    reader_gone: bool,
    readable: Option<Waker>,
    writable: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
    /// Nothing arrives any more; noticed long after.
    Vanished,
}

impl Pipe {
    pub(super) fn new(random: fastrand::Rng, fate: Fate, delay: Duration, piece: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            random,
            fate,
            delay,
            piece: piece.max(1),
            pieces: VecDeque::new(),
            in_flight: 0,
            written: 0,
            end: None,
            reader_gone: false,
            readable: None,
            writable: None,
        })))
    }
}

impl State {
    /// When something sent now arrives: after everything sent before it.
    fn arrival(&mut self) -> Instant {
        let earliest = self.pieces.back().map_or_else(Instant::now, |(at, _)| *at);
        let delay = self.delay.mul_f64(self.random.f64());
        (Instant::now() + delay).max(earliest)
    }

    fn wake(waker: &mut Option<Waker>) {
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }

    fn end(&mut self, end: End) {
        if self.end.is_none() {
            let at = match end {
                End::Vanished => Instant::now() + NOTICE,
                End::Closed | End::Reset => self.arrival(),
            };
            self.end = Some((at, end));
            Self::wake(&mut self.readable);
            Self::wake(&mut self.writable);
        }
    }
}

/// The end that data comes out of.
pub(super) struct Reader {
    pipe: Pipe,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Reader {
    pub(super) fn new(pipe: Pipe) -> Self {
        Self { pipe, timer: None }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let wait_until = {
                let mut guard = self.pipe.0.lock();
                let state = &mut *guard;
                let now = Instant::now();
                let vanished = matches!(state.end, Some((_, End::Vanished)));
                match (state.pieces.front_mut(), state.end) {
                    (Some((at, piece)), _) if *at <= now => {
                        let len = piece.len().min(buf.remaining());
                        buf.put_slice(&piece[..len]);
                        piece.drain(..len);
                        if piece.is_empty() {
                            state.pieces.pop_front();
                        }
                        state.in_flight -= len;
                        if !vanished {
                            State::wake(&mut state.writable);
                        }
                        return Poll::Ready(Ok(()));
                    }
                    (Some((at, _)), _) => *at,
                    (None, Some((at, end))) if at <= now => {
                        return Poll::Ready(match end {
                            End::Closed => Ok(()),
                            End::Reset => Err(io::ErrorKind::ConnectionReset.into()),
                            End::Vanished => Err(io::ErrorKind::TimedOut.into()),
                        });
                    }
                    (None, Some((at, _))) => at,
                    (None, None) => {
                        state.readable = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            let mut timer = Box::pin(sleep_until(wait_until));
            if timer.as_mut().poll(cx).is_pending() {
                // An end may come to be known before the timer runs out.
                self.pipe.0.lock().readable = Some(cx.waker().clone());
                self.timer = Some(timer);
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.pipe.0.lock();
        state.reader_gone = true;
        State::wake(&mut state.writable);
    }
}

/// The end that data goes into.
pub(super) struct Writer {
    pipe: Pipe,
    /// The other direction, which shares the fate.
    back: Pipe,
}

impl Writer {
    pub(super) fn new(pipe: Pipe, back: Pipe) -> Self {
        Self { pipe, back }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let (written, broken) = self.pipe.0.lock().write(cx, buf);
        if let Some(end) = broken {
            self.back.0.lock().end(end);
        }
        written
    }

    /// The writer has said everything.
    pub(super) fn close(&mut self) {
        let vanished = {
            let mut state = self.pipe.0.lock();
            let vanished = matches!(state.fate, Fate::Vanished { .. });
            // The farewell of a vanished peer gets lost, too.
            state.end(if vanished { End::Vanished } else { End::Closed });
            vanished
        };
        if vanished {
            self.back.0.lock().end(End::Vanished);
        }
    }
}

impl State {
    /// Takes what fits; also tells how the connection breaks, if it does now.
    fn write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> (Poll<io::Result<usize>>, Option<End>) {
        let state = self;
        let failed = |kind: io::ErrorKind| (Poll::Ready(Err(kind.into())), None);
        match state.end {
            Some((_, End::Reset)) => return failed(io::ErrorKind::ConnectionReset),
            Some((_, End::Closed)) => return failed(io::ErrorKind::BrokenPipe),
            // Nobody tells.
            Some((_, End::Vanished)) => {}
            None if state.reader_gone => return failed(io::ErrorKind::BrokenPipe),
            None => {}
        }
        let room = CAPACITY.saturating_sub(state.in_flight);
        if room == 0 {
            state.writable = Some(cx.waker().clone());
            return (Poll::Pending, None);
        }
        let len = buf.len().min(room);
        let mut passes = len;
        match state.fate {
            Fate::Reset { after } | Fate::Vanished { after } => {
                passes = passes.min(after.saturating_sub(state.written));
            }
            Fate::Kept => {}
        }
        let mut rest = &buf[..passes];
        while !rest.is_empty() {
            let size = state.random.usize(1..=state.piece).min(rest.len());
            let (piece, tail) = rest.split_at(size);
            let at = state.arrival();
            state.pieces.push_back((at, piece.to_vec()));
            rest = tail;
        }
        state.written += len;
        // What does not pass stays in the writer's buffer for ever.
        state.in_flight += len;
        let mut broken = None;
        if passes < len {
            let end = if matches!(state.fate, Fate::Reset { .. }) { End::Reset } else { End::Vanished };
            state.end(end);
            broken = Some(end);
        }
        State::wake(&mut state.readable);
        (Poll::Ready(Ok(len)), broken)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}
