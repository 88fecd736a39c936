//! Plain SGLang servers as the workers of a frontend: who they are, and their engines in this process.
//!
//! Servers are named by options and a file (`members`, pure), found behind their names (`roster`), watched one by one
//! (`member`) and handed to the frontend like discovered workers: their records go into a store of this process, their
//! changes behind the cluster's updates (`tap`), their requests to their engines (`hosted`).

mod hosted;
mod member;
mod members;
mod model;
mod roster;
mod tap;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use roost_cluster::{Discovery, Update};
use roost_config::SglangOptions;
use roost_frontend::HostedEngines;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use hosted::Hosted;
use member::Setting;
use roster::Roster;

pub(crate) use model::{files, watch_for};

/// Starts looking after the servers. Returns the engines, and the updates with what the servers say of their caches.
pub(crate) fn start(
    options: &SglangOptions,
    model_path: Option<std::path::PathBuf>,
    kv_events: bool,
    discovery: &Arc<dyn Discovery>,
    updates: mpsc::Receiver<Update>,
    stop: &CancellationToken,
) -> Result<(Arc<dyn HostedEngines>, mpsc::Receiver<Update>)> {
    let named = members::named(options)?;
    if let Some(file) = &options.file {
        // A file that cannot be read at the start is a mistake; later it is an accident.
        roster::read(file).with_context(|| format!("{} (--sglang-file)", file.display()))?;
    }
    let hosted = Arc::new(Hosted::default());
    let (tap, updates) = tap::start(updates, stop);
    let setting = Setting {
        model_path,
        kv_events,
        api_key: options.api_key.clone(),
        probe_interval: options.probe_interval,
        discovery: Arc::clone(discovery),
        hosted: Arc::clone(&hosted),
        tap,
    };
    let roster = Roster::new(named, options.file.clone(), options.resolve_interval, Arc::new(setting));
    tokio::spawn(stop.clone().run_until_cancelled_owned(roster.run()));
    Ok((hosted, updates))
}
