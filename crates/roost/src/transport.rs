//! The transport of the worker plane: plain, or TLS whose certificates are read again as they are renewed.

use std::time::Duration;

use anyhow::{Context, Result};
use roost_config::PlaneTls;
use roost_wire::{TlsFiles, Transport};
use tokio::time;

/// How often renewed certificates are looked for.
const RENEWAL: Duration = Duration::from_secs(60);

/// Reads the files. Must be called on a runtime, which then looks after renewed ones.
pub(crate) fn plane(o: &PlaneTls) -> Result<Transport> {
    let files = TlsFiles {
        cert: o.cert.clone(),
        key: o.key.clone(),
        ca: o.ca.clone(),
        insecure: o.insecure,
        server_name: o.server_name.clone(),
        client_cert: o.client_cert.clone(),
        client_key: o.client_key.clone(),
        client_ca: o.client_ca.clone(),
        handshake_timeout: o.handshake_timeout,
    };
    let transport = Transport::tls(&files).context("TLS on the worker plane (DYN_TCP_TLS_*)")?;
    match (transport.listens_with_tls(), transport.dials_with_tls()) {
        (false, false) => return Ok(transport),
        (true, true) => tracing::info!(mutual = o.client_ca.is_some(), "TLS on the worker plane"),
        (true, false) => tracing::warn!(
            "the worker plane expects TLS from those who connect and connects without: set DYN_TCP_TLS_CA_CERT_PATH"
        ),
        (false, true) => tracing::warn!(
            "the worker plane connects with TLS and listens without: set DYN_TCP_TLS_CERT_PATH and _KEY_PATH"
        ),
    }
    tokio::spawn(renew(transport.clone()));
    Ok(transport)
}

async fn renew(transport: Transport) {
    loop {
        time::sleep(RENEWAL).await;
        let reading = transport.clone();
        match tokio::task::spawn_blocking(move || reading.refresh()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "renewed certificate not usable, keeping the one before")
            }
            // The runtime is shutting down.
            Err(_) => return,
        }
    }
}
