//! Where the frontend listens: TCP, and a socket in the file system if one is named.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use roost_config::HttpOptions;
use roost_frontend::Listener;
use roost_wire::ListenTls;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

/// Binds the TCP listener and tells its address.
pub(crate) fn tcp(o: &HttpOptions, tls: Option<Arc<ListenTls>>) -> Result<(SocketAddr, Listener)> {
    let address = SocketAddr::new(o.host, o.port);
    let listen = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(o.listen_backlog).unwrap_or(i32::MAX))?;
        TcpListener::from_std(socket.into())
    };
    let listener =
        listen().with_context(|| format!("cannot listen on {address} (--http-host, --http-port)"))?;
    Ok((listener.local_addr()?, Listener::tcp(listener, tls)))
}

/// The file of a socket, removed at the end.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever finds it finds nobody listening.
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// Binds a socket in the file system. A file that another process listens on is left alone.
pub(crate) fn unix(path: &Path) -> Result<(SocketFile, Listener)> {
    use std::os::unix::fs::FileTypeExt as _;
    use std::os::unix::net::UnixStream;
    let here = || format!("cannot listen on {} (--http-unix-socket)", path.display());
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            bail!("{}: there is a file that is no socket", here());
        }
        if UnixStream::connect(path).is_ok() {
            bail!("{}: somebody listens there", here());
        }
        std::fs::remove_file(path).with_context(here)?;
    }
    let listener = UnixListener::bind(path).with_context(here)?;
    Ok((SocketFile(path.to_owned()), Listener::unix(listener)))
}
