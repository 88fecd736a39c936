//! Plain SGLang servers as the workers of a frontend: who they are, and their engines in this process.
//!
//! Servers are named by the caller and by a file (`members`, pure), found behind their names (`roster`), watched one by one
//! (`member`) and handed to the frontend like discovered workers: their records go into a store of this process, their
//! changes behind the cluster's updates (`tap`), their requests to their engines (`engines`).

mod engines;
mod member;
mod members;
mod model;
mod roster;
mod tap;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use roost_cluster::{Discovery, Update};
use roost_frontend::HostedEngines;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use engines::Engines;
use member::Setting;
use roster::Roster;

pub use members::{Named, Part, listed};
pub use model::{files, watch_for, watch_over};

/// Which servers there are, and how they are looked after.
#[derive(Debug, Clone)]
pub struct Config {
    /// Servers by name or address.
    pub named: Vec<Named>,
    /// File with further ones; see [`listed`].
    pub file: Option<PathBuf>,
    /// Bearer token for all of them.
    pub api_key: Option<String>,
    /// Folder with the model's files, where those that the servers use are not on this machine.
    pub model_path: Option<PathBuf>,
    /// Follow the servers' KV events.
    pub kv_events: bool,
    /// Pause between two probes of a server.
    pub probe_interval: Duration,
    /// Pause between two resolutions of names and looks at the file.
    pub resolve_interval: Duration,
}

/// Starts looking after the servers, until `stop`. Returns the engines, and the updates with what the servers say of their
/// caches behind them. Must be called on a runtime; `discovery` is a store of this process alone.
///
/// # Errors
/// The file cannot be read: at the start that is a mistake, later it is an accident.
pub fn start(
    config: Config,
    discovery: Arc<dyn Discovery>,
    updates: mpsc::Receiver<Update>,
    stop: &CancellationToken,
) -> Result<(Arc<dyn HostedEngines>, mpsc::Receiver<Update>)> {
    if let Some(file) = &config.file {
        roster::read(file).with_context(|| file.display().to_string())?;
    }
    let engines = Arc::new(Engines::default());
    let (tap, updates) = tap::start(updates, stop);
    let setting = Setting {
        model_path: config.model_path,
        kv_events: config.kv_events,
        api_key: config.api_key,
        probe_interval: config.probe_interval,
        discovery,
        engines: Arc::clone(&engines),
        tap,
    };
    let roster = Roster::new(config.named, config.file, config.resolve_interval, Arc::new(setting));
    tokio::spawn(stop.clone().run_until_cancelled_owned(roster.run()));
    Ok((engines, updates))
}
