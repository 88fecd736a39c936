//! The discovery store that the options name.

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(feature = "kubernetes"))]
use anyhow::bail;
use anyhow::{Context, Result};
#[cfg(feature = "kubernetes")]
use roost_cluster::KubernetesDiscovery;
use roost_cluster::{
    Discovery, EtcdConfig, EtcdDiscovery, FileDiscovery, FileDiscoveryConfig, MemoryDiscovery, Pem,
    TlsIdentity,
};
#[cfg(feature = "kubernetes")]
use roost_config::KubernetesOptions;
use roost_config::{DiscoveryBackend, EtcdOptions};
use tokio_util::sync::CancellationToken;

/// Opens participants of one store.
#[derive(Debug)]
pub(crate) enum Store {
    /// Several workers of a process may share a participant.
    Shared(Arc<dyn Discovery>),
    /// In etcd a worker's id is that of its participant's lease.
    Etcd(Box<EtcdOptions>),
    /// In Kubernetes it follows from its pod.
    #[cfg(feature = "kubernetes")]
    Kubernetes(Box<KubernetesOptions>),
}

impl Store {
    /// The store that the options name; a folder is looked at every `poll`, when that is given.
    pub(crate) fn new(backend: &DiscoveryBackend, poll: Option<Duration>) -> Result<Self> {
        Ok(match backend {
            DiscoveryBackend::Etcd(options) => Store::Etcd(options.clone()),
            #[cfg(feature = "kubernetes")]
            DiscoveryBackend::Kubernetes(options) => Store::Kubernetes(options.clone()),
            #[cfg(not(feature = "kubernetes"))]
            DiscoveryBackend::Kubernetes(_) => bail!("this build knows no Kubernetes (--discovery-backend)"),
            DiscoveryBackend::Memory => Store::Shared(MemoryDiscovery::new()),
            DiscoveryBackend::File(root) => {
                let mut config = FileDiscoveryConfig::new(root);
                config.poll = poll.unwrap_or(config.poll);
                let store = FileDiscovery::open(config)
                    .with_context(|| format!("cannot use {} for discovery (DYN_FILE_KV)", root.display()))?;
                Store::Shared(store)
            }
        })
    }

    /// Whether a process can register only one worker.
    pub(crate) fn is_one_workers(&self) -> bool {
        match self {
            Store::Shared(_) | Store::Etcd(_) => false,
            #[cfg(feature = "kubernetes")]
            Store::Kubernetes(_) => true,
        }
    }

    /// A participant. With etcd and Kubernetes this waits until it is there, for as long as the options say or until
    /// `shutdown`.
    pub(crate) async fn participant(&self, shutdown: &CancellationToken) -> Result<Arc<dyn Discovery>> {
        match self {
            Store::Shared(store) => Ok(Arc::clone(store)),
            Store::Etcd(options) => {
                let store =
                    EtcdDiscovery::open(etcd(options)).context("etcd cannot be used for discovery")?;
                let ready = shutdown.run_until_cancelled(store.ready(options.startup_timeout)).await;
                ready.context("stopped while waiting for etcd")?.with_context(|| {
                    format!(
                        "no etcd at {} within {:?} (ETCD_ENDPOINTS, ETCD_STARTUP_CONNECT_TIMEOUT_SECONDS; discovery \
                         through a folder: DYN_DISCOVERY_BACKEND=file)",
                        options.endpoints.join(","),
                        options.startup_timeout
                    )
                })?;
                Ok(store)
            }
            #[cfg(feature = "kubernetes")]
            Store::Kubernetes(options) => {
                let store = KubernetesDiscovery::open(crate::kubernetes::config(options)?)
                    .context("Kubernetes cannot be used for discovery")?;
                let ready = shutdown.run_until_cancelled(store.ready(options.startup_timeout)).await;
                ready.context("stopped while waiting for Kubernetes")?.with_context(|| {
                    let limit = options.startup_timeout;
                    format!("the Kubernetes API was not read within {limit:?} (--kube-startup-timeout-secs)")
                })?;
                Ok(store)
            }
        }
    }
}

fn etcd(options: &EtcdOptions) -> EtcdConfig {
    EtcdConfig {
        lease_ttl: options.lease_ttl,
        user: options.user.clone(),
        tls: TlsIdentity {
            ca: options.ca.as_deref().map(Pem::from_option),
            client: options
                .client
                .as_ref()
                .map(|(certificate, key)| (Pem::from_option(certificate), Pem::from_option(key))),
        },
        ping_interval: options.ping_interval,
        ping_timeout: options.ping_timeout,
        ..EtcdConfig::new(options.endpoints.clone())
    }
}
