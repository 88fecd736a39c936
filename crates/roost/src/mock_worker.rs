//! `roost mock-worker`: simulated engines on the real plane.

use std::process::ExitCode;

use anyhow::{Context, Result};
use roost_config::{MockWorker, ProcessOptions};

use crate::store::Store;
use crate::{banner, fleet, serve, settings, signals};

/// Runs the workers until a signal, then drains them.
pub(crate) fn run(options: MockWorker) -> Result<ExitCode> {
    roost_telemetry::logging::init(&options.log.filter, settings::log_format(&options.log))?;
    banner::show(&options.effective, &options.notices);
    let process = ProcessOptions { worker_threads: None, max_blocking_threads: None, fd_limit_target: None };
    serve::runtime(&process)?.block_on(async {
        let shutdown = signals::shutdown()?;
        let store = Store::new(&options.plane.discovery, None)?;
        let files = tempfile::tempdir().context("cannot make a folder for the model")?;
        let fleet = fleet::start(&options, files.path(), &store, &shutdown).await?;
        shutdown.cancelled().await;
        fleet.drain().await;
        Ok(ExitCode::SUCCESS)
    })
}
