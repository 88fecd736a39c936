//! What event sockets stand on: TCP, or a network in memory.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Silence after which the kernel asks whether the other side is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How event sockets are reached and offered. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EventSockets {
    #[cfg(any(test, feature = "simulation"))]
    network: Option<roost_simulation::Network>,
}

impl EventSockets {
    /// A network in memory.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn simulated(network: roost_simulation::Network) -> Self {
        Self { network: Some(network) }
    }

    /// Connects to `HOST:PORT`. Put a deadline around it.
    pub(crate) async fn connect(&self, address: &str) -> io::Result<Socket> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(network) = &self.network {
            let address = address.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            return Ok(Socket::Simulated(network.connect(address).await?));
        }
        Ok(Socket::Tcp(TcpStream::connect(address).await?))
    }

    /// Listens; port 0 picks a free one.
    pub(crate) async fn bind(&self, address: SocketAddr) -> io::Result<Listener> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(network) = &self.network {
            return Ok(Listener::Simulated(network.bind(address)?));
        }
        Ok(Listener::Tcp(TcpListener::bind(address).await?))
    }
}

/// Accepts subscribers.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(any(test, feature = "simulation"))]
    Simulated(roost_simulation::Listener),
}

impl Listener {
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            #[cfg(any(test, feature = "simulation"))]
            Self::Simulated(listener) => Ok(listener.address()),
        }
    }

    /// Accepts the next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => Ok(Socket::Tcp(listener.accept().await?.0)),
            #[cfg(any(test, feature = "simulation"))]
            Self::Simulated(listener) => Ok(Socket::Simulated(listener.accept().await?.0)),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(any(test, feature = "simulation"))]
    Simulated(roost_simulation::Stream),
}

/// Calls a method of whatever the socket is.
macro_rules! delegate {
    ($self:ident, $socket:ident => $call:expr) => {
        match $self.get_mut() {
            Socket::Tcp($socket) => $call,
            #[cfg(any(test, feature = "simulation"))]
            Socket::Simulated($socket) => $call,
        }
    };
}

impl Socket {
    /// Sends small messages at once and notices a peer that has vanished.
    pub(crate) fn tune(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                let probe = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 3);
                SockRef::from(stream).set_tcp_keepalive(&probe)
            }
            #[cfg(any(test, feature = "simulation"))]
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Writes what the connection takes at once, and tells how much that is.
    pub(crate) fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(self).poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
            Poll::Ready(written) => written,
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

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_shutdown(cx))
    }
}
