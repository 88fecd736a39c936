//! Live peers: an unmodified Dynamo frontend, mocker and bindings worker, started from their packages.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Releases that are understood beside the reference release.
const OLDER: &str = "1.5.1,1.4.2";

/// Where the peers are installed.
#[derive(Debug, Clone)]
pub struct Peers {
    root: PathBuf,
    /// Virtual environment below it; that of the reference release unless another is asked for.
    venv: String,
    variables: Vec<(String, String)>,
}

/// A running peer; stopped when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    log: PathBuf,
}

impl Peers {
    /// The installation of `$ROOST_PEERS` (or its default); `None`, with the reason printed, when there is none.
    #[expect(clippy::disallowed_methods, reason = "where a test finds its peers is no option of the product")]
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    pub fn find() -> Option<Self> {
        let root = match std::env::var_os("ROOST_PEERS") {
            Some(root) => PathBuf::from(root),
            None => std::env::home_dir()?.join(".cache/roost-peers"),
        };
        for needed in ["venv/bin/python", "model/tokenizer.json"] {
            if !root.join(needed).is_file() {
                println!("skipped: no {needed} under {} (see the README)", root.display());
                return None;
            }
        }
        Some(Peers { root, venv: "venv".to_owned(), variables: Vec::new() })
    }

    /// The installed ones of the older releases that are to be understood, `venv-1.5.1` and so on, or those that
    /// `$ROOST_PEER_VERSIONS` names (comma-separated). Says which are missing.
    #[expect(clippy::disallowed_methods, reason = "which peers a test uses is no option of the product")]
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    pub fn older(&self) -> Vec<Self> {
        let wanted = std::env::var("ROOST_PEER_VERSIONS").unwrap_or_else(|_| OLDER.to_owned());
        let versions = wanted.split(',').map(str::trim).filter(|version| !version.is_empty());
        let (there, missing): (Vec<Self>, Vec<Self>) = versions
            .map(|version| Self { venv: format!("venv-{version}"), ..self.clone() })
            .partition(|peers| peers.root.join(&peers.venv).join("bin/python").is_file());
        for peers in missing {
            println!("skipped: no {} under {} (see the README)", peers.venv, peers.root.display());
        }
        there
    }

    /// Peers with these variables in their environment, too.
    #[must_use]
    pub fn with_variables(mut self, variables: Vec<(String, String)>) -> Self {
        self.variables.extend(variables);
        self
    }

    /// Peers that find each other in an etcd at this address; the store given at their start only holds their logs.
    #[must_use]
    pub fn in_etcd(mut self, url: &str) -> Self {
        self.variables = vec![
            ("DYN_DISCOVERY_BACKEND".to_owned(), "etcd".to_owned()),
            ("ETCD_ENDPOINTS".to_owned(), url.to_owned()),
        ];
        self
    }

    /// Peers that find each other at a Kubernetes API server, each started in this pod.
    #[must_use]
    pub fn in_kubernetes(mut self, kubeconfig: &Path, pod: &str, uid: &str) -> Self {
        let kubeconfig = kubeconfig.display().to_string();
        self.variables = vec![
            ("DYN_DISCOVERY_BACKEND".to_owned(), "kubernetes".to_owned()),
            ("KUBECONFIG".to_owned(), kubeconfig),
            ("POD_NAME".to_owned(), pod.to_owned()),
            ("POD_UID".to_owned(), uid.to_owned()),
            ("POD_NAMESPACE".to_owned(), crate::kubernetes::NAMESPACE.to_owned()),
        ];
        self
    }

    /// The same peers with their events on NATS.
    #[must_use]
    pub fn on_nats(mut self, url: &str) -> Self {
        for (name, value) in [("DYN_EVENT_PLANE", "nats"), ("NATS_SERVER", url)] {
            self.variables.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// A model folder: the Qwen3 tokenizer and template, no weights.
    pub fn model(&self) -> PathBuf {
        self.root.join("model")
    }

    /// Starts `dynamo.mocker`.
    pub fn mocker(&self, store: &Path, arguments: &[&str]) -> Result<Peer> {
        let model = self.model();
        self.start(
            "dynamo_mocker.sh",
            store,
            &[model.as_os_str().to_str().context("path")?],
            arguments,
            "mocker",
            &[],
        )
    }

    /// Starts the worker on the official bindings that answers like `dynamo.sglang`.
    ///
    /// It serves the model's files itself, so its card names them by URL.
    pub fn bindings_worker(&self, store: &Path, arguments: &[&str]) -> Result<Peer> {
        let model = self.model();
        self.start(
            "dynamo_worker.sh",
            store,
            &[model.as_os_str().to_str().context("path")?],
            arguments,
            "worker",
            &[("DYN_SYSTEM_PORT", "0")],
        )
    }

    /// The same, with an engine's metrics on its system port; returns where.
    pub fn worker_with_metrics(&self, store: &Path) -> Result<(Peer, SocketAddr)> {
        let address = crate::port::free()?;
        let (model, port) = (self.model(), address.port().to_string());
        let model = model.as_os_str().to_str().context("path")?;
        let variables = [("DYN_SYSTEM_PORT", port.as_str())];
        let peer =
            self.start("dynamo_worker.sh", store, &[model], &["--engine-metrics"], "worker", &variables)?;
        Ok((peer, address))
    }

    /// Starts the worker in plain Python that knows the wire and no Dynamo, with its faults on demand.
    pub fn reference_worker(&self, store: &Path, arguments: &[&str]) -> Result<Peer> {
        let model = self.model();
        let model = [model.as_os_str().to_str().context("path")?];
        self.start("dynamo_ref_worker.sh", store, &model, arguments, "reference", &[])
    }

    /// Starts `dynamo.frontend` and returns where it will serve.
    pub fn frontend(&self, store: &Path, arguments: &[&str]) -> Result<(Peer, SocketAddr)> {
        let address = crate::port::free()?;
        let port = address.port().to_string();
        Ok((self.start("dynamo_frontend.sh", store, &[&port], arguments, "frontend", &[])?, address))
    }

    fn start(
        &self,
        script: &str,
        store: &Path,
        fixed: &[&str],
        arguments: &[&str],
        name: &str,
        variables: &[(&str, &str)],
    ) -> Result<Peer> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(script);
        let number = std::fs::read_dir(store.parent().context("the store has a folder of its own")?)?.count();
        let log = store.with_file_name(format!("{name}-{number}.log"));
        let output = File::create(&log)?;
        let child = Command::new("bash")
            .arg(&script)
            .arg(self.root.join(&self.venv))
            .arg(store)
            .args(fixed)
            .args(arguments)
            .env("HOME", store.with_file_name(format!("home-{name}-{number}")))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", script.display()))?;
        Ok(Peer { child, log })
    }
}

impl Peer {
    /// Everything it has printed.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it without a word, as `kill -9` does.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _already = self.child.kill();
        let _status = self.child.wait();
    }
}
