//! Where the servers are and who we are to them.

use std::fmt;
use std::path::PathBuf;

use crate::discovery::TlsIdentity;

const PORT: u16 = 4222;

/// How to reach NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsConfig {
    /// Servers, tried in turn: `host:port`.
    pub(super) servers: Vec<String>,
    /// Who we are.
    pub(super) auth: NatsAuth,
    /// Whom to trust, if the connection is to be encrypted.
    pub(super) tls: Option<TlsIdentity>,
}

/// Who we are to the server.
#[derive(Clone, PartialEq, Eq)]
pub enum NatsAuth {
    /// Nobody.
    None,
    /// User and password.
    UserPassword(String, String),
    /// A token.
    Token(String),
    /// An NKey: its seed.
    Nkey(String),
    /// A credentials file: a JWT and the seed that goes with it.
    Credentials(PathBuf),
}

/// Secrets do not appear in logs.
impl fmt::Debug for NatsAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NatsAuth::None => "None",
            NatsAuth::UserPassword(..) => "UserPassword(..)",
            NatsAuth::Token(_) => "Token(..)",
            NatsAuth::Nkey(_) => "Nkey(..)",
            NatsAuth::Credentials(_) => "Credentials(..)",
        })
    }
}

/// A server's URL cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not a NATS server such as nats://HOST:PORT or tls://HOST:PORT: {reason}")]
pub struct NatsConfigError {
    url: String,
    reason: &'static str,
}

impl NatsConfig {
    /// Takes URLs, separated by commas. A user in a URL (`nats://USER:PASSWORD@HOST`, or `TOKEN@`) goes before `auth`. The
    /// connection is encrypted if a URL begins with `tls://` or `tls` is given.
    ///
    /// # Errors
    /// A URL that cannot be used.
    pub fn new(urls: &str, auth: NatsAuth, tls: Option<TlsIdentity>) -> Result<Self, NatsConfigError> {
        let mut config = Self { servers: Vec::new(), auth, tls };
        for url in urls.split(',').map(str::trim).filter(|url| !url.is_empty()) {
            config.add(url).map_err(|reason| NatsConfigError { url: redacted(url), reason })?;
        }
        match config.servers.is_empty() {
            true => Err(NatsConfigError { url: redacted(urls), reason: "there is none" }),
            false => Ok(config),
        }
    }

    fn add(&mut self, url: &str) -> Result<(), &'static str> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
        match scheme {
            "nats" => {}
            "tls" => drop(self.tls.get_or_insert_default()),
            _ => return Err("unknown scheme"),
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let host = match rest.rsplit_once('@') {
            None => rest,
            Some((user, host)) => {
                self.auth = match user.split_once(':') {
                    Some((user, password)) => NatsAuth::UserPassword(user.into(), password.into()),
                    None => NatsAuth::Token(user.into()),
                };
                host
            }
        };
        let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
            port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
        });
        if host.is_empty() || host.contains(['/', ' ']) || host.starts_with(':') {
            return Err("no host");
        }
        self.servers.push(if has_port { host.to_owned() } else { format!("{host}:{PORT}") });
        Ok(())
    }
}

/// Without what may be a secret.
fn redacted(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => url.to_owned(),
    }
}
