use std::{
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{net::TcpStream, time};
use tokio_rustls::{
    TlsAcceptor, TlsConnector, TlsStream,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
        client::{
            ResolvesClientCert,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::{
            CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
        },
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
        server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
        sign::CertifiedKey,
    },
};

/// The files and settings of TLS on the worker plane, as the peer's variables name them.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate chain of listeners, PEM; with `key` it turns TLS on for them.
    pub cert: Option<PathBuf>,
    /// Private key of listeners, PEM.
    pub key: Option<PathBuf>,
    /// Authorities that dialled peers must be certified by; turns TLS on for dialers.
    pub ca: Option<PathBuf>,
    /// Dial with TLS but believe any certificate.
    pub insecure: bool,
    /// Name that dialled peers must be certified for, instead of their address.
    pub server_name: Option<String>,
    /// Certificate chain to show to listeners that ask for one, PEM.
    pub client_cert: Option<PathBuf>,
    /// Private key to that, PEM.
    pub client_key: Option<PathBuf>,
    /// Authorities that peers which dial must be certified by: mutual TLS.
    pub client_ca: Option<PathBuf>,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
}

impl Default for TlsFiles {
    fn default() -> Self {
        Self {
            cert: None,
            key: None,
            ca: None,
            insecure: false,
            server_name: None,
            client_cert: None,
            client_key: None,
            client_ca: None,
            handshake_timeout: Duration::from_secs(3),
        }
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of two files that only make sense together.
    #[error("TLS needs both {0} and {1}, or neither")]
    HalfPair(&'static str, &'static str),
    /// A listener is to check certificates without having one.
    #[error("checking the certificates of those who connect needs a certificate and key of our own")]
    NoServerIdentity,
    /// A certificate to show, but nothing by which to check the other side's.
    #[error("TLS to peers needs a CA certificate, or the insecure switch")]
    NoTrust,
    /// The file cannot be used.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Not a name that a certificate can be for.
    #[error("not a server name: {0:?}")]
    ServerName(String),
    /// The library refuses the settings.
    #[error("TLS: {0}")]
    Settings(#[from] rustls::Error),
}

/// How to dial with TLS.
pub(crate) struct DialTls {
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
    identity: Option<Arc<Identity>>,
    timeout: Duration,
}

/// How to accept with TLS.
pub struct ListenTls {
    acceptor: TlsAcceptor,
    identity: Arc<Identity>,
    timeout: Duration,
}

impl DialTls {
    /// `None` when the files do not ask for TLS.
    pub(super) fn load(files: &TlsFiles) -> Result<Option<Self>, TlsError> {
        let identity = Identity::load(
            ("the client certificate", files.client_cert.as_deref()),
            ("the client key", files.client_key.as_deref()),
        )?;
        if files.ca.is_none() && !files.insecure {
            return if identity.is_some() { Err(TlsError::NoTrust) } else { Ok(None) };
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &files.ca {
            // The switch wins over a CA, as it does for the peer.
            Some(ca) if !files.insecure => builder.with_root_certificates(roots(ca)?),
            _ => {
                let anyone = Arc::new(Anyone(provider.signature_verification_algorithms));
                builder.dangerous().with_custom_certificate_verifier(anyone)
            }
        };
        let config = match &identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::clone(identity) as _),
            None => builder.with_no_client_auth(),
        };
        let name = match &files.server_name {
            Some(name) => {
                Some(ServerName::try_from(name.clone()).map_err(|_| TlsError::ServerName(name.clone()))?)
            }
            None => None,
        };
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Some(Self { connector, name, identity, timeout: files.handshake_timeout }))
    }

    pub(super) async fn connect(
        &self,
        address: SocketAddr,
        socket: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = self.name.clone().unwrap_or_else(|| ServerName::IpAddress(address.ip().into()));
        let handshake = time::timeout(self.timeout, self.connector.connect(name, socket));
        Ok(TlsStream::Client(handshake.await.map_err(|_| late())??))
    }

    pub(super) fn refresh(&self) -> Result<(), TlsError> {
        self.identity.as_ref().map_or(Ok(()), |identity| identity.refresh())
    }
}

impl ListenTls {
    /// Reads the listener's part of the files; `None` when they do not ask for TLS. `protocols` are offered to clients
    /// that ask which one to speak, the best first.
    ///
    /// # Errors
    /// A file is missing, holds nothing of use, or lacks its counterpart.
    pub fn load(files: &TlsFiles, protocols: &[&[u8]]) -> Result<Option<Self>, TlsError> {
        let identity =
            Identity::load(("the certificate", files.cert.as_deref()), ("the key", files.key.as_deref()))?;
        let Some(identity) = identity else {
            return if files.client_ca.is_some() { Err(TlsError::NoServerIdentity) } else { Ok(None) };
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &files.client_ca {
            Some(ca) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider)
                    .build()
                    .map_err(|error| unusable(ca, error))?;
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&identity) as _);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Some(Self { acceptor, identity, timeout: files.handshake_timeout }))
    }

    /// Shakes hands with a client that has connected, within the time for it.
    ///
    /// # Errors
    /// The client is too slow, speaks something else, or is not certified where that is asked for.
    pub async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = time::timeout(self.timeout, self.acceptor.accept(socket));
        Ok(TlsStream::Server(handshake.await.map_err(|_| late())??))
    }

    /// Reads certificate and key again, for they are replaced from time to time. What cannot be read leaves the old
    /// ones in use. Blocks on files.
    ///
    /// # Errors
    /// A file is missing or holds nothing of use.
    pub fn refresh(&self) -> Result<(), TlsError> {
        self.identity.refresh()
    }
}

/// A certificate with its key, replaced when the files are.
struct Identity {
    cert: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Identity {
    fn load(
        (cert_is, cert): (&'static str, Option<&Path>),
        (key_is, key): (&'static str, Option<&Path>),
    ) -> Result<Option<Arc<Self>>, TlsError> {
        match (cert, key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Ok(Some(Arc::new(Self {
                current: RwLock::new(Arc::new(certified_key(cert, key)?)),
                cert: cert.to_owned(),
                key: key.to_owned(),
            }))),
            _ => Err(TlsError::HalfPair(cert_is, key_is)),
        }
    }

    fn refresh(&self) -> Result<(), TlsError> {
        let fresh = certified_key(&self.cert, &self.key)?;
        *self.current.write() = Arc::new(fresh);
        Ok(())
    }

    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read())
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Believes every certificate, though not a forged handshake.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

fn certified_key(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert)?;
    let pem = fs::read(key).map_err(|error| unusable(key, error))?;
    let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| unusable(key, error))?;
    let provider: CryptoProvider = ring::default_provider();
    CertifiedKey::from_der(chain, private, &provider).map_err(|error| unusable(key, error))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(store)
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = fs::read(path).map_err(|error| unusable(path, error))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(path, error))?;
    if found.is_empty() {
        return Err(unusable(path, "no certificate in it"));
    }
    Ok(found)
}

fn unusable(path: &Path, why: impl fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "TLS handshake took too long")
}

impl fmt::Debug for DialTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialTls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ListenTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenTls").finish_non_exhaustive()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("cert", &self.cert).finish_non_exhaustive()
    }
}
