//! `roost bench`: sessions replayed against live endpoints.

use std::fs::File;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use roost_bench::{Load, Progress, Target};
use roost_config::Bench;

use crate::{output, replay};

/// Measures and prints. Fails when no request had an answer.
pub(crate) fn run(options: &Bench) -> Result<ExitCode> {
    let targets: Vec<Target> =
        options.targets.iter().map(|text| text.parse().context("--url")).collect::<Result<_>>()?;
    let generate = options.traces.is_empty().then_some(options.generate.as_str());
    let trace = replay::trace(generate, &options.traces, options.mooncake_block)?;
    let load = Load {
        model: options.model.clone(),
        lanes: options.lanes,
        ramp: options.ramp,
        measured: options.measured,
        rounds: options.rounds,
        longest_pause: options.longest_pause,
        scale: options.time_scale,
        longest_answer: options.longest_answer,
        patience: options.patience,
        seed: options.seed,
    };
    // Before anything is sent: a report that cannot be written would be known only at the end.
    let report = options.report.as_ref().map(|path| Report::create(path)).transpose()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build()?;
    let figures = runtime.block_on(roost_bench::compare(trace, &targets, &load, show()))?;
    match options.json {
        true => output::result(&format_args!("{:#}", roost_bench::json(&figures))),
        false => output::result(&roost_bench::table(&figures).trim_end()),
    }
    if let Some(report) = report {
        report.write(&roost_bench::page(&figures))?;
    }
    let answered = figures.iter().all(|figures| figures.answers.iter().any(|answers| *answers > 0.0));
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The file of the page with charts.
struct Report<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Report<'a> {
    fn create(path: &'a Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("--report {}", path.display()))?;
        Ok(Self { path, file })
    }

    fn write(mut self, page: &str) -> Result<()> {
        self.file.write_all(page.as_bytes()).with_context(|| format!("--report {}", self.path.display()))
    }
}

/// One line a second on a terminal, one a run elsewhere.
fn show() -> impl FnMut(&Progress<'_>) {
    let terminal = stderr().is_terminal();
    let mut last: Option<(Instant, String)> = None;
    move |now| {
        let run = format!("{} round {}", now.target, now.round);
        let again = last.as_ref().is_some_and(|(_, before)| *before == run);
        let due = last.as_ref().is_none_or(|(at, _)| at.elapsed() >= Duration::from_secs(1));
        if again && !(terminal && due) {
            return;
        }
        output::progress(
            terminal,
            &format_args!(
                "{run}: {:.0} of {:.0} s, {} answers, {} errors, {} sessions",
                now.elapsed.as_secs_f64(),
                now.planned.as_secs_f64(),
                now.answers,
                now.errors,
                now.sessions
            ),
        );
        last = Some((Instant::now(), run));
    }
}
