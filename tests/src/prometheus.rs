//! A real Prometheus of a test's own: on a free port, in a temporary folder, stopped by its process id.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::http::{PATIENCE, Request};

/// A running Prometheus; stopped when dropped.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    folder: TempDir,
    child: Child,
}

impl Prometheus {
    /// Whether it and its `promtool` are installed; the reason to skip a test is printed when they are not.
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    pub fn is_installed() -> bool {
        let there = ["prometheus", "promtool"].iter().all(|program| {
            Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok()
        });
        if !there {
            println!("skipped: prometheus is not installed (Debian: prometheus)");
        }
        there
    }

    /// Starts one that scrapes `targets` every second under the job name `roost` and evaluates rule files.
    pub async fn start(targets: &[SocketAddr], rules: &[&Path]) -> Result<Self> {
        let folder = TempDir::new()?;
        let list = |items: Vec<String>| serde_json::to_string(&items);
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: {}\n\
             scrape_configs: [{{job_name: roost, static_configs: [{{targets: {}}}]}}]\n",
            list(rules.iter().map(|path| path.to_string_lossy().into_owned()).collect())?,
            list(targets.iter().map(ToString::to_string).collect())?,
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config)?;
        let address = crate::port::free()?;
        let log = File::create(folder.path().join("log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let prometheus = Prometheus { address, folder, child };
        let ready = async {
            let answers = async || {
                let there = TcpStream::connect(address).is_ok();
                there && Request::get(address, "/-/ready").send().await.is_ok_and(|reply| reply.status == 200)
            };
            while !answers().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.with_context(|| prometheus.log())?;
        Ok(prometheus)
    }

    /// The `data` of one of its API's answers.
    pub async fn api(&self, path: &str) -> Result<Value> {
        let reply = Request::get(self.address, path).send().await?;
        ensure!(reply.status == 200, "{path}: {} {}", reply.status, reply.text());
        Ok(reply.json()?["data"].take())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
