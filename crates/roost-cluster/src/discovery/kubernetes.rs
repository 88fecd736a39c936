//! Discovery through Kubernetes: one `DynamoWorkerMetadata` resource per pod, with all records of that pod inside.
//!
//! A record counts while the pod is ready, which its service's EndpointSlice says (or, where several containers of a
//! pod serve, the pod's status), and while it is the pod that wrote the record. Nothing expires: the cluster itself
//! notices that a pod has died, and deletes its resource along with it.
//!
//! Spoken is HTTP/1.1 and JSON over the client that is here anyway: three collections are listed and watched and one
//! resource is applied, which is too little for a client library of eighty packages.

mod api;
mod identity;
mod join;
mod keeper;
mod objects;
mod own;
mod reflector;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::endpoint::Endpoint;
use super::orders::{self, CAPACITY, Command, Orders};
use super::tls::TlsIdentity;
use super::{Discovery, DiscoveryError, Snapshot};
use crate::record::RecordKey;
use api::Api;
pub use identity::{KubernetesMode, PodIdentity};
use keeper::{Keeper, Writer};

/// Port of an API server.
const PORT: u16 = 443;

/// Settings of [`KubernetesDiscovery`].
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The API server, `https://host:port` or `http://host:port`.
    pub server: String,
    /// Namespace of the cluster in which pods and resources are.
    pub namespace: String,
    /// File with a token that says who we are. It is read for every request, since it is replaced now and then.
    pub token: Option<PathBuf>,
    /// For `https`.
    pub tls: TlsIdentity,
    /// What one resource stands for. All participants of a namespace must agree.
    pub mode: KubernetesMode,
    /// The pod of this process; `None` for one that only looks.
    pub pod: Option<PodIdentity>,
}

/// A participant of a store in Kubernetes.
///
/// Owns one task and up to three connections. Dropping the handle takes its records back soon after, as long as the
/// runtime runs; [`KubernetesDiscovery::close`] waits for that. Abandoned records count as long as the pod is ready.
#[derive(Debug)]
pub struct KubernetesDiscovery {
    orders: Orders<mpsc::Sender<Command>>,
    instance: Option<u64>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl KubernetesDiscovery {
    /// Starts to take part; the API server need not be up. Must be called on a runtime.
    ///
    /// # Errors
    /// [`DiscoveryError::Config`] for an address or a namespace that is none, for certificates that cannot be used,
    /// and for a container without a name.
    pub fn open(config: KubernetesConfig) -> Result<Arc<Self>, DiscoveryError> {
        let server = Endpoint::parse(config.server.trim(), "a Kubernetes API server", PORT, true)
            .map_err(DiscoveryError::Config)?;
        let is_name = |name: &str| {
            let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
            !name.is_empty() && name.len() <= 253 && name.bytes().all(allowed)
        };
        let writer = config.pod.map(|pod| Writer { resource: pod.resource(config.mode), pod });
        for name in [Some(&config.namespace), writer.as_ref().map(|writer| &writer.resource)] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                return Err(DiscoveryError::Config(format!("{name:?} is not a name in Kubernetes")));
            }
        }
        if config.mode == KubernetesMode::Container
            && writer.as_ref().is_some_and(|writer| writer.pod.container.is_none())
        {
            let text = "a container that registers for itself needs its name (CONTAINER_NAME)";
            return Err(DiscoveryError::Config(text.to_owned()));
        }
        let tls = if server.tls {
            let tls = config.tls.client_config(b"http/1.1");
            let tls = tls.map_err(|error| {
                DiscoveryError::Config(format!("TLS towards the Kubernetes API server: {error}"))
            })?;
            Some(tls)
        } else {
            None
        };
        let (commands, inbox) = mpsc::channel(CAPACITY);
        let (sender, snapshot) = watch::channel(Snapshot::unread());
        let trouble = Arc::new(Mutex::new(None));
        let instance = writer.as_ref().map(|writer| identity::instance_id(&writer.resource));
        let api = Api { server, tls, token: config.token, namespace: config.namespace };
        let keeper = Keeper::new(api, config.mode, writer, sender, trouble.clone());
        tokio::spawn(keeper.run(inbox));
        Ok(Arc::new(Self { orders: Orders::new(commands, snapshot), instance, trouble }))
    }

    /// Waits until the store has been read for the first time. Cancel safe.
    ///
    /// # Errors
    /// [`DiscoveryError::Unreachable`] with the last failure when `patience` is over.
    pub async fn ready(&self, patience: Duration) -> Result<(), DiscoveryError> {
        orders::first_look(self.orders.watch(), patience, || self.trouble.lock().clone()).await
    }

    /// Takes all records of this handle back and ends its task; the handle refuses everything afterwards.
    pub async fn close(&self) {
        self.orders.close().await;
    }
}

impl Discovery for KubernetesDiscovery {
    /// Waits for the API server as long as it is out of reach.
    fn put(&self, key: RecordKey, value: Bytes) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.orders.put(key, value)
    }

    /// Does not wait for an API server that is out of reach: that is an error, and the deletion is made up for later.
    fn delete(&self, key: RecordKey) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.orders.delete(key)
    }

    fn release(&self, key: RecordKey) {
        self.orders.release(key);
    }

    fn abandon(&self, key: RecordKey) {
        self.orders.abandon(key);
    }

    fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.orders.watch()
    }

    /// Follows from the name of the resource, so there is one worker per pod or container.
    fn lease_id(&self) -> Option<u64> {
        self.instance
    }
}
