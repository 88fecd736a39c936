//! Plain SGLang servers, as the options name them.

use anyhow::{Context as _, Result};
use roost_config::Serve;
use roost_hosted::{Config, Named, Part};

/// The servers to host; `None` when workers are discovered.
pub(crate) fn config(options: &Serve) -> Result<Option<Config>> {
    let Some(servers) = &options.sglang else { return Ok(None) };
    let aggregated = servers.aggregated.iter().map(|url| (url, Part::Aggregated));
    let prefill = servers.prefill.iter().map(|(url, port)| (url, Part::Prefill(*port)));
    let decode = servers.decode.iter().map(|url| (url, Part::Decode));
    let named = aggregated
        .chain(prefill)
        .chain(decode)
        .map(|(url, part)| Ok(Named { url: url.parse().with_context(|| part.option())?, part }))
        .collect::<Result<_>>()?;
    Ok(Some(Config {
        named,
        file: servers.file.clone(),
        api_key: servers.api_key.clone(),
        model_path: options.model.path.clone(),
        kv_events: options.router.kv_events,
        probe_interval: servers.probe_interval,
        resolve_interval: servers.resolve_interval,
    }))
}
