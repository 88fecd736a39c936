//! A TCP forwarder that can be shut: a network that fails between two processes that are both well.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Forwards connections to one address while it is open.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    open: watch::Sender<bool>,
    _task: AbortOnDropHandle<()>,
}

impl Gate {
    /// An open gate to `target`.
    pub async fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (open, is_open) = watch::channel(true);
        let task = tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                let mut is_open = is_open.clone();
                if !*is_open.borrow_and_update() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut outer) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ended = copy_bidirectional(&mut inner, &mut outer) => {}
                        _shut = is_open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Ok(Self { address, open, _task: AbortOnDropHandle::new(task) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections; new ones are closed at once.
    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    /// Forwards again.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}
