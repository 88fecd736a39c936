//! Addresses of stores as operators write them.

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Endpoint {
    /// Reads `http://host:port`, `https://host:port` or `host:port`; the last takes TLS when `tls` says that it is set
    /// up. `store` is what stands there, and `port` its usual port.
    pub(super) fn parse(text: &str, store: &str, port: u16, tls: bool) -> Result<Self, String> {
        let fail = |reason: &str| format!("{text:?} is not an address of {store}: {reason}");
        let (tls, rest) = match text.split_once("://") {
            None => (tls, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => return Err(fail(&format!("the scheme {scheme} is neither http nor https"))),
        };
        let authority = rest.trim_end_matches('/');
        if authority.contains(['/', '@', '?', ' ']) {
            return Err(fail("only a host and a port are expected"));
        }
        let (host, given) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match given {
            None => port,
            Some(port) => port.parse().map_err(|_| fail("the port is not a number up to 65535"))?,
        };
        if host.is_empty() {
            return Err(fail("no host"));
        }
        Ok(Self { tls, host: host.to_owned(), port })
    }

    /// Scheme and authority, as requests name them.
    pub(super) fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Host and port.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}
