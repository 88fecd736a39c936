//! A name that stands for several servers, in a file of hosts of the test's own.

use std::process::{Command, Stdio};

use super::*;

/// The name; `test` is kept for tests by RFC 6761.
const NAME: &str = "engines.test";
/// Set for the process that sees the name.
const CHILD: &str = "ROOST_TEST_SEES_NAMES";

/// Runs a command that sees `NAME` at two addresses: in a mount namespace, `/etc/hosts` is `hosts` there.
fn with_names(hosts: &std::path::Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(hosts);
    command
}

#[test]
fn a_name_of_several_servers() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 localhost {NAME}\n127.0.0.2 {NAME}\n"))?;
    let possible = with_names(&hosts).arg("true").stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("skipped: no mount namespaces for this user");
        return Ok(());
    }
    let output = with_names(&hosts)
        .arg(std::env::current_exe()?)
        .args(["--exact", "sglang::names::seen", "--ignored", "--nocapture"])
        .env(CHILD, &hosts)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
    Ok(())
}

#[tokio::test]
#[ignore = "the process of `a_name_of_several_servers`, which gives it its names"]
#[expect(clippy::disallowed_methods, reason = "set by the test that starts this process")]
async fn seen() -> Result<()> {
    let Ok(hosts) = std::env::var(CHILD) else { return Ok(()) };
    let first = Sglang::start(SglangOptions::default()).await?;
    let mut address = first.address;
    address.set_ip([127, 0, 0, 2].into());
    let second = Sglang::start_at(address, SglangOptions::default()).await?;
    let url = format!("http://{NAME}:{}", address.port()).parse().expect("an address");
    let cluster = start(config(vec![Named { url, part: Part::Aggregated }])).await?;
    until_workers(&cluster, "aggregated", 2).await?;
    for session in 0..8 {
        let reply = cluster.chat("hi").session(&format!("s{session}")).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert!(!first.requests().is_empty() && !second.requests().is_empty(), "both are used");

    // One address less, and then one more: what runs follows the name.
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.0.2 {NAME}\n"))?;
    until_workers(&cluster, "aggregated", 1).await?;
    let before = first.requests().len();
    for session in 0..8 {
        let reply = cluster.chat("hi").session(&format!("s{session}")).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(first.requests().len(), before);
    // A name that is gone for a while takes nothing away.
    std::fs::write(&hosts, "127.0.0.1 localhost\n")?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cluster.chat("hi").send().await?.status, 200);
    std::fs::write(&hosts, format!("127.0.0.1 localhost {NAME}\n127.0.0.2 {NAME}\n"))?;
    until_workers(&cluster, "aggregated", 2).await
}
