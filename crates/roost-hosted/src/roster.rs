//! Servers come and go: names are resolved and the file is read again and again, and each server has a task of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use roost_sglang::ServerUrl;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::member::{self, Setting};
use crate::members::{Named, listed};

/// Longest wait for the addresses of a name.
const RESOLVE: Duration = Duration::from_secs(5);
/// More servers than any list has on purpose.
const MAX_MEMBERS: usize = 4096;

/// Owner of the members' tasks.
pub(super) struct Roster {
    named: Vec<Named>,
    file: Option<PathBuf>,
    listed: Vec<Named>,
    interval: Duration,
    setting: Arc<Setting>,
    members: BTreeMap<Named, DropGuard>,
    /// The last addresses of each name: an answer that fails changes nothing.
    addresses: BTreeMap<String, Vec<IpAddr>>,
}

impl Roster {
    pub(super) fn new(
        named: Vec<Named>,
        file: Option<PathBuf>,
        interval: Duration,
        setting: Arc<Setting>,
    ) -> Self {
        let (members, addresses) = (BTreeMap::new(), BTreeMap::new());
        Roster { named, file, listed: Vec::new(), interval, setting, members, addresses }
    }

    /// Goes on for ever; dropped, its members leave.
    pub(super) async fn run(mut self) {
        loop {
            self.read_file().await;
            let wanted = self.wanted().await;
            self.members.retain(|named, _| {
                let stays = wanted.contains(named);
                if !stays {
                    tracing::info!(server = %named.url, "this SGLang server is no longer named");
                }
                stays
            });
            for named in wanted {
                if !self.members.contains_key(&named) {
                    let leave = CancellationToken::new();
                    tokio::spawn(member::run(named.clone(), Arc::clone(&self.setting), leave.clone()));
                    self.members.insert(named, leave.drop_guard());
                }
            }
            tokio::time::sleep(self.interval).await;
        }
    }

    async fn read_file(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let path = file.clone();
        match tokio::task::spawn_blocking(move || read(&path)).await {
            Ok(Ok(listed)) => self.listed = listed,
            Ok(Err(error)) => {
                tracing::warn!(file = %file.display(), error = format!("{error:#}"), "the list of servers stays as it was");
            }
            Err(error) => tracing::warn!(%error, "the list of servers stays as it was"),
        }
    }

    /// Every server that is named now, by address.
    async fn wanted(&mut self) -> BTreeSet<Named> {
        let mut wanted = BTreeSet::new();
        let all: Vec<Named> = self.named.iter().chain(&self.listed).cloned().collect();
        for named in all {
            for address in self.resolve(named.url.host()).await {
                let url = ServerUrl::new(address.to_string(), named.url.port());
                wanted.insert(Named { url, ..named });
            }
        }
        if wanted.len() > MAX_MEMBERS {
            tracing::warn!(servers = wanted.len(), limit = MAX_MEMBERS, "more servers than are looked after");
            return wanted.into_iter().take(MAX_MEMBERS).collect();
        }
        wanted
    }

    async fn resolve(&mut self, host: &str) -> Vec<IpAddr> {
        if let Ok(address) = host.parse() {
            return vec![address];
        }
        let known = self.addresses.entry(host.to_owned()).or_default();
        match tokio::time::timeout(RESOLVE, tokio::net::lookup_host((host, 0))).await {
            Ok(Ok(found)) => *known = preferred(found.map(|address| address.ip()).collect()),
            Ok(Err(error)) => {
                tracing::warn!(host, %error, "this name has no address; what was known of it stays")
            }
            Err(_) => tracing::warn!(host, "no answer about this name; what was known of it stays"),
        }
        known.clone()
    }
}

/// One address family: a server that has addresses of both is one server.
fn preferred(mut found: Vec<IpAddr>) -> Vec<IpAddr> {
    found.sort_unstable();
    found.dedup();
    if found.iter().any(IpAddr::is_ipv4) {
        found.retain(IpAddr::is_ipv4);
    }
    found
}

/// Reads the list.
pub(super) fn read(file: &Path) -> Result<Vec<Named>> {
    listed(&std::fs::read_to_string(file).context("cannot be read")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_addresses_of_both_families_is_one() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(preferred(vec![ip("::1"), ip("127.0.0.1")]), [ip("127.0.0.1")]);
        assert_eq!(
            preferred(vec![ip("fd00::2"), ip("fd00::1"), ip("fd00::2")]),
            [ip("fd00::1"), ip("fd00::2")]
        );
        assert_eq!(preferred(vec![ip("10.0.0.2"), ip("10.0.0.1")]), [ip("10.0.0.1"), ip("10.0.0.2")]);
    }
}
