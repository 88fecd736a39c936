//! Families of workers on our page.

use std::time::Duration;

use anyhow::Result;
use roost_sglang::{Server, ServerUrl};
use roost_telemetry::{Federation, Registry};
use roost_tests::{Options, Peers};
use tempfile::TempDir;

/// What `--metrics-federate` fetches from the system port of an unmodified Dynamo runtime, where the engine's families stand
/// among those of the runtime, becomes part of our page.
#[tokio::test]
async fn a_dynamo_workers_system_port() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut options = Options::new(0);
    options.store = Some(store.clone());
    let cluster = options.start().await?;
    let (worker, address) = peers.worker_with_metrics(&store)?;
    let url: ServerUrl = format!("http://{address}").parse()?;
    let mut registry = Registry::default();
    let federation = Federation::new("sglang:", [url.authority()]);
    registry.federate(federation.clone());
    let server = Server::new(url, None)?;
    let came = cluster
        .until("the engine's families", async || {
            let page = server.metrics(Duration::from_secs(5)).await;
            federation.put(0, page.as_deref().ok())?;
            Ok(page.is_ok_and(|page| page.contains("sglang:")))
        })
        .await;
    assert!(came.is_ok(), "{}", worker.output());
    let page = String::from_utf8(registry.encode())?;
    for line in [
        "# TYPE sglang:token_usage gauge".to_owned(),
        format!("sglang:token_usage{{worker=\"{address}\",model_name=\"m\"}} 0.25"),
        "# TYPE sglang:queue_time_seconds histogram".to_owned(),
        format!("sglang:queue_time_seconds_bucket{{worker=\"{address}\",le=\"1.0\"}} 1.0"),
        format!("sglang:queue_time_seconds_count{{worker=\"{address}\"}} 1.0"),
    ] {
        assert!(page.lines().any(|other| other == line), "no `{line}` in\n{page}");
    }
    assert!(!page.contains("dynamo_component_requests_total"), "the runtime's own families stay there");
    Ok(())
}
