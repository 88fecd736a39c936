//! What `deploy/` brings for Prometheus and Grafana: rules that fire when they should, and no expression that a real
//! Prometheus refuses or that asks for a series which does not exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use roost_tests::{MODEL, Options, Prometheus};
use serde_json::{Value, json};
use tempfile::TempDir;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root(path)).with_context(|| path.to_owned())
}

/// The expressions of the dashboard, with "all" chosen everywhere.
fn dashboard() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/roost.json")?)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<String> = targets
        .map(|target| {
            let expression = target["expr"].as_str().context("expr")?;
            let all = [("$model", ".*"), ("$instance", ".*"), ("$__rate_interval", "1m")];
            Ok(all.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value)))
        })
        .collect::<Result<_>>()?;
    ensure!(expressions.iter().all(|expression| !expression.contains('$')), "an unknown variable");
    Ok(expressions)
}

/// Names of our series in a text; those of histograms without their endings.
fn families(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let ours = words.filter(|word| word.starts_with("dynamo_") || word.starts_with("roost_"));
    ours.map(|word| {
        ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)
    })
    .collect()
}

fn promtool(arguments: [&str; 2], file: &str) -> Result<()> {
    let output = Command::new("promtool").args(arguments).arg(root(file)).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{file}: {}{}", text(&output.stdout), text(&output.stderr));
    Ok(())
}

#[test]
fn every_series_they_ask_for_is_one_of_ours_and_every_alert_has_its_page() -> Result<()> {
    let (rules, reference) = (read("deploy/prometheus/roost.rules.yml")?, read("docs/metrics.md")?);
    let known: BTreeSet<&str> = reference
        .lines()
        .take_while(|line| !line.contains("that are not exported"))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let asked = [rules.clone(), dashboard()?.join("\n")].join("\n");
    // Fields of the rules that begin like a series.
    let unknown: Vec<&str> = families(&asked).into_iter().filter(|family| !known.contains(family)).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in docs/metrics.md");
    let pages = read("docs/operations.md")?;
    for line in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(pages.contains(&format!("\n### {line}\n")), "{line} has no page in docs/operations.md");
        let link = format!("runbook: docs/operations.md#{}\n", line.to_lowercase());
        assert!(rules.contains(&link), "{line} does not name its page");
    }
    Ok(())
}

#[test]
fn rules_fire_when_they_should() -> Result<()> {
    if Prometheus::is_installed() {
        promtool(["check", "config"], "deploy/prometheus/prometheus.yml")?;
        promtool(["test", "rules"], "deploy/prometheus/roost.rules.test.yml")?;
    }
    Ok(())
}

/// Rules as they are, and the dashboard's expressions written as rules, evaluated on a live frontend's page.
#[tokio::test]
async fn a_real_prometheus_evaluates_all_of_it() -> Result<()> {
    if !Prometheus::is_installed() {
        return Ok(());
    }
    let cluster = Options::new(2).start().await?;
    for session in 0..4 {
        let turn = cluster.chat("@@hello@@").session(&format!("s-{session}")).send().await?;
        assert_eq!(turn.status, 200);
    }
    let expressions = dashboard()?;
    let asked: Vec<Value> = (expressions.iter().enumerate())
        .map(|(at, expression)| json!({"record": format!("panel:{at}"), "expr": expression}))
        .collect();
    let folder = TempDir::new()?;
    let panels = folder.path().join("panels.yml");
    std::fs::write(&panels, json!({"groups": [{"name": "panels", "rules": asked}]}).to_string())?;
    let rules = root("deploy/prometheus/roost.rules.yml").canonicalize()?;
    let is_rule = |line: &&str| line.trim().starts_with("- alert: ") || line.trim().starts_with("- record: ");
    let count = std::fs::read_to_string(&rules)?.lines().filter(is_rule).count() + expressions.len();
    let prometheus = Prometheus::start(&[cluster.address], &[&rules, &panels]).await?;
    let evaluated = async || {
        let groups = prometheus.api("/api/v1/rules").await?;
        let groups = groups["groups"].as_array().context("groups")?;
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let mut evaluated = 0;
        for rule in rules {
            ensure!(rule["lastError"].is_null(), "{rule}");
            evaluated += usize::from(rule["health"] == "ok");
        }
        Ok(evaluated == count)
    };
    cluster.until("all rules are evaluated", evaluated).await?;
    // What has a value on a page that was scraped once or twice.
    let value = async |query: &str| {
        let found = prometheus.api(&format!("/api/v1/query?query={query}")).await?;
        anyhow::Ok(found["result"][0]["value"][1].as_str().map(str::to_owned))
    };
    let ready = async || Ok(value("panel:0").await?.as_deref() == Some("1"));
    cluster.until("the first panel shows one model", ready).await?;
    let sessions = async || Ok(value("panel:4").await?.as_deref() == Some("4"));
    cluster.until("the panel of sessions shows four", sessions).await?;
    let turns = format!("roost_affinity_turns_total{{model=\"{MODEL}\",outcome=\"new\"}}");
    let told = cluster.metric_sum("roost_affinity_turns_total", "outcome=\"new\"").await?;
    assert_eq!(told, 4.0, "{turns}");
    Ok(())
}
