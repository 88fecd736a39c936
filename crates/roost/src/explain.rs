//! `roost explain`: the record of a routing decision as a table.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use roost_config::Explain;
use serde_json::Value;

use crate::frontend::{Frontend, escape};
use crate::output;

#[cfg(test)]
mod tests;

/// Asks and prints.
pub(crate) fn run(options: &Explain) -> Result<ExitCode> {
    let frontend = Frontend::of(&options.frontend)?;
    let path = match &options.id {
        Some(id) => format!("/debug/routing/{}", escape(id)),
        None => "/debug/routing".to_owned(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(frontend.ask(&path))?;
    output::result(&table(&answer, options.limit));
    Ok(ExitCode::SUCCESS)
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
