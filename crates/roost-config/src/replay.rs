//! What `roost replay-routing` needs to know.

use std::path::PathBuf;
use std::time::Duration;

use crate::{
    command::{self, Command},
    environment::Environment,
    problem::{Problem, Problems},
    serve::Serve,
    values::Values,
};

/// Options of `roost replay-routing`: a trace, a simulated fleet and sets of options to compare.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Files of the trace.
    pub traces: Vec<PathBuf>,
    /// Options of a generated trace, as text.
    pub generate: Option<String>,
    /// Tokens per block of a Mooncake trace.
    pub mooncake_block: u32,
    /// Sessions at the same time; 0: all.
    pub lanes: usize,
    /// Time over which they begin.
    pub ramp: Duration,
    /// The longest pause between two turns.
    pub longest_pause: Duration,
    /// Factor on pauses and recorded times.
    pub time_scale: f64,
    /// The sets, at least one.
    pub sets: Vec<OptionSet>,
    /// Print JSON.
    pub json: bool,
    /// Seed of tie-breaks and draws.
    pub seed: u64,
    /// Workers.
    pub workers: u32,
    /// Data-parallel ranks of each.
    pub ranks: u32,
    /// KV cache of a rank, tokens.
    pub cache_tokens: u64,
    /// Prompt tokens that a rank computes a second.
    pub prefill_speed: f64,
    /// Time from token to token with one running request.
    pub decode_step: Duration,
    /// What each further running request adds to it.
    pub decode_step_each: Duration,
    /// Prompt tokens that a rank computes at once.
    pub max_batched_tokens: u64,
}

/// A set of options of `roost serve` with a name.
#[derive(Debug, Clone)]
pub struct OptionSet {
    /// The name.
    pub name: String,
    /// What the options say.
    pub serve: Box<Serve>,
}

pub(crate) fn build(values: &Values, environment: &Environment) -> Result<Replay, Problems> {
    let common = values.text("common").unwrap_or_default();
    let mut given = values.texts("with");
    if given.is_empty() {
        given.push("default:".to_owned());
    }
    let mut problems = Vec::new();
    let mut sets = Vec::new();
    for text in given {
        let Some((name, own)) = text.split_once(':') else {
            problems.push(Problem::new("--with", format!("`{text}` is not `name: options`")));
            continue;
        };
        match serve(&common, own, environment) {
            Ok(serve) => sets.push(OptionSet { name: name.trim().to_owned(), serve }),
            Err(error) => problems.push(Problem::new("--with", format!("`{}`: {error}", name.trim()))),
        }
    }
    let traces: Vec<PathBuf> = values.texts("trace").into_iter().map(PathBuf::from).collect();
    let generate = values.text("generate");
    if traces.is_empty() == generate.is_none() {
        problems.push(Problem::new("--trace", "a trace or --generate is needed, and not both".to_owned()));
    }
    let replay = Replay {
        traces,
        generate,
        mooncake_block: values.u32("mooncake-block-size"),
        lanes: values.size("lanes"),
        ramp: values.duration("ramp-secs"),
        longest_pause: values.duration("longest-pause-secs"),
        time_scale: values.number("time-scale"),
        sets,
        json: values.switch("json"),
        seed: values.integer("seed"),
        workers: values.u32("workers"),
        ranks: values.u32("ranks"),
        cache_tokens: values.integer("cache-tokens"),
        prefill_speed: values.number("prefill-speed"),
        decode_step: values.duration("decode-step-ms"),
        decode_step_each: values.duration("decode-step-each-ms"),
        max_batched_tokens: values.integer("max-batched-tokens"),
    };
    match problems.is_empty() {
        true => Ok(replay),
        false => Err(Problems::new(problems, Some("replay-routing"))),
    }
}

/// Reads a set. Those of its own come last and win.
fn serve(common: &str, own: &str, environment: &Environment) -> Result<Box<Serve>, String> {
    let arguments = ["serve"].into_iter().chain(common.split_whitespace()).chain(own.split_whitespace());
    match command::parse(arguments, environment) {
        Ok(Command::Serve(serve)) => Ok(serve),
        Ok(_) => Err("these are no options to serve with".to_owned()),
        Err(problems) => Err(problems.to_string()),
    }
}
