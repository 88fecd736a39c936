//! A real etcd server of a test's own: on free ports, in a temporary folder, stopped by its process id.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_cluster::{EtcdConfig, EtcdDiscovery};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{PATIENCE, Request};

/// An etcd that runs, or has been killed and can be started again.
#[derive(Debug)]
pub struct Etcd {
    folder: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    scheme: &'static str,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Etcd {
    /// Starts a server; `None`, with the reason printed, when etcd is not installed.
    pub async fn start() -> Result<Option<Self>> {
        Self::start_with("http", &[]).await
    }

    /// Starts a server with further arguments, for `http` or `https` clients.
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    pub async fn start_with(scheme: &'static str, arguments: &[&str]) -> Result<Option<Self>> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: etcd is not installed (Debian: etcd-server)");
            return Ok(None);
        }
        let mut etcd = Self {
            folder: TempDir::new()?,
            client: crate::port::free()?,
            peer: crate::port::free()?,
            scheme,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            child: None,
        };
        etcd.run().await?;
        Ok(Some(etcd))
    }

    /// Starts it again after [`Etcd::kill`], with the data it had.
    pub async fn run(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "etcd runs already");
        let client = self.url();
        let peer = format!("http://{}", self.peer);
        let log = File::options().create(true).append(true).open(self.log())?;
        let child = Command::new("etcd")
            .args(["--data-dir".as_ref(), self.data().as_os_str()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.child = Some(child);
        let ready = async {
            while std::net::TcpStream::connect(self.client).is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.with_context(|| self.output())
    }

    /// Ends it as a crash does. Its data stay.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("etcd does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Forgets everything that was stored; only while it does not run.
    pub fn wipe(&self) -> Result<()> {
        ensure!(self.child.is_none(), "etcd runs");
        Ok(std::fs::remove_dir_all(self.data())?)
    }

    /// Makes it hang: connections stay open and nothing is answered.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("etcd does not run")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// What clients connect to.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.client)
    }

    /// The address of [`Etcd::url`].
    pub fn address(&self) -> SocketAddr {
        self.client
    }

    /// Everything it has printed.
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// A participant with this time to live, which after an outage believes in its records for `hold`.
    pub fn participant(&self, ttl: Duration, hold: Duration) -> Result<Arc<EtcdDiscovery>> {
        let config = EtcdConfig { lease_ttl: ttl, hold, ..EtcdConfig::new(vec![self.url()]) };
        Ok(EtcdDiscovery::open(config)?)
    }

    /// Calls etcd's JSON gateway, which the product does not use: another pair of eyes.
    pub async fn gateway(&self, path: &str, body: &Value) -> Result<Value> {
        let reply = Request::post(self.client, path, body).send().await?;
        ensure!(reply.status == 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Makes the history up to now unavailable to watches.
    pub async fn compact(&self) -> Result<()> {
        let all = json!({"key": "AA==", "range_end": "AA==", "count_only": true});
        let now = self.gateway("/v3/kv/range", &all).await?;
        let revision = now["header"]["revision"].clone();
        self.gateway("/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await?;
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if self.child.is_some() {
            // A stopped process is killed all the same.
            let _ended = self.kill();
        }
    }
}
