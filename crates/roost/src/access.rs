//! Who may come in, read from files at the start and again as they change.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use roost_config::{DoorOptions, KeyOptions};
use roost_frontend::{ApiKeys, CorsOrigins};
use roost_wire::{ListenTls, TlsFiles};
use tokio::time;

/// How often the files are read again.
const RENEWAL: Duration = Duration::from_secs(60);

/// Protocols on top of TLS, the best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What the HTTP listener lets in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<Arc<ListenTls>>,
    pub(crate) api_keys: Option<Arc<ApiKeys>>,
    pub(crate) admin_keys: Option<Arc<ApiKeys>>,
    pub(crate) cors: Option<CorsOrigins>,
}

impl Access {
    /// Reads the files. Must be called on a runtime, which then looks after renewed ones.
    pub(crate) fn open(o: &DoorOptions) -> Result<Self> {
        let files = TlsFiles {
            cert: o.tls_cert.clone(),
            key: o.tls_key.clone(),
            client_ca: o.tls_client_ca.clone(),
            handshake_timeout: o.tls_handshake_timeout,
            ..TlsFiles::default()
        };
        let tls = ListenTls::load(&files, &PROTOCOLS).context("TLS of the HTTP listener (--tls-*)")?;
        let cors = o.cors_origins.as_deref().map(CorsOrigins::parse).transpose();
        let access = Access {
            tls: tls.map(Arc::new),
            api_keys: keys(&o.api_keys).context("keys of clients (--api-key-file)")?,
            admin_keys: keys(&o.admin_keys).context("keys of operators (--admin-api-key-file)")?,
            cors: cors.map_err(|part| anyhow!("--http-cors-origins: `{part}` is not an origin"))?,
        };
        if access.tls.is_some() {
            tracing::info!(mutual = o.tls_client_ca.is_some(), "TLS on the HTTP listener");
        }
        let has_files = o.api_keys.file.is_some() || o.admin_keys.file.is_some();
        if access.tls.is_some() || has_files {
            tokio::spawn(access.clone().renew());
        }
        Ok(access)
    }

    async fn renew(self) {
        loop {
            time::sleep(RENEWAL).await;
            let reading = self.clone();
            if tokio::task::spawn_blocking(move || reading.refresh()).await.is_err() {
                // The runtime is shutting down.
                return;
            }
        }
    }

    fn refresh(&self) {
        if let Some(Err(error)) = self.tls.as_ref().map(|tls| tls.refresh()) {
            tracing::warn!(%error, "renewed certificate not usable, keeping the one before");
        }
        for keys in [&self.api_keys, &self.admin_keys].into_iter().flatten() {
            if let Err(error) = keys.refresh() {
                tracing::warn!(%error, "renewed keys not usable, keeping those before");
            }
        }
    }
}

fn keys(o: &KeyOptions) -> Result<Option<Arc<ApiKeys>>> {
    if !o.is_some() {
        return Ok(None);
    }
    Ok(Some(Arc::new(ApiKeys::new(o.key.as_deref(), o.file.as_deref())?)))
}
