//! Who may come in.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::values::Values;

/// Who may come in: TLS of the HTTP listener, API keys, browsers.
#[derive(Debug, Clone)]
pub struct DoorOptions {
    /// Certificate chain of the HTTP listener, PEM.
    pub tls_cert: Option<PathBuf>,
    /// Private key to that, PEM.
    pub tls_key: Option<PathBuf>,
    /// Authorities that clients must be certified by, PEM.
    pub tls_client_ca: Option<PathBuf>,
    /// Time for a TLS handshake.
    pub tls_handshake_timeout: Duration,
    /// Keys of clients.
    pub api_keys: KeyOptions,
    /// Keys of operators.
    pub admin_keys: KeyOptions,
    /// Origins whose web pages may call, separated by commas, or `*`.
    pub cors_origins: Option<String>,
    /// Socket in the file system to listen on as well.
    pub unix_socket: Option<PathBuf>,
}

/// Where keys come from; neither: there are none.
#[derive(Clone)]
pub struct KeyOptions {
    /// The key itself.
    pub key: Option<String>,
    /// A file of keys.
    pub file: Option<PathBuf>,
}

impl KeyOptions {
    /// Whether there are keys.
    pub fn is_some(&self) -> bool {
        self.key.is_some() || self.file.is_some()
    }
}

/// A key must not appear in a log.
impl fmt::Debug for KeyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyOptions").field("file", &self.file).finish_non_exhaustive()
    }
}

impl DoorOptions {
    pub(super) fn of(values: &Values) -> Self {
        let keys = |key: &str, file: &str| KeyOptions { key: values.text(key), file: values.path(file) };
        DoorOptions {
            tls_cert: values.path("tls-cert-path"),
            tls_key: values.path("tls-key-path"),
            tls_client_ca: values.path("tls-client-ca-cert-path"),
            tls_handshake_timeout: values.duration("tls-handshake-timeout-secs"),
            api_keys: keys("api-key", "api-key-file"),
            admin_keys: keys("admin-api-key", "admin-api-key-file"),
            cors_origins: values.text("http-cors-origins"),
            unix_socket: values.path("http-unix-socket"),
        }
    }
}
