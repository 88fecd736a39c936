//! Whom a card may make this frontend ask.
//!
//! Whoever can write a card chooses a URL. Workers have addresses of their network; addresses that reach something else
//! from wherever they are used, above all the metadata service of a cloud (169.254.169.254), are never asked. The address
//! that was looked at is the one that is connected to, so a name cannot change its meaning in between.

use std::net::{IpAddr, SocketAddr};

/// The addresses of a host that may be asked.
pub(super) async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| error.to_string())?;
    let (fit, unfit): (Vec<_>, Vec<_>) = found.partition(|address| may_be_a_worker(address.ip()));
    match (fit.is_empty(), unfit.first()) {
        (false, _) => Ok(fit),
        (true, Some(address)) => Err(format!("{} is the address of no worker", address.ip())),
        (true, None) => Err("the host has no address".to_owned()),
    }
}

/// Whether somebody with such an address could have sent a card.
fn may_be_a_worker(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast())
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_unicast_link_local() || v6.is_multicast()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_workers_and_others() {
        for (text, fit) in [
            ("10.1.2.3", true),
            ("127.0.0.1", true),
            ("192.168.0.9", true),
            ("8.8.8.8", true),
            ("fd00::1", true),
            ("::1", true),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("ff02::1", false),
        ] {
            assert_eq!(may_be_a_worker(text.parse().unwrap()), fit, "{text}");
        }
    }
}
