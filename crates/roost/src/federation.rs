//! Metrics of workers on the frontend's own page: fetched beside the requests, never while somebody scrapes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use roost_config::FederationOptions;
use roost_sglang::{Server, ServerUrl};
use roost_telemetry::{Federation, Registry};
use tokio_util::sync::CancellationToken;

/// Longest wait for one page.
const LIMIT: Duration = Duration::from_secs(5);
/// What is taken over: the engines' families, under their own names.
const PREFIX: &str = "sglang:";

/// Begins to fetch, until `stop`. Must be called on a runtime.
pub(crate) fn start(
    options: &FederationOptions,
    registry: &mut Registry,
    stop: &CancellationToken,
) -> Result<()> {
    if options.servers.is_empty() {
        return Ok(());
    }
    let urls: Vec<ServerUrl> = options
        .servers
        .iter()
        .map(|server| server.parse().context("--metrics-federate"))
        .collect::<Result<_>>()?;
    let federation = Federation::new(PREFIX, urls.iter().map(ServerUrl::authority));
    registry.federate(federation.clone());
    for (number, url) in urls.into_iter().enumerate() {
        let server = Server::new(url, None)?;
        let fetching = fetch(server, federation.clone(), number, options.interval);
        tokio::spawn(stop.clone().run_until_cancelled_owned(fetching));
    }
    Ok(())
}

async fn fetch(server: Server, federation: Federation, number: usize, interval: Duration) {
    let mut complained = false;
    loop {
        let page = server.metrics(LIMIT).await;
        let taken = match &page {
            Ok(page) => federation.put(number, Some(page)).map_err(|refused| refused.to_string()),
            Err(error) => {
                let _forgotten = federation.put(number, None);
                Err(error.to_string())
            }
        };
        match taken {
            Ok(()) => complained = false,
            Err(error) if !complained => {
                complained = true;
                tracing::warn!(server = %server.url(), error, "no metrics from this worker");
            }
            Err(_) => {}
        }
        tokio::time::sleep(interval).await;
    }
}
