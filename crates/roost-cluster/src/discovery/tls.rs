//! TLS towards stores: which certificates to trust, and with which one to answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Where distributions keep the certificates that a host trusts.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A certificate or key in PEM: the text itself, or the file that holds it.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text.
    Text(String),
    /// A file.
    File(PathBuf),
}

impl Pem {
    /// Takes an option's value: what begins like PEM is PEM, anything else a path.
    ///
    /// Dynamo documents paths and reads the text itself; both are meant by somebody.
    pub fn from_option(value: &str) -> Self {
        if value.trim_start().starts_with("-----BEGIN") {
            Pem::Text(value.to_owned())
        } else {
            Pem::File(value.into())
        }
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Pem::Text(text) => Ok(text.clone().into_bytes()),
            Pem::File(path) => {
                std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
            }
        }
    }
}

/// A key must not appear in a log.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pem::Text(_) => f.write_str("Text(..)"),
            Pem::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Whom a store's client trusts and who it says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsIdentity {
    /// Certificates to trust instead of the system's.
    pub ca: Option<Pem>,
    /// Own certificate and its key, for stores that ask for one.
    pub client: Option<(Pem, Pem)>,
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not what was expected in it.
    #[error("{what}: {reason}")]
    Content {
        /// Certificate or key.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No certificates to trust.
    #[error("no trusted certificates are configured, and this system has none in the usual places")]
    NoRoots,
}

impl TlsIdentity {
    /// Builds the client side of TLS 1.2 and 1.3 for a protocol such as `h2`.
    ///
    /// # Errors
    /// A file that cannot be read, or what it holds cannot be used.
    pub fn client_config(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
        let content =
            |what| move |error: &dyn std::fmt::Display| TlsError::Content { what, reason: error.to_string() };
        let mut roots = RootCertStore::empty();
        let trusted = match &self.ca {
            Some(ca) => ca.read()?,
            None => system_roots()?,
        };
        for certificate in certificates(&trusted, "trusted certificates")? {
            // A bundle may hold one that is not understood; it is useless only if nothing is left.
            let _ignored = roots.add(certificate);
        }
        if roots.is_empty() {
            return Err(TlsError::NoRoots);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| content("TLS versions")(&error))?
            .with_root_certificates(roots);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(&certificate.read()?, "client certificate")?;
                let key = PrivateKeyDer::from_pem_slice(&key.read()?)
                    .map_err(|error| content("client key")(&error))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| content("client certificate")(&error))?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| TlsError::Content { what, reason: error.to_string() })?;
    if found.is_empty() {
        return Err(TlsError::Content { what, reason: "no certificate in it".to_owned() });
    }
    Ok(found)
}

fn system_roots() -> Result<Vec<u8>, TlsError> {
    let found = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.is_file());
    Pem::File(found.ok_or(TlsError::NoRoots)?.to_owned()).read()
}
