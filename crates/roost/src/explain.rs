//! `roost explain`: the record of a routing decision as a table.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use roost_cluster::discovery::{Pem, TlsIdentity};
use roost_config::Explain;
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;

use crate::{exchange, output};

/// Longest wait for the frontend.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;

/// Asks and prints.
pub(crate) fn run(options: &Explain) -> Result<ExitCode> {
    let frontend = Frontend::of(options)?;
    let path = match &options.id {
        Some(id) => format!("/debug/routing/{}", escape(id)),
        None => "/debug/routing".to_owned(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let key = options.api_key.as_deref();
    let asked = async { tokio::time::timeout(PATIENCE, frontend.get(&path, key)).await };
    let (status, answer) =
        runtime.block_on(asked).with_context(|| format!("{} does not answer", options.url))??;
    if status != 200 {
        let text = answer["error"]["message"].as_str().or_else(|| answer["message"].as_str());
        bail!("{}", text.map_or_else(|| format!("{} answered {status}", options.url), str::to_owned));
    }
    output::result(&table(&answer, options.limit));
    Ok(ExitCode::SUCCESS)
}

/// Where a frontend listens.
#[derive(Debug)]
enum Frontend {
    /// A host with a port.
    Network(String),
    /// The same with TLS.
    Tls(String, Arc<ClientConfig>),
    /// A socket in the file system.
    Socket(PathBuf),
}

impl Frontend {
    fn of(options: &Explain) -> Result<Self> {
        let url = &options.url;
        if let Some(path) = url.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                bail!("--url: `{url}` names no socket");
            }
            return Ok(Self::Socket(path.into()));
        }
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        match scheme {
            "http" => Ok(Self::Network(authority(url, rest, 80)?)),
            "https" => {
                let pem = |path: &PathBuf| Pem::File(path.clone());
                let identity = TlsIdentity {
                    ca: options.ca.as_ref().map(pem),
                    client: options.certificate.as_ref().map(|(cert, key)| (pem(cert), pem(key))),
                };
                Ok(Self::Tls(authority(url, rest, 443)?, identity.client_config(b"http/1.1")?))
            }
            _ => bail!("--url: {scheme} is not supported; http, https and unix are"),
        }
    }

    async fn get(&self, path: &str, key: Option<&str>) -> Result<(u16, Value)> {
        let host = match self {
            Self::Network(authority) | Self::Tls(authority, _) => authority,
            Self::Socket(_) => "localhost",
        };
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{key}connection: close\r\n\r\n");
        match self {
            Self::Network(authority) => exchange::exchange(authority, request).await,
            Self::Tls(authority, tls) => {
                exchange::exchange_over_tls(authority, request, Arc::clone(tls)).await
            }
            Self::Socket(socket) => exchange::exchange_at_socket(socket, request).await,
        }
    }
}

/// Host and port of what follows a URL's scheme.
fn authority(url: &str, rest: &str, usual_port: u16) -> Result<String> {
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() {
        bail!("--url: `{url}` names no host");
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    Ok(if has_port { authority.to_owned() } else { format!("{authority}:{usual_port}") })
}

/// Percent-encodes what has a meaning in a path.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Writes up to `limit` decisions, the latest first.
fn table(answer: &Value, limit: usize) -> String {
    let mut out = String::new();
    for binding in list(&answer["bound"]) {
        line(
            &mut out,
            format_args!(
                "bound to {} ({}, {})",
                rank(&binding["worker"]),
                text(&binding["model"]),
                text(&binding["role"])
            ),
        );
    }
    for decision in list(&answer["decisions"]).iter().take(limit) {
        if !out.is_empty() {
            out.push('\n');
        }
        write_decision(&mut out, decision);
    }
    out.truncate(out.trim_end().len());
    out
}

fn write_decision(out: &mut String, decision: &Value) {
    let outcome = match decision["worker"].is_null() {
        true => format!("rejected: {}", text(&decision["error"])),
        false => format!("placed on {} by {}", rank(&decision["worker"]), text(&decision["reason"])),
    };
    let age = decision["age_ms"].as_u64().unwrap_or(0) as f64 / 1e3;
    line(
        out,
        format_args!(
            "#{} {outcome}, {age:.1} s ago ({}, {})",
            decision["number"],
            text(&decision["model"]),
            text(&decision["role"])
        ),
    );
    line(
        out,
        format_args!(
            "   request {}, session {}, {} prompt tokens in blocks of {}",
            text(&decision["request"]),
            text(&decision["session"]),
            decision["isl_tokens"],
            decision["block_size"]
        ),
    );
    let affinity = &decision["affinity"];
    let mut session = format!("   affinity {}", text(&affinity["outcome"]));
    if !affinity["bound_before"].is_null() {
        let _infallible = write!(session, ", was bound to {}", rank(&affinity["bound_before"]));
    }
    if let Some(reason) = affinity["moved_because"].as_str() {
        let _infallible = write!(session, ", moved because {reason}");
    }
    line(out, format_args!("{session}"));
    let candidates = list(&decision["candidates"]);
    line(out, format_args!("   {} of {} candidates:", candidates.len(), decision["considered"]));
    line(
        out,
        format_args!(
            "   {:<21} {:>7} {:>6} {:>6} {:>9} {:>8} {:>5} {:>9} {:>9} {:>8} {:>8} {:>6} {:>10}",
            "worker/rank",
            "device",
            "host",
            "disk",
            "queued",
            "active",
            "reqs",
            "prefill",
            "decode",
            "requests",
            "future",
            "bonus",
            "cost"
        ),
    );
    for candidate in candidates {
        let (overlap, load, cost) = (&candidate["overlap_blocks"], &candidate["load"], &candidate["cost"]);
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let disk = count(&overlap["disk"]) + count(&overlap["external"]);
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        line(
            out,
            format_args!(
                " {} {:<21} {:>7} {:>6} {disk:>6} {:>9} {:>8} {:>5} {:>9.1} {:>9.1} {:>8.1} {:>8.1} {:>6.1} {:>10.1}",
                if candidate["chosen"] == true { '*' } else { ' ' },
                rank(&candidate["worker"]),
                count(&overlap["device"]),
                count(&overlap["host"]),
                count(&load["prefill_tokens"]),
                count(&load["active_blocks"]),
                count(&load["active_requests"]),
                number(&cost["prefill"]),
                number(&cost["decode"]),
                number(&cost["requests"]),
                number(&cost["future"]),
                number(&cost["bonus"]),
                number(&cost["total"])
            ),
        );
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _infallible = writeln!(out, "{text}");
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn rank(value: &Value) -> String {
    format!("{}/{}", text(&value["hex"]), value["dp_rank"])
}
