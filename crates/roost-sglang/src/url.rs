//! Addresses of servers.

use std::fmt;
use std::str::FromStr;

/// The port of an SGLang server that is started without `--port`.
const DEFAULT_PORT: u16 = 30000;

/// Where an SGLang server listens: `http://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerUrl {
    host: String,
    port: u16,
}

/// Text that is no address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another protocol than HTTP.
    #[error(
        "{0:?}: SGLang servers are reached over http:// only; put a TLS proxy beside the server if it must be https"
    )]
    Scheme(String),
    /// More than host and port, or less.
    #[error("{0:?} is not an address like http://HOST:PORT")]
    Shape(String),
}

impl ServerUrl {
    /// Makes an address of its parts. An IPv6 address has no brackets here.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        ServerUrl { host: host.into(), port }
    }

    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port of the HTTP server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `HOST:PORT`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }
}

/// `HOST:PORT`, with brackets around an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let shape = || UrlError::Shape(text.to_owned());
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(UrlError::Scheme(text.to_owned())),
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(shape)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| shape())?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(shape)?) })
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| shape()))?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || port == 0 || !host.chars().all(is_part) {
            return Err(shape());
        }
        Ok(ServerUrl { host: host.to_owned(), port })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        for (text, shown) in [
            ("http://10.0.0.7:30001", "http://10.0.0.7:30001"),
            ("http://worker-0.sglang.svc:30000/", "http://worker-0.sglang.svc:30000"),
            ("10.0.0.7:30001", "http://10.0.0.7:30001"),
            ("worker", "http://worker:30000"),
            ("http://[fd00::7]:30001", "http://[fd00::7]:30001"),
            ("http://[fd00::7]", "http://[fd00::7]:30000"),
        ] {
            assert_eq!(text.parse::<ServerUrl>().map(|url| url.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for text in [
            "",
            "http://",
            "http://h:0",
            "http://h:99999",
            "http://h:x",
            "http://h:1/v1",
            "http://[::1",
            "http://[::1]9",
            "http://a b:1",
            "http://[h]:1",
            "http://user@h:1",
            "grpc://h:1",
            "https://h:1",
        ] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }
}
