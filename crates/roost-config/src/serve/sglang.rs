//! Plain SGLang servers instead of discovered workers.

use std::path::PathBuf;
use std::time::Duration;

use crate::{problem::Problem, resolve::Resolved, value::Value, values::Values};

/// Which SGLang servers are routed to. Addresses are as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SglangOptions {
    /// Servers that do all of a request.
    pub aggregated: Vec<String>,
    /// Servers that prefill, with the port of their bootstrap server where it was given.
    pub prefill: Vec<(String, Option<u16>)>,
    /// Servers that decode.
    pub decode: Vec<String>,
    /// File with further ones.
    pub file: Option<PathBuf>,
    /// Bearer token for all of them.
    pub api_key: Option<String>,
    /// Pause between two probes of a server.
    pub probe_interval: Duration,
    /// Pause between two resolutions of names and looks at the file.
    pub resolve_interval: Duration,
}

/// Options that name servers.
const SOURCES: [&str; 4] = ["sglang", "sglang-prefill", "sglang-decode", "sglang-file"];

impl SglangOptions {
    /// `None` when no server was named: workers are discovered then.
    pub(super) fn of(values: &Values) -> Option<Self> {
        let mut prefill: Vec<(String, Option<u16>)> = Vec::new();
        for word in values.words("sglang-prefill") {
            match (word.parse(), prefill.last_mut()) {
                (Ok(port), Some((_, bootstrap @ None))) => *bootstrap = Some(port),
                _ => prefill.push((word, None)),
            }
        }
        let options = SglangOptions {
            aggregated: values.words("sglang"),
            prefill,
            decode: values.words("sglang-decode"),
            file: values.path("sglang-file"),
            api_key: values.text("sglang-api-key"),
            probe_interval: values.duration("sglang-probe-interval-ms"),
            resolve_interval: values.duration("sglang-resolve-interval-ms"),
        };
        let names_none =
            options.aggregated.is_empty() && options.prefill.is_empty() && options.decode.is_empty();
        (!names_none || options.file.is_some()).then_some(options)
    }
}

/// Named servers are all the workers there are.
pub(super) fn check(resolved: &mut Resolved) {
    let Some(source) = SOURCES.iter().find_map(|name| resolved.source(name)) else { return };
    let named = source.to_string();
    if let Some(store) = resolved.source("discovery-backend") {
        let store = store.to_string();
        if resolved.value("discovery-backend") != Some(&Value::Choice("mem")) {
            let message = format!("cannot be combined with {named}: named servers are not discovered");
            resolved.problems.push(Problem::new(store, message));
        }
    }
    resolved.imply("--sglang", "discovery-backend", Value::Choice("mem"));
    let given = |name: &str| resolved.value(name).is_some();
    if given("sglang-file") || given("sglang-prefill") == given("sglang-decode") {
        return;
    }
    let (one, other) = if given("sglang-prefill") { ("prefill", "decode") } else { ("decode", "prefill") };
    let message = format!("is of no use without --sglang-{other}");
    resolved.problems.push(Problem::new(format!("--sglang-{one}"), message));
}
