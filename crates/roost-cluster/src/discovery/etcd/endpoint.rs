//! Addresses of etcd members as operators write them.

/// etcd's client port.
const PORT: u16 = 2379;

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Endpoint {
    /// Reads `http://host:port`, `https://host:port` or `host:port`; the last takes TLS when `tls` says that it is set
    /// up.
    pub(super) fn parse(text: &str, tls: bool) -> Result<Self, String> {
        let fail = |reason: &str| format!("{text:?} is not an address of etcd: {reason}");
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
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            None => PORT,
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
        if self.host.contains(':') {
            format!("{scheme}://[{}]:{}", self.host, self.port)
        } else {
            format!("{scheme}://{}:{}", self.host, self.port)
        }
    }
}
