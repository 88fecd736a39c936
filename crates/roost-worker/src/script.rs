//! Scripted answers: what a mock engine says, when, and how it fails.
//!
//! A prompt chooses its script by name: the last `@@name@@` in it that is in the book. A book may also let
//! prompts bring their own: see [`ScriptBook::with_directives`].

mod directive;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::Role;

/// A book that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not the JSON of a book: an object of arrays of steps.
    #[error("script book is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Scripts by name.
#[derive(Debug, Clone, Default)]
pub struct ScriptBook {
    scripts: BTreeMap<String, Script>,
    directives: bool,
    fallback: Option<Script>,
}

/// The steps of one scripted answer, in order.
///
/// A script that ends without a `finish` step ends its stream without a finish reason.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Script {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One step: its parts happen in the order in which they are declared here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// Skip the step unless the engine has this role (`prefill` or `decode`).
    #[serde(deserialize_with = "role")]
    pub role: Option<Role>,
    /// Pause before the rest of the step; cancellation ends it.
    #[serde(deserialize_with = "seconds", rename = "sleep_s")]
    pub sleep: Option<Duration>,
    /// Text to say.
    pub text: Option<String>,
    /// Text to say a number of times.
    pub text_repeat: Option<(String, usize)>,
    /// Token ids to emit in one item, or to put on the item of `finish`.
    pub ids: Option<Vec<u32>>,
    /// Tokens per item of what is said; all in one by default.
    pub per: Option<usize>,
    /// Say at most this many tokens.
    pub at_most: Option<usize>,
    /// Say everything this many times, as that many choices; also `finish` is repeated.
    pub choices: Option<u32>,
    /// Pause between the items of what is said.
    #[serde(deserialize_with = "seconds", rename = "gap_s")]
    pub gap: Option<Duration>,
    /// Log probability to attach to every token of this step.
    #[serde(deserialize_with = "logprob")]
    pub logprobs: Option<f64>,
    /// A response object to send as it is.
    pub raw: Option<Value>,
    /// Fail as an engine does, with this internal text.
    pub raise: Option<String>,
    /// Refuse the request as invalid, with this public text.
    pub raise_invalid: Option<String>,
    /// Refuse the request as invalid, with this internal text.
    pub reject: Option<String>,
    /// End the process (the worker, in process) at once.
    #[serde(deserialize_with = "flag")]
    pub exit: bool,
    /// End the answer with this finish reason.
    pub finish: Option<String>,
    /// Cached prompt tokens to report with `finish`, instead of the simulated number.
    pub cached: Option<u64>,
    /// Whether `finish` reports usage; it does by default.
    pub usage: Option<bool>,
}

impl ScriptBook {
    /// Reads a book from JSON: `{"name": [step, …], …}`.
    pub fn from_json(json: &str) -> Result<Self, ScriptError> {
        Ok(Self { scripts: serde_json::from_str(json)?, ..Self::default() })
    }

    /// Also obeys prompts that say what to answer: the last `@@{"out": "text", …}@@`.
    ///
    /// Keys: `out` or `ids`; `chunk`, tokens per item (1); `nidx`, number of choices; `finish`, the reason
    /// (`stop`); `usage`, an object to send with it; `raise` and `msg`, an error before the first item;
    /// `raiseat`, an error after that many tokens; `delay`, seconds between items; `hang`, seconds before
    /// the first; `exit`. Unknown directives are not obeyed.
    #[must_use]
    pub fn with_directives(mut self) -> Self {
        self.directives = true;
        self
    }

    /// Answers with `script` when the prompt chooses none.
    #[must_use]
    pub fn with_fallback(mut self, script: Script) -> Self {
        self.fallback = Some(script);
        self
    }

    /// Adds or replaces one script.
    pub fn insert(&mut self, name: impl Into<String>, script: Script) {
        self.scripts.insert(name.into(), script);
    }

    /// Looks a script up by name.
    pub fn get(&self, name: &str) -> Option<&Script> {
        self.scripts.get(name)
    }

    /// Number of scripts.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Whether no prompt can choose a script.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty() && !self.directives && self.fallback.is_none()
    }

    /// The script that a prompt asks for: its last directive, if directives are obeyed, else the last
    /// `@@name@@` that names one, else the fallback.
    pub fn select(&self, prompt: &str) -> Option<Cow<'_, Script>> {
        let directive = self.directives.then(|| directive::last(prompt)).flatten();
        let named = || self.named(prompt).or(self.fallback.as_ref()).map(Cow::Borrowed);
        directive.map(Cow::Owned).or_else(named)
    }

    fn named(&self, prompt: &str) -> Option<&Script> {
        let mut marks: Vec<usize> = prompt.match_indices("@@").map(|(at, _)| at).collect();
        while let Some(end) = marks.pop() {
            if let Some(&start) = marks.last()
                && let Some(script) = prompt.get(start + 2..end).and_then(|name| self.scripts.get(name))
            {
                return Some(script);
            }
        }
        None
    }
}

impl Script {
    /// Makes a script of `steps`.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect() }
    }

    /// Says `text` in one item and stops.
    pub fn say(text: impl Into<String>) -> Self {
        Self::new([Step::text(text), Step::finish("stop")])
    }

    /// The steps that concern an engine of `role`.
    pub fn steps_for(&self, role: Role) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.role.is_none_or(|only| only == role))
    }
}

impl Step {
    /// A step that says `text` in one item.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A step that pauses.
    pub fn sleep(pause: Duration) -> Self {
        Self { sleep: Some(pause), ..Self::default() }
    }

    /// A step that ends the answer.
    pub fn finish(reason: impl Into<String>) -> Self {
        Self { finish: Some(reason.into()), ..Self::default() }
    }

    /// A step that fails.
    pub fn raise(message: impl Into<String>) -> Self {
        Self { raise: Some(message.into()), ..Self::default() }
    }

    /// The same step, `per` tokens per item and `gap` between items.
    #[must_use]
    pub fn paced(mut self, per: usize, gap: Duration) -> Self {
        self.per = Some(per);
        self.gap = Some(gap);
        self
    }
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds).map(Some).map_err(serde::de::Error::custom)
}

fn role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Role>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "prefill" => Ok(Some(Role::Prefill)),
        "decode" => Ok(Some(Role::Decode)),
        other => Err(serde::de::Error::unknown_variant(other, &["prefill", "decode"])),
    }
}

/// `true` stands for a plausible constant.
fn logprob<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(on) => Ok(on.then_some(-0.5)),
        Value::Number(number) => Ok(number.as_f64()),
        Value::Null => Ok(None),
        other => Err(serde::de::Error::custom(format_args!("not a log probability: {other}"))),
    }
}

/// `exit` may be written as `true` or as an exit code.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(!matches!(Value::deserialize(deserializer)?, Value::Null | Value::Bool(false)))
}

#[cfg(test)]
mod tests;
