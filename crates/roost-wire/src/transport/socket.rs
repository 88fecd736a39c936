use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker},
};

#[cfg(any(test, feature = "simulation"))]
use roost_simulation as simulated;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

/// A connection on either plane.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(any(test, feature = "simulation"))]
    Simulated(simulated::Stream),
}

/// Calls a method of whatever the socket is.
macro_rules! delegate {
    ($self:ident, $socket:ident => $call:expr) => {
        match $self.get_mut() {
            Socket::Tcp($socket) => $call,
            Socket::Tls($socket) => $call,
            #[cfg(any(test, feature = "simulation"))]
            Socket::Simulated($socket) => $call,
        }
    };
}

impl Socket {
    /// Writes what the connection takes at once; for a short last word, when nobody can wait.
    pub(crate) fn write_now(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut rest = bytes;
        while !rest.is_empty() {
            match Pin::new(&mut *self).poll_write(&mut cx, rest)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => rest = &rest[written..],
                Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
        // TLS keeps what it has encrypted until it is flushed.
        match Pin::new(self).poll_flush(&mut cx)? {
            Poll::Ready(()) => Ok(()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, socket => Pin::new(socket).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, socket => Pin::new(socket).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Tls(socket) => socket.is_write_vectored(),
            #[cfg(any(test, feature = "simulation"))]
            Self::Simulated(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_shutdown(cx))
    }
}
