//! How sockets come to be: the one place that would change to put TLS around them.

use std::{io, net::SocketAddr, time::Duration};

use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

/// A connection on either plane.
pub(crate) type Socket = TcpStream;

/// Neither plane has a heartbeat: only this finds out that a host has vanished without closing.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Connects to a peer.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<Socket> {
    let socket = TcpStream::connect(address).await?;
    tune(&socket)?;
    Ok(socket)
}

/// Binds a listener; port 0 picks a free one.
pub(crate) fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// Accepts the next connection.
pub(crate) async fn accept(listener: &TcpListener) -> io::Result<(Socket, SocketAddr)> {
    let (socket, peer) = listener.accept().await?;
    tune(&socket)?;
    Ok((socket, peer))
}

fn tune(socket: &Socket) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}
