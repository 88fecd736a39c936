use std::{net::SocketAddr, sync::Arc};

use crate::Codec;

/// An endpoint of one worker instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Address of the worker's request listener.
    pub address: SocketAddr,
    /// Dispatch key at that address, byte for byte as the worker registered it.
    pub path: Arc<str>,
    /// Codec of requests and answers.
    pub codec: Codec,
}

/// An address that is not of the form `IP:PORT/PATH`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a worker address: {0:?}")]
pub struct TargetError(String);

impl Target {
    /// Reads the form found in instance records, `IP:PORT/PATH`, optionally after `tcp://`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str, codec: Codec) -> Result<Self, TargetError> {
        let plain = text.strip_prefix("tcp://").unwrap_or(text);
        plain
            .split_once('/')
            .filter(|(_, path)| !path.is_empty())
            .and_then(|(address, path)| Some((address.parse().ok()?, path)))
            .map(|(address, path)| Self { address, path: Arc::from(path), codec })
            .ok_or_else(|| TargetError(text.to_owned()))
    }

    /// The dispatch key of an endpoint of an instance, as workers build it.
    #[must_use]
    pub fn path(instance_id: u64, namespace: &str, component: &str, endpoint: &str) -> String {
        let escape = |segment: &str| segment.replace('%', "%25").replace('/', "%2F");
        format!("{instance_id:x}/{}/{}/{}", escape(namespace), escape(component), escape(endpoint))
    }
}
