//! Where the cluster's words become the wire's: targets, codecs, and recovery queries over the request plane.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use roost_cluster::{RecoveryError, RecoverySource};
use roost_wire::{Call, Client};

pub(crate) fn codec(codec: roost_cluster::Codec) -> roost_wire::Codec {
    match codec {
        roost_cluster::Codec::Json => roost_wire::Codec::Json,
        roost_cluster::Codec::Msgpack => roost_wire::Codec::Msgpack,
    }
}

pub(crate) fn target(target: &roost_cluster::Target) -> roost_wire::Target {
    roost_wire::Target {
        address: target.address,
        path: target.path.as_str().into(),
        codec: codec(target.codec),
    }
}

/// Asks a worker's KV query endpoint over the request plane.
#[derive(Debug, Clone)]
pub struct PlaneRecovery(Arc<Client>);

impl PlaneRecovery {
    /// Uses `client` for the queries.
    pub fn new(client: Arc<Client>) -> Self {
        PlaneRecovery(client)
    }
}

impl RecoverySource for PlaneRecovery {
    fn query(
        &self,
        to: roost_cluster::Target,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, RecoveryError>> {
        let (client, to) = (Arc::clone(&self.0), target(&to));
        Box::pin(async move {
            let id = uuid::Uuid::new_v4().to_string();
            let items = client
                .query(&to, Call::new(&id, request))
                .await
                .map_err(|error| RecoveryError(error.to_string()))?;
            items.into_iter().next().ok_or_else(|| RecoveryError("the worker answered nothing".into()))
        })
    }
}
