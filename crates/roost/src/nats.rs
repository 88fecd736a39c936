//! The connection to NATS, if events go that way.

use anyhow::Result;
use roost_cluster::discovery::{Pem, TlsIdentity};
use roost_cluster::{NatsAuth, NatsClient, NatsConfig};
use roost_config::NatsOptions;
use tokio_util::sync::CancellationToken;

/// Starts the connection. It is made in the background and made again whenever it is lost.
pub(crate) fn connect(options: &NatsOptions, stop: &CancellationToken) -> Result<NatsClient> {
    // Dynamo's order, and what it says when nothing is configured.
    let auth = if let Some((user, password)) = &options.user {
        NatsAuth::UserPassword(user.clone(), password.clone())
    } else if let Some(token) = &options.token {
        NatsAuth::Token(token.clone())
    } else if let Some(seed) = &options.nkey {
        NatsAuth::Nkey(seed.clone())
    } else if let Some(path) = &options.credentials {
        NatsAuth::Credentials(path.clone())
    } else {
        NatsAuth::UserPassword("user".to_owned(), "user".to_owned())
    };
    let tls = (options.ca.is_some() || options.client.is_some()).then(|| TlsIdentity {
        ca: options.ca.clone().map(Pem::File),
        client: options.client.clone().map(|(certificate, key)| (Pem::File(certificate), Pem::File(key))),
    });
    Ok(NatsClient::start(NatsConfig::new(&options.servers, auth, tls)?, stop.clone()))
}
