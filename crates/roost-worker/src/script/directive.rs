//! Answers that a prompt itself spells out, as JSON between `@@` marks.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Script, Step};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Directive {
    out: Option<String>,
    ids: Option<Vec<u32>>,
    chunk: Option<usize>,
    nidx: Option<u32>,
    finish: Option<String>,
    usage: Option<Value>,
    raise: Option<String>,
    msg: Option<String>,
    raiseat: Option<usize>,
    delay: Option<f64>,
    hang: Option<f64>,
    exit: bool,
}

/// The script of the last directive in `prompt`.
pub(super) fn last(prompt: &str) -> Option<Script> {
    let mut begin = prompt.len();
    while let Some(start) = prompt[..begin].rfind("@@{") {
        let rest = &prompt[start + 2..];
        let ends = rest.match_indices("}@@").map(|(at, _)| &rest[..=at]);
        if let Some(directive) = ends.filter_map(|text| serde_json::from_str(text).ok()).next() {
            return Some(script(directive));
        }
        begin = start;
    }
    None
}

fn script(directive: Directive) -> Script {
    let seconds = |seconds: Option<f64>| seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    let mut steps = Vec::new();
    if let Some(error) = directive.raise {
        let text = directive.msg.unwrap_or_else(|| "boom".to_owned());
        // Python engines report a wrong value as the request's fault, and anything else as their own.
        let invalid = error == "ValueError" || error == "TypeError";
        steps.push(Step {
            reject: invalid.then(|| text.clone()),
            raise: (!invalid).then_some(text),
            ..Step::default()
        });
    }
    steps.push(Step { exit: directive.exit, sleep: seconds(directive.hang), ..Step::default() });
    steps.push(Step {
        text: directive.ids.is_none().then(|| directive.out.unwrap_or_else(|| "Hello".to_owned())),
        ids: directive.ids,
        per: Some(directive.chunk.unwrap_or(1)),
        gap: seconds(directive.delay),
        at_most: directive.raiseat,
        choices: directive.nidx,
        ..Step::default()
    });
    if directive.raiseat.is_some() {
        steps.push(Step::raise("mid-stream boom"));
    }
    let reason = directive.finish.unwrap_or_else(|| "stop".to_owned());
    steps.push(match directive.usage {
        Some(usage) => {
            let raw = json!({"token_ids": [], "finish_reason": reason, "completion_usage": usage});
            Step { raw: Some(raw), ..Step::default() }
        }
        None => Step { usage: Some(false), choices: directive.nidx, ..Step::finish(reason) },
    });
    Script { steps }
}
