//! How connections come to be: plain TCP, TLS around it, or a network in memory.

mod socket;
mod tls;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

#[cfg(any(test, feature = "simulation"))]
use roost_simulation as simulated;
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

pub(crate) use self::socket::Socket;
use self::tls::DialTls;
pub use self::tls::{ListenTls, TlsError, TlsFiles};

/// Neither plane has a heartbeat: only this finds out that a host has vanished without closing.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How the connections of both planes are made and accepted. Cheap to clone; the same value serves both ends of a
/// process, as the peer's variables do.
#[derive(Debug, Clone, Default)]
pub struct Transport {
    dial_tls: Option<Arc<DialTls>>,
    listen_tls: Option<Arc<ListenTls>>,
    #[cfg(any(test, feature = "simulation"))]
    network: Option<simulated::Network>,
}

impl Transport {
    /// Plain TCP.
    #[must_use]
    pub fn tcp() -> Self {
        Self::default()
    }

    /// TCP, with TLS for listeners, dialers or both as the files say. Reads the files.
    ///
    /// # Errors
    /// A file is missing, holds nothing of use, or lacks its counterpart.
    pub fn tls(files: &TlsFiles) -> Result<Self, TlsError> {
        let mut transport = Self::tcp();
        transport.dial_tls = DialTls::load(files)?.map(Arc::new);
        transport.listen_tls = ListenTls::load(files, &[])?.map(Arc::new);
        Ok(transport)
    }

    /// A network in memory.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn simulated(network: simulated::Network) -> Self {
        Self { network: Some(network), ..Self::default() }
    }

    /// Whether listeners expect TLS.
    #[must_use]
    pub fn listens_with_tls(&self) -> bool {
        self.listen_tls.is_some()
    }

    /// Whether dialers speak TLS.
    #[must_use]
    pub fn dials_with_tls(&self) -> bool {
        self.dial_tls.is_some()
    }

    /// Reads the certificates and keys of this process again, for they are replaced from time to time. What cannot
    /// be read leaves the old ones in use. Blocks on files.
    ///
    /// # Errors
    /// A file is missing or holds nothing of use.
    pub fn refresh(&self) -> Result<(), TlsError> {
        self.dial_tls.as_ref().map_or(Ok(()), |tls| tls.refresh())?;
        self.listen_tls.as_ref().map_or(Ok(()), |tls| tls.refresh())
    }

    /// Connects to a peer. Put a deadline around it.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<Socket> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(network) = &self.network {
            return Ok(Socket::Simulated(network.connect(address).await?));
        }
        let socket = TcpStream::connect(address).await?;
        tune(&SockRef::from(&socket))?;
        match &self.dial_tls {
            None => Ok(Socket::Tcp(socket)),
            Some(tls) => Ok(Socket::Tls(Box::new(tls.connect(address, socket).await?))),
        }
    }

    /// Binds a listener; port 0 picks a free one. The system keeps about `unread` bytes of each connection for it, or as
    /// many as it likes. Must be called on a runtime.
    pub(crate) fn bind(
        &self,
        address: SocketAddr,
        backlog: u32,
        unread: Option<usize>,
    ) -> io::Result<Listener> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(network) = &self.network {
            return Ok(Listener::Simulated(network.bind(address)?));
        }
        let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        if let Some(bytes) = unread {
            // Connections take it over from their listener.
            socket.set_recv_buffer_size(bytes)?;
        }
        // As this, once for all of them.
        #[cfg(target_os = "linux")]
        tune(&socket)?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(Listener::Tcp(TcpListener::from_std(socket.into())?, self.listen_tls.clone()))
    }
}

/// Accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener, Option<Arc<ListenTls>>),
    #[cfg(any(test, feature = "simulation"))]
    Simulated(simulated::Listener),
}

impl Listener {
    /// The address it listens on.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr(),
            #[cfg(any(test, feature = "simulation"))]
            Self::Simulated(listener) => Ok(listener.address()),
        }
    }

    /// Accepts the next connection, on which nothing has been said yet. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<(Incoming, SocketAddr)> {
        match self {
            Self::Tcp(listener, tls) => {
                let (socket, peer) = listener.accept().await?;
                #[cfg(not(target_os = "linux"))]
                tune(&SockRef::from(&socket))?;
                Ok((Incoming { socket: Socket::Tcp(socket), tls: tls.clone() }, peer))
            }
            #[cfg(any(test, feature = "simulation"))]
            Self::Simulated(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Incoming { socket: Socket::Simulated(stream), tls: None }, peer))
            }
        }
    }
}

/// An accepted connection before the TLS handshake, which the accepting task must not wait for.
#[derive(Debug)]
pub(crate) struct Incoming {
    socket: Socket,
    tls: Option<Arc<ListenTls>>,
}

impl Incoming {
    /// Gives the connection, after the TLS handshake where there is one; that has a deadline of its own.
    pub(crate) async fn establish(self) -> io::Result<Socket> {
        match (self.tls, self.socket) {
            (Some(tls), Socket::Tcp(socket)) => Ok(Socket::Tls(Box::new(tls.accept(socket).await?))),
            (_, socket) => Ok(socket),
        }
    }
}

fn tune(socket: &RawSocket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)
}
