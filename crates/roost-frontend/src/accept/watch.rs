//! One connection under watch: its socket and its answers report, a timer cuts it when it has waited long enough.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::answers::Answers;
use super::socket::Socket;
use super::waits::{Cut, WaitLimits, Waits};

/// How long the rest of a refused request body is taken and thrown away, so that the answer is not lost in a reset.
const LINGER: Duration = Duration::from_secs(2);

/// What the parts of a connection know of each other.
#[derive(Debug)]
pub(super) struct Watch {
    waits: Mutex<Waits>,
    pub(super) answers: Answers,
    /// Bytes of a request were left unread.
    unread: AtomicBool,
}

impl Watch {
    pub(super) fn new(limits: WaitLimits) -> Arc<Self> {
        Arc::new(Watch {
            waits: Mutex::new(Waits::new(limits, Instant::now())),
            answers: Answers::new(limits.write_stall),
            unread: AtomicBool::new(false),
        })
    }

    /// A request's head is whole; it runs until the guard is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Running {
        self.waits.lock().request();
        Running(Arc::clone(self))
    }

    /// A request body was left before its end.
    pub(super) fn left_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// Resolves when the connection is to be cut. To be polled after the connection on every wake-up of its task:
    /// what has happened there decides how long this sleeps.
    pub(super) fn poll_cut(&self, cx: &mut Context<'_>, timer: &mut Option<Pin<Box<Sleep>>>) -> Poll<Cut> {
        loop {
            let now = Instant::now();
            let due = self.waits.lock().due();
            if let Some((at, cut)) = due
                && at <= now
            {
                return Poll::Ready(cut);
            }
            let stalled = self.answers.cut_stalled(now);
            let Some(next) = due.map(|(at, _)| at).into_iter().chain(stalled).min() else {
                return Poll::Pending;
            };
            let timer = match timer {
                Some(timer) => {
                    // One that fires early is cheaper than one moved at every event.
                    if timer.is_elapsed() || timer.deadline() > next {
                        timer.as_mut().reset(next);
                    }
                    timer
                }
                None => timer.insert(Box::pin(tokio::time::sleep_until(next))),
            };
            ready!(timer.as_mut().poll(cx));
        }
    }
}

/// A request that runs.
#[derive(Debug)]
pub(super) struct Running(Arc<Watch>);

impl Running {
    pub(super) fn watch(&self) -> &Watch {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.waits.lock().answered(Instant::now());
    }
}

/// A socket that reports what happens on it.
pub(super) struct Watched {
    socket: Socket,
    watch: Arc<Watch>,
    linger: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(super) fn new(socket: Socket, watch: Arc<Watch>) -> Self {
        Watched { socket, watch, linger: None }
    }

    fn wrote<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &result {
            Poll::Pending => self.watch.waits.lock().blocked(Instant::now()),
            Poll::Ready(_) => self.watch.waits.lock().sent(),
        }
        result
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        if !read.is_empty() {
            self.watch.waits.lock().received(read, Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        self.wrote(result)
    }

    /// Closes our side. Where bytes of a request were left unread, closing at once would reset the connection and the
    /// client might never read the answer: what it still sends is taken for a while first.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            if !self.watch.unread.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            self.linger = Some(Box::pin(tokio::time::sleep(LINGER)));
        }
        let mut scratch = [0_u8; 4096];
        loop {
            let this = &mut *self;
            if this.linger.as_mut().is_none_or(|timer| timer.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut this.socket).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {}
                // The end, or a connection that is gone anyway.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}
