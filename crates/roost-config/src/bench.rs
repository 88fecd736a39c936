//! What `roost bench` needs to know.

use std::path::PathBuf;
use std::time::Duration;

use crate::problem::{Problem, Problems};
use crate::values::Values;

/// Options of `roost bench`: a trace, endpoints and how the one is replayed against the others.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Endpoints as text, the last one is the reference.
    pub targets: Vec<String>,
    /// Files of the trace; none: a generated one.
    pub traces: Vec<PathBuf>,
    /// Options of a generated trace, as text.
    pub generate: String,
    /// Tokens per block of a Mooncake trace.
    pub mooncake_block: u32,
    /// Name of the model.
    pub model: Option<String>,
    /// Sessions at the same time.
    pub lanes: usize,
    /// Time over which they begin.
    pub ramp: Duration,
    /// Time that is measured.
    pub measured: Duration,
    /// Runs against each endpoint.
    pub rounds: u32,
    /// The longest pause between two turns.
    pub longest_pause: Duration,
    /// Factor on pauses and recorded times.
    pub time_scale: f64,
    /// The longest answer asked for, tokens.
    pub longest_answer: u32,
    /// How long a request may take.
    pub patience: Duration,
    /// Threads of the client.
    pub threads: usize,
    /// Seed of the text.
    pub seed: u64,
    /// File for the page with charts.
    pub report: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
}

pub(crate) fn build(values: &Values) -> Result<Bench, Problems> {
    let bench = Bench {
        targets: values.texts("url"),
        traces: values.texts("trace").into_iter().map(PathBuf::from).collect(),
        generate: values.required_text("generate"),
        mooncake_block: values.u32("mooncake-block-size"),
        model: values.text("model"),
        lanes: values.size("lanes"),
        ramp: values.duration("ramp-secs"),
        measured: values.duration("duration-secs"),
        rounds: values.u32("rounds"),
        longest_pause: values.duration("longest-pause-secs"),
        time_scale: values.number("time-scale"),
        longest_answer: values.u32("longest-answer"),
        patience: values.duration("patience-secs"),
        threads: values.size("threads"),
        seed: values.integer("seed"),
        report: values.path("report"),
        json: values.switch("json"),
    };
    if bench.targets.is_empty() {
        let problem = Problem::new("--url", "at least one endpoint is needed".to_owned());
        return Err(Problems::new(vec![problem], Some("bench")));
    }
    Ok(bench)
}
