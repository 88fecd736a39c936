//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends at once.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first signal cancels.
pub(crate) fn shutdown() -> Result<CancellationToken> {
    let mut term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        let first = tokio::select! { _ = term.recv() => "SIGTERM", _ = int.recv() => "SIGINT" };
        tracing::info!(signal = first, "shutting down; a second signal ends at once");
        asked.cancel();
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        #[expect(clippy::exit, reason = "the operator asked twice")]
        std::process::exit(1);
    });
    Ok(token)
}
