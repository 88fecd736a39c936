//! What a replay found, as figures, as a table of several, as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use roost_router::{RebindReason, Stats};
use serde::Serialize;
use serde_json::{Value, json as object};

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the set of options.
    pub name: String,
    /// Requests measured: those sent after the ramp whose first token came.
    pub requests: u64,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Of those, found in the cache of the rank where they were computed.
    pub cached_tokens: u64,
    /// Cached on the rank that had the most of the prompt when it was placed.
    pub best_tokens: u64,
    /// Computed before by any rank: what one endless cache for all would have found.
    pub possible_tokens: u64,
    /// From sending to the first token, seconds.
    pub first_token: Spread,
    /// In the router's queue, seconds.
    pub wait: Spread,
    /// Prompt tokens computed per rank.
    pub computed: Balance,
    /// Sessions bound per rank.
    pub sessions: Balance,
    /// Requests running per rank.
    pub running: Balance,
    /// Sessions moved, by reason, those without any left out.
    pub rebinds: Vec<(&'static str, u64)>,
    /// Prompt tokens given up to spread new sessions.
    pub spread_lost_tokens: u64,
    /// Answers "try again".
    pub refused: u64,
    /// Requests given up after several of them.
    pub given_up: u64,
    /// Simulated time, seconds.
    pub seconds: f64,
}

/// A distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// 99 of 100 are below.
    pub p99: f64,
}

/// How evenly something is spread over the ranks; the mean over time where it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Balance {
    /// The highest rank in units of the mean; 1 is even.
    pub max_over_mean: f64,
    /// Standard deviation in units of the mean; 0 is even.
    pub cv: f64,
    #[serde(skip)]
    samples: u32,
}

impl Outcome {
    /// Share of the prompt tokens that was cached where they were computed.
    pub fn hit_rate(&self) -> f64 {
        self.share(self.cached_tokens)
    }

    /// Share that one endless cache for all would have found.
    pub fn possible_rate(&self) -> f64 {
        self.share(self.possible_tokens)
    }

    /// Share that is missing to what was possible, because another rank had it when the request was placed.
    pub fn lost_to_placement(&self) -> f64 {
        self.share(self.best_tokens.saturating_sub(self.cached_tokens))
    }

    /// Share that is missing to what was possible: the regret.
    pub fn regret(&self) -> f64 {
        self.share(self.possible_tokens.saturating_sub(self.cached_tokens))
    }

    /// Sessions moved in all.
    pub fn moves(&self) -> u64 {
        self.rebinds.iter().map(|(_, count)| count).sum()
    }

    fn share(&self, tokens: u64) -> f64 {
        tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return Self::default() };
        let at = |share: f64| values[((values.len() as f64 * share) as usize).min(last)];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Self { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

impl Balance {
    /// Takes one look at the ranks in. Nothing anywhere is no look.
    pub(crate) fn sample(&mut self, ranks: impl Iterator<Item = f64>) {
        let values: Vec<f64> = ranks.collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        if mean <= 0.0 {
            return;
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let highest = values.iter().copied().fold(0.0, f64::max);
        self.samples += 1;
        let part = 1.0 / f64::from(self.samples);
        self.max_over_mean += (highest / mean - self.max_over_mean) * part;
        self.cv += (variance.sqrt() / mean - self.cv) * part;
    }
}

/// What is counted on the way.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) best_tokens: u64,
    pub(crate) possible_tokens: u64,
    pub(crate) first_token: Vec<f64>,
    pub(crate) wait: Vec<f64>,
    pub(crate) computed: Balance,
    pub(crate) sessions: Balance,
    pub(crate) running: Balance,
    pub(crate) refused: u64,
    pub(crate) given_up: u64,
}

impl Tally {
    pub(crate) fn outcome(self, name: &str, took: Duration, stats: &Stats) -> Outcome {
        let rebinds = RebindReason::ALL.iter().map(|reason| (reason.label(), stats.rebinds_for(*reason)));
        Outcome {
            name: name.to_owned(),
            requests: self.requests,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            best_tokens: self.best_tokens,
            possible_tokens: self.possible_tokens,
            first_token: Spread::of(self.first_token),
            wait: Spread::of(self.wait),
            computed: self.computed,
            sessions: self.sessions,
            running: self.running,
            rebinds: rebinds.filter(|(_, count)| *count > 0).collect(),
            spread_lost_tokens: stats.spread_lost_tokens,
            refused: self.refused,
            given_up: self.given_up,
            seconds: took.as_secs_f64(),
        }
    }
}

/// Writes replays beside each other, as a Markdown table.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut out = String::from(
        "| options | hit % | possible | placement lost | TTFT s mean | p50 | p90 | p99 | queued p99 | computed max/mean (CV) | sessions | running | moved | refused |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for outcome in outcomes {
        let percent = |share: f64| share * 100.0;
        let balance = |balance: &Balance| format!("{:.2} ({:.2})", balance.max_over_mean, balance.cv);
        let Spread { mean, p50, p90, p99 } = outcome.first_token;
        let _infallible = writeln!(
            out,
            "| {} | {:.2} | {:.2} | {:.2} | {mean:.2} | {p50:.2} | {p90:.2} | {p99:.2} | {:.1} | {} | {} | {} | {} | {} |",
            outcome.name,
            percent(outcome.hit_rate()),
            percent(outcome.possible_rate()),
            percent(outcome.lost_to_placement()),
            outcome.wait.p99,
            balance(&outcome.computed),
            balance(&outcome.sessions),
            balance(&outcome.running),
            outcome.moves(),
            outcome.refused,
        );
    }
    out
}

/// Returns replays as JSON: every figure of [`Outcome`] and the shares derived from them.
pub fn json(outcomes: &[Outcome]) -> Value {
    let one = |outcome: &Outcome| {
        let mut value = serde_json::to_value(outcome).unwrap_or_default();
        value["hit_rate"] = object!(outcome.hit_rate());
        value["possible_rate"] = object!(outcome.possible_rate());
        value["lost_to_placement"] = object!(outcome.lost_to_placement());
        value["regret"] = object!(outcome.regret());
        value
    };
    outcomes.iter().map(one).collect()
}
