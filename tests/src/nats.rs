//! A real NATS server of a test's own: on a free port, in a temporary folder, stopped by its process id.

mod accounts;

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub use accounts::credentials;
use anyhow::{Context, Result, ensure};
use roost_cluster::{NatsAuth, NatsClient, NatsConfig, TlsIdentity};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::http::PATIENCE;

/// A NATS server that runs, or has been killed and can be started again.
#[derive(Debug)]
pub struct Nats {
    folder: TempDir,
    address: SocketAddr,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Nats {
    /// Starts a server with further arguments; `None`, with the reason printed, when NATS is not installed.
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    pub async fn start(arguments: &[&str]) -> Result<Option<Self>> {
        if Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: nats-server is not installed (Debian: nats-server)");
            return Ok(None);
        }
        let address = crate::port::free()?;
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut nats = Self { folder: TempDir::new()?, address, arguments, child: None };
        nats.run().await?;
        Ok(Some(nats))
    }

    /// Starts it again after [`Nats::kill`].
    pub async fn run(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "nats-server runs already");
        let log = self.folder.path().join("log");
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new("nats-server")
            .args(["--addr", "127.0.0.1", "--port", &self.address.port().to_string()])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        self.child = Some(child);
        let ready = async {
            while TcpStream::connect(self.address).is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready)
            .await
            .with_context(|| std::fs::read_to_string(&log).unwrap_or_default())
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("nats-server does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// What clients connect to.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// A connection.
    pub fn client(&self, auth: NatsAuth) -> Result<NatsClient> {
        self.client_with(auth, None)
    }

    /// A connection that is encrypted if it is told whom to trust.
    pub fn client_with(&self, auth: NatsAuth, tls: Option<TlsIdentity>) -> Result<NatsClient> {
        Ok(NatsClient::start(NatsConfig::new(&self.url(), auth, tls)?, CancellationToken::new()))
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if self.child.is_some() {
            let _ended = self.kill();
        }
    }
}
