//! `roost replay-routing`: a trace through the router, offline.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use roost_config::Replay;
use roost_replay::{FleetConfig, Generator, Pace, Shape, Trace};

use crate::{output, settings};

#[cfg(test)]
mod tests;

/// Replays and prints.
pub(crate) fn run(options: &Replay) -> Result<ExitCode> {
    output::result(&report(options)?.trim_end());
    Ok(ExitCode::SUCCESS)
}

fn report(options: &Replay) -> Result<String> {
    let trace = trace(options.generate.as_deref(), &options.traces, options.mooncake_block)?;
    let fleet = FleetConfig {
        workers: options.workers,
        ranks: options.ranks,
        cache_tokens: options.cache_tokens,
        prefill_speed: options.prefill_speed,
        decode_step: options.decode_step,
        decode_step_each: options.decode_step_each,
        max_batched_tokens: options.max_batched_tokens,
    };
    let pace = Pace {
        lanes: options.lanes,
        ramp: options.ramp,
        longest_pause: options.longest_pause,
        scale: options.time_scale,
    };
    let mut outcomes = Vec::new();
    for set in &options.sets {
        let config = settings::router(&set.serve.router);
        let outcome = roost_replay::replay(&trace, &set.name, config, &fleet, &pace, options.seed);
        outcomes.push(outcome.with_context(|| format!("--with `{}`", set.name))?);
    }
    if options.json {
        return Ok(format!("{:#}", roost_replay::json(&outcomes)));
    }
    Ok(format!("{}\n{}", heading(&trace, &fleet), roost_replay::table(&outcomes)))
}

/// A generated trace, or the one in `paths`.
pub(crate) fn trace(generate: Option<&str>, paths: &[PathBuf], mooncake_block: u32) -> Result<Trace> {
    if let Some(text) = generate {
        let generator: Generator = text.parse().context("--generate")?;
        return Ok(generator.trace());
    }
    let mut files = Vec::new();
    for path in paths {
        files.push(std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    roost_replay::read(files.iter().map(String::as_str), mooncake_block).with_context(|| names.join(", "))
}

/// What was replayed against what.
fn heading(trace: &Trace, fleet: &FleetConfig) -> String {
    let shape = Shape::of(trace, false);
    let mut text = format!(
        "{} sessions, {} sub-agents, {} requests in blocks of {}; {} workers x {} ranks with {} cached tokens each\n",
        shape.sessions,
        shape.subagents,
        shape.requests,
        trace.block_size,
        fleet.workers,
        fleet.ranks,
        fleet.cache_tokens
    );
    let [p10, p50, p90, p99] = [0.1, 0.5, 0.9, 0.99].map(|share| shape.prompt_tokens(share));
    let _infallible = writeln!(
        text,
        "prompts {p10}/{p50}/{p90}/{p99} tokens (p10/50/90/99), {:.1} % of them in the session's last prompt",
        shape.seen_in_session() * 100.0
    );
    text
}
