//! What connections are made of: where they come from, and what bytes go through.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use roost_wire::ListenTls;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsStream;

/// Bytes that may wait in the system for a client to make room.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 128 << 10;

/// Where clients connect.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener, Option<Arc<ListenTls>>),
    Unix(UnixListener),
}

impl Listener {
    /// TCP, with TLS where `tls` is given.
    pub fn tcp(listener: TcpListener, tls: Option<Arc<ListenTls>>) -> Self {
        Listener(Kind::Tcp(listener, tls))
    }

    /// A socket in the file system. Who may open the file may connect; there is no TLS on it.
    pub fn unix(listener: UnixListener) -> Self {
        Listener(Kind::Unix(listener))
    }

    /// The next connection. Cancel safe.
    pub(super) async fn accept(&self) -> io::Result<Incoming> {
        match &self.0 {
            Kind::Tcp(listener, tls) => Incoming::tcp(listener.accept().await?.0, tls.clone()),
            Kind::Unix(listener) => {
                Ok(Incoming { socket: Socket::Unix(listener.accept().await?.0), tls: None })
            }
        }
    }

    /// Closes the listener and gives, one by one, the connections that the system has accepted for it already:
    /// closing alone would reset them.
    pub(super) fn backlog(self) -> Option<Backlog> {
        match self.0 {
            Kind::Tcp(listener, tls) => Some(Backlog::Tcp(listener.into_std().ok()?, tls)),
            Kind::Unix(listener) => Some(Backlog::Unix(listener.into_std().ok()?)),
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Listener::tcp(listener, None)
    }
}

/// A listener on its way out.
pub(super) enum Backlog {
    Tcp(std::net::TcpListener, Option<Arc<ListenTls>>),
    Unix(std::os::unix::net::UnixListener),
}

impl Backlog {
    pub(super) fn next(&self) -> Option<Incoming> {
        match self {
            Backlog::Tcp(listener, tls) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                Incoming::tcp(TcpStream::from_std(stream).ok()?, tls.clone()).ok()
            }
            Backlog::Unix(listener) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                Some(Incoming { socket: Socket::Unix(UnixStream::from_std(stream).ok()?), tls: None })
            }
        }
    }
}

/// An accepted connection on which nothing has been said.
#[derive(Debug)]
pub(super) struct Incoming {
    socket: Socket,
    tls: Option<Arc<ListenTls>>,
}

impl Incoming {
    fn tcp(stream: TcpStream, tls: Option<Arc<ListenTls>>) -> io::Result<Self> {
        // A stream of small events must not wait for the client's delayed acknowledgements.
        stream.set_nodelay(true)?;
        // What a client does not read must hold back its worker, not pile up in the system.
        #[cfg(target_os = "linux")]
        socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
        Ok(Incoming { socket: Socket::Tcp(stream), tls })
    }

    /// The connection after its TLS handshake, which has a time limit of its own.
    pub(super) async fn establish(self) -> io::Result<Socket> {
        match (self.tls, self.socket) {
            (Some(tls), Socket::Tcp(stream)) => Ok(Socket::Tls(Box::new(tls.accept(stream).await?))),
            (_, socket) => Ok(socket),
        }
    }
}

/// Bytes in and out.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls a method of whatever the socket is.
macro_rules! each {
    ($self:expr, $socket:ident => $call:expr) => {
        match $self {
            Socket::Tcp($socket) => $call,
            Socket::Unix($socket) => $call,
            Socket::Tls($socket) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, socket => socket.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_shutdown(cx))
    }
}
