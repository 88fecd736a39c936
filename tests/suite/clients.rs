//! Clients as their users have them, installed by `tests/peers/clients_setup.sh`, against a frontend with a worker.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_tests::{Cluster, MODEL, Options, fixture};
use roost_worker::ScriptBook;
use serde_json::{Value, json};

/// Longest run of one client.
const LIMIT: Duration = Duration::from_secs(120);

/// Where clients are installed; `None`, with the reason printed, when `needed` is not there.
#[expect(clippy::disallowed_methods, reason = "where a test finds its clients is no option of the product")]
#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn clients(needed: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("ROOST_PEERS") {
        Some(root) => PathBuf::from(root),
        None => std::env::home_dir()?.join(".cache/roost-peers"),
    };
    let dir = root.join("clients");
    if dir.join(needed).exists() {
        return Some(dir);
    }
    println!("skipped: no {needed} under {} (see tests/peers/clients_setup.sh)", dir.display());
    None
}

async fn cluster() -> Result<Cluster> {
    let calls = |city: &str| {
        format!(
            "<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {{\"city\": \"{city}\"}}}}\n</tool_call>"
        )
    };
    let end = json!({"finish": "stop"});
    // What the command prints names the script of the next answer; the command itself names none.
    let call = json!({"name": "exec_command", "arguments": {"cmd": "echo @@hel''lo@@"}});
    let shell = format!("<tool_call>\n{call}\n</tool_call>");
    let scripts = json!({
        "hello": [{"text": "hello"}, end],
        "json": [{"text": "{\"city\": \"Paris\", \"days\": 3}", "per": 5}, end],
        "calls": [{"text": format!("{}\n{}", calls("Paris"), calls("Rome")), "per": 7}, end],
        "drip": [{"text_repeat": ["x", 400], "per": 1, "gap_s": 0.05}, end],
        "shell": [{"text": shell}, end],
    });
    let mut options = Options::new(1);
    // The agent begins with 40,000 bytes of instructions and tools, each of which is a token here.
    options.context_length = 200_000;
    options.scripts = ScriptBook::from_json(&scripts.to_string()).context("scripts")?;
    options.parsers = (Some("hermes"), None);
    options.start().await
}

