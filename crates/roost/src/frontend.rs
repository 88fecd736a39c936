//! Questions to a running frontend.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use roost_cluster::discovery::{Pem, TlsIdentity};
use roost_config::Frontend as Options;
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;

use crate::exchange;

/// Longest wait for the frontend.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;

/// A running frontend, and the key to show it.
#[derive(Debug)]
pub(crate) struct Frontend {
    place: Place,
    url: String,
    key: Option<String>,
}

/// Where a frontend listens.
#[derive(Debug)]
enum Place {
    /// A host with a port.
    Network(String),
    /// The same with TLS.
    Tls(String, Arc<ClientConfig>),
    /// A socket in the file system.
    Socket(PathBuf),
}

impl Frontend {
    pub(crate) fn of(options: &Options) -> Result<Self> {
        Ok(Frontend { place: Place::of(options)?, url: options.url.clone(), key: options.api_key.clone() })
    }

    /// Asks for a document; what the frontend refuses is an error with its words.
    pub(crate) async fn ask(&self, path: &str) -> Result<Value> {
        let asked = tokio::time::timeout(PATIENCE, self.place.get(path, self.key.as_deref())).await;
        let (status, answer) = asked.with_context(|| format!("{} does not answer", self.url))??;
        if status != 200 {
            let text = answer["error"]["message"].as_str().or_else(|| answer["message"].as_str());
            bail!("{}", text.map_or_else(|| format!("{} answered {status}", self.url), str::to_owned));
        }
        Ok(answer)
    }
}

impl Place {
    fn of(options: &Options) -> Result<Self> {
        let url = &options.url;
        if let Some(path) = url.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                bail!("--url: `{url}` names no socket");
            }
            return Ok(Self::Socket(path.into()));
        }
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        match scheme {
            "http" => Ok(Self::Network(authority(url, rest, 80)?)),
            "https" => {
                let pem = |path: &PathBuf| Pem::File(path.clone());
                let identity = TlsIdentity {
                    ca: options.ca.as_ref().map(pem),
                    client: options.certificate.as_ref().map(|(cert, key)| (pem(cert), pem(key))),
                };
                Ok(Self::Tls(authority(url, rest, 443)?, identity.client_config(b"http/1.1")?))
            }
            _ => bail!("--url: {scheme} is not supported; http, https and unix are"),
        }
    }

    async fn get(&self, path: &str, key: Option<&str>) -> Result<(u16, Value)> {
        let host = match self {
            Self::Network(authority) | Self::Tls(authority, _) => authority,
            Self::Socket(_) => "localhost",
        };
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{key}connection: close\r\n\r\n");
        match self {
            Self::Network(authority) => exchange::exchange(authority, request).await,
            Self::Tls(authority, tls) => {
                exchange::exchange_over_tls(authority, request, Arc::clone(tls)).await
            }
            Self::Socket(socket) => exchange::exchange_at_socket(socket, request).await,
        }
    }
}

/// Host and port of what follows a URL's scheme.
fn authority(url: &str, rest: &str, usual_port: u16) -> Result<String> {
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() {
        bail!("--url: `{url}` names no host");
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    Ok(if has_port { authority.to_owned() } else { format!("{authority}:{usual_port}") })
}

/// Percent-encodes what has a meaning in a path.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}
