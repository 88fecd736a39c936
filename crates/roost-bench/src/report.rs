//! Figures of the runs against one endpoint, beside those of others.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::answer::Answer;
use crate::process::Usage;
use crate::run::Sample;

/// What was measured of one endpoint, a value for each round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The endpoint.
    pub name: String,
    /// Whole answers.
    pub answers: Vec<f64>,
    /// Requests that failed, by what was said, over all rounds.
    pub errors: BTreeMap<String, u64>,
    /// Answers a second.
    pub rate: Vec<f64>,
    /// Prompt tokens a second.
    pub prompt_rate: Vec<f64>,
    /// Output tokens a second.
    pub output_rate: Vec<f64>,
    /// Share of the prompt tokens that workers had cached.
    pub cached: Vec<f64>,
    /// Prompt length, tokens.
    pub prompt: Vec<Quantiles>,
    /// From sending to the first text, ms.
    pub first_token: Vec<Quantiles>,
    /// Mean time between tokens of an answer, ms.
    pub between_tokens: Vec<Quantiles>,
    /// From sending to the end, ms.
    pub duration: Vec<Quantiles>,
    /// The most sessions at the same time.
    pub sessions: Vec<f64>,
    /// Changes of worker within sessions, a turn.
    pub moves: Vec<f64>,
    /// Answers of the busiest worker in units of the mean.
    pub imbalance: Vec<f64>,
    /// Processor time of the server, ms a request.
    pub cpu_request: Vec<f64>,
    /// Processor time of the server, µs an output token.
    pub cpu_token: Vec<f64>,
    /// Cores that the server kept busy.
    pub cores: Vec<f64>,
    /// Memory of the server at the end, MiB.
    pub rss: Vec<f64>,
    /// The most memory that the server ever had, MiB.
    pub peak_rss: Vec<f64>,
    /// The measured answers of all rounds, for charts.
    #[serde(skip)]
    pub(crate) points: Vec<Point>,
}

/// One answer in a chart.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Since the beginning of the run, s.
    pub(crate) ended: f64,
    /// From sending to the first text, ms.
    pub(crate) first_token: Option<f64>,
    /// Mean time between its tokens, ms.
    pub(crate) between_tokens: Option<f64>,
    /// Prompt tokens.
    pub(crate) prompt: u64,
    /// Of them cached.
    pub(crate) cached: u64,
    /// The worker that answered, where the server tells.
    pub(crate) worker: Option<Arc<str>>,
}

impl Point {
    fn of(sample: &Sample) -> Option<Self> {
        let answer = sample.answer.as_ref().ok()?;
        Some(Self {
            ended: sample.ended.as_secs_f64(),
            first_token: answer.first_token.map(ms),
            between_tokens: between_tokens(answer),
            prompt: answer.prompt_tokens,
            cached: answer.cached_tokens,
            worker: answer.worker.as_deref().map(Arc::from),
        })
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Mean time between the tokens of an answer, ms.
fn between_tokens(answer: &Answer) -> Option<f64> {
    let gaps = answer.output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
    Some(ms(answer.last_token? - answer.first_token?) / gaps as f64)
}

/// A distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half are below.
    pub p50: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// 99 of 100 are below.
    pub p99: f64,
}

impl Quantiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return Self::default() };
        let at = |share: f64| values[((values.len() as f64 * share) as usize).min(last)];
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

impl Figures {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a round: the samples that ended within `window`, and the server's readings at its two ends.
    pub(crate) fn add(
        &mut self,
        samples: &[Sample],
        window: Range<Duration>,
        usage: Option<((Duration, Usage), (Duration, Usage))>,
        sessions: usize,
    ) {
        let within: Vec<&Sample> = samples.iter().filter(|sample| window.contains(&sample.ended)).collect();
        for error in samples.iter().filter_map(|sample| sample.answer.as_ref().err()) {
            // Every text once; servers put ids into theirs.
            let known: String = error.chars().filter(|c| !c.is_ascii_digit()).take(120).collect();
            *self.errors.entry(known).or_default() += 1;
        }
        let answers: Vec<_> = within.iter().filter_map(|sample| sample.answer.as_ref().ok()).collect();
        let seconds = window.end.saturating_sub(window.start).as_secs_f64().max(1e-9);
        let sum = |of: fn(&Answer) -> u64| answers.iter().map(|answer| of(answer)).sum::<u64>() as f64;
        let (prompt, output) = (sum(|a| a.prompt_tokens), sum(|a| a.output_tokens));
        self.answers.push(answers.len() as f64);
        self.rate.push(answers.len() as f64 / seconds);
        self.prompt_rate.push(prompt / seconds);
        self.output_rate.push(output / seconds);
        self.cached.push(sum(|a| a.cached_tokens) / prompt.max(1.0));
        self.prompt.push(Quantiles::of(answers.iter().map(|a| a.prompt_tokens as f64).collect()));
        self.first_token.push(Quantiles::of(answers.iter().filter_map(|a| a.first_token).map(ms).collect()));
        self.between_tokens.push(Quantiles::of(answers.iter().filter_map(|a| between_tokens(a)).collect()));
        self.duration.push(Quantiles::of(answers.iter().map(|a| ms(a.total)).collect()));
        self.sessions.push(sessions as f64);
        self.points.extend(within.iter().filter_map(|sample| Point::of(sample)));
        self.add_workers(samples);
        if let Some(((from, before), (to, after))) = usage {
            let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            let took = to.saturating_sub(from).as_secs_f64().max(1e-9);
            let share = took / seconds;
            self.cpu_request.push(cpu * 1e3 / (answers.len() as f64 * share).max(1.0));
            self.cpu_token.push(cpu * 1e6 / (output * share).max(1.0));
            self.cores.push(cpu / took);
            self.rss.push(after.rss as f64 / f64::from(1 << 20));
            self.peak_rss.push(after.peak_rss as f64 / f64::from(1 << 20));
        }
    }