/// Runs a client to its end; returns what it printed.
async fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)], dir: &Path) -> Result<String> {
    let log = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied()).current_dir(dir).stdin(Stdio::null());
    // Nothing but the frontend is to be asked.
    for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        command.env_remove(proxy);
    }
    let mut child = command.stdout(log.reopen()?).stderr(log.reopen()?).spawn()?;
    let ended = tokio::time::timeout(LIMIT, async {
        loop {
            match child.try_wait()? {
                Some(status) => return anyhow::Ok(status),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let ended = ended.await;
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let text = std::fs::read_to_string(log.path())?;
    let status = ended.with_context(|| format!("the client does not end: {text}"))??;
    ensure!(status.success(), "{}: {text}", program.display());
    Ok(text)
}

fn script(name: &str) -> String {
    fixture("../clients").join(name).to_string_lossy().into_owned()
}

async fn python(name: &str, package: &str) -> Result<()> {
    let Some(dir) = clients(&format!("venv/lib/python3.11/site-packages/{package}")) else { return Ok(()) };
    let cluster = cluster().await?;
    let base = format!("http://{}", cluster.address);
    let text = run(&dir.join("venv/bin/python"), &[&script(name), &base, MODEL], &[], &dir).await?;
    assert!(text.contains(package), "{text}");
    cluster.until_idle().await
}

#[tokio::test]
async fn the_openai_sdk() -> Result<()> {
    python("openai_sdk.py", "openai").await
}

#[tokio::test]
async fn the_anthropic_sdk() -> Result<()> {
    python("anthropic_sdk.py", "anthropic").await
}

#[tokio::test]
async fn the_ai_sdk() -> Result<()> {
    let Some(dir) = clients("node/node_modules/@ai-sdk/openai-compatible") else { return Ok(()) };
    let cluster = cluster().await?;
    let base = format!("http://{}", cluster.address);
    let modules = dir.join("node/node_modules");
    let arguments = [&script("ai_sdk.mjs"), modules.to_str().context("path")?, &base, MODEL];
    let text = run(Path::new("node"), &arguments, &[], &dir).await?;
    assert!(text.contains("ai "), "{text}");
    Ok(())
}

/// An agent as people run it: it asks over the Responses API, runs the command that the model calls for, and comes back
/// with what it printed, as turns of one session.
#[tokio::test]
async fn the_codex_agent() -> Result<()> {
    let program = "node/node_modules/.bin/codex";
    let Some(dir) = clients(program) else { return Ok(()) };
    let cluster = cluster().await?;
    let home = tempfile::TempDir::new()?;
    let base = format!("http://{}/v1", cluster.address);
    let config = format!(
        "model = \"{MODEL}\"\nmodel_provider = \"roost\"\n[model_providers.roost]\nname = \"roost\"\n\
         base_url = \"{base}\"\nwire_api = \"responses\"\nrequires_openai_auth = false\n"
    );
    std::fs::write(home.path().join("config.toml"), config)?;
    let place = home.path().to_str().context("path")?;
    let variables = [("CODEX_HOME", place), ("HOME", place)];
    let arguments =
        ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json", "@@shell@@"];
    let text = run(&dir.join(program), &arguments, &variables, home.path()).await?;
    let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |kind: &str| {
        let done = events.iter().filter(|event| event["type"] == "item.completed");
        done.map(|event| &event["item"]).find(|item| item["type"] == kind).with_context(|| text.clone())
    };
    let command = of("command_execution")?;
    assert_eq!((&command["exit_code"], &command["aggregated_output"]), (&json!(0), &json!("@@hello@@\n")));
    assert_eq!(of("agent_message")?["text"], "hello");
    let end = events.last().context("events")?;
    assert_eq!(
        (&end["type"], &end["usage"]["input_tokens"].is_u64()),
        (&json!("turn.completed"), &true),
        "{end}"
    );
    // It names its session by itself.
    let seen = cluster.workers[0].journal().requests();
    let sessions: Vec<_> =
        seen.iter().filter_map(|seen| Some(&seen.request.agent_context.as_ref()?.session_id)).collect();
    assert!(sessions.len() == 2 && sessions[0] == sessions[1], "{sessions:?}");
    assert_eq!(cluster.metric_sum("roost_affinity_turns_total", "hit").await?, 1.0);
    cluster.until_idle().await
}

/// The document is fed to schemathesis: no request that it allows may break the server, and answers are as it says.
#[tokio::test]
async fn schemathesis() -> Result<()> {
    let Some(dir) = clients("venv/bin/schemathesis") else { return Ok(()) };
    let cluster = cluster().await?;
    let base = format!("http://{}", cluster.address);
    let mut document = cluster.get("/openapi.json").send().await?.json()?;
    document["components"]["schemas"]["Model"] = json!({"type": "string", "enum": [MODEL]});
    // Thresholds that are set would turn away all that comes later.
    let paths = document["paths"].as_object_mut().context("paths")?;
    paths.retain(|path, _| path != "/openapi.json" && path != "/busy_threshold");
    let home = tempfile::TempDir::new()?;
    let file = home.path().join("openapi.json");
    std::fs::write(&file, Value::to_string(&document))?;
    let arguments = [
        "run",
        file.to_str().context("path")?,
        "--url",
        &base,
        "--max-examples",
        "12",
        "--phases",
        "examples,fuzzing",
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--generation-deterministic",
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "20",
        "--workers",
        "2",
        "--no-color",
    ];
    let text =
        run(&dir.join("venv/bin/schemathesis"), &arguments, &[("SCHEMATHESIS_HOOKS", "")], home.path())
            .await?;
    assert!(text.contains("No issues found") || text.contains("passed"), "{text}");
    Ok(())
}