    fn add_workers(&mut self, samples: &[Sample]) {
        let mut homes: HashMap<usize, &str> = HashMap::new();
        let mut counts: HashMap<&str, f64> = HashMap::new();
        let (mut moves, mut later) = (0.0, 0.0);
        for sample in samples {
            let worker = sample.answer.as_ref().ok().and_then(|answer| answer.worker.as_deref());
            let Some(worker) = worker else { continue };
            *counts.entry(worker).or_default() += 1.0;
            if let Some(before) = homes.insert(sample.session, worker) {
                later += 1.0;
                moves += f64::from(u8::from(before != worker));
            }
        }
        if counts.is_empty() {
            return;
        }
        let mean = counts.values().sum::<f64>() / counts.len() as f64;
        self.moves.push(moves / f64::max(later, 1.0));
        self.imbalance.push(counts.values().copied().fold(0.0, f64::max) / mean);
    }
}

/// All figures as JSON.
pub fn json(figures: &[Figures]) -> serde_json::Value {
    serde_json::json!({ "targets": figures })
}

/// A Markdown table: medians, and the range over the rounds where there are several; the last columns are ratios to the
/// last endpoint.
pub fn table(figures: &[Figures]) -> String {
    let mut out = String::from("| |");
    let Some(last) = figures.last() else { return out };
    let others = &figures[..figures.len() - 1];
    for one in figures {
        let _infallible = write!(out, " {} |", one.name);
    }
    for one in others {
        let _infallible = write!(out, " {} / {} |", one.name, last.name);
    }
    let columns = figures.len() + others.len();
    let _infallible = writeln!(out, "\n| --- |{}", " ---: |".repeat(columns));
    for (name, digits, of) in rows() {
        let values: Vec<Vec<f64>> = figures.iter().map(&of).collect();
        if values.iter().all(Vec::is_empty) {
            continue;
        }
        let _infallible = write!(out, "| {name} |");
        for value in &values {
            let _infallible = write!(out, " {} |", cell(value, digits));
        }
        let reference = values.last().and_then(|values| median(values)).filter(|reference| *reference > 0.0);
        for value in &values[..others.len()] {
            let ratio = median(value).zip(reference).map(|(value, reference)| value / reference);
            let _infallible = match ratio {
                Some(ratio) => write!(out, " {ratio:.2} |"),
                None => write!(out, " |"),
            };
        }
        out.push('\n');
    }
    for one in figures {
        for (error, count) in &one.errors {
            let _infallible = writeln!(out, "\n{}: {count} × {error}", one.name);
        }
    }
    out
}

type Row = (&'static str, usize, Box<dyn Fn(&Figures) -> Vec<f64>>);

fn rows() -> Vec<Row> {
    fn row(name: &'static str, digits: usize, of: impl Fn(&Figures) -> Vec<f64> + 'static) -> Row {
        (name, digits, Box::new(of))
    }
    fn each(list: &[Quantiles], of: fn(&Quantiles) -> f64) -> Vec<f64> {
        list.iter().map(of).collect()
    }
    vec![
        row("answers", 0, |f| f.answers.clone()),
        row("errors", 0, |f| vec![f.errors.values().sum::<u64>() as f64]),
        row("answers a second", 1, |f| f.rate.clone()),
        row("prompt tokens a second", 0, |f| f.prompt_rate.clone()),
        row("output tokens a second", 0, |f| f.output_rate.clone()),
        row("prompt tokens, p50", 0, |f| each(&f.prompt, |q| q.p50)),
        row("prompt tokens, p90", 0, |f| each(&f.prompt, |q| q.p90)),
        row("cached, % of the prompt tokens", 1, |f| f.cached.iter().map(|share| share * 100.0).collect()),
        row("TTFT p50, ms", 2, |f| each(&f.first_token, |q| q.p50)),
        row("TTFT p90, ms", 2, |f| each(&f.first_token, |q| q.p90)),
        row("TTFT p99, ms", 2, |f| each(&f.first_token, |q| q.p99)),
        row("ITL p50, ms", 3, |f| each(&f.between_tokens, |q| q.p50)),
        row("ITL p99, ms", 3, |f| each(&f.between_tokens, |q| q.p99)),
        row("whole answer p50, ms", 2, |f| each(&f.duration, |q| q.p50)),
        row("whole answer p99, ms", 2, |f| each(&f.duration, |q| q.p99)),
        row("sessions at once", 0, |f| f.sessions.clone()),
        row("turns that changed the worker, %", 2, |f| f.moves.iter().map(|share| share * 100.0).collect()),
        row("busiest worker, × mean", 2, |f| f.imbalance.clone()),
        row("server CPU, ms a request", 2, |f| f.cpu_request.clone()),
        row("server CPU, µs an output token", 1, |f| f.cpu_token.clone()),
        row("server cores busy", 2, |f| f.cores.clone()),
        row("server RSS, MiB", 0, |f| f.rss.clone()),
        row("server RSS ever, MiB", 0, |f| f.peak_rss.clone()),
    ]
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn cell(values: &[f64], digits: usize) -> String {
    let Some(middle) = median(values) else { return "–".to_owned() };
    if values.len() == 1 {
        return format!("{middle:.digits$}");
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    format!("{middle:.digits$} [{low:.digits$}..{high:.digits$}]")
}
