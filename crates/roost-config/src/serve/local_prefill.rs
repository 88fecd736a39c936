//! Conditional disaggregation: one switch and one JSON object, as Dynamo has them.

use serde::Deserialize;

use crate::problem::Problem;
use crate::resolve::Resolved;
use crate::value::Value;
use crate::values::Values;

const SWITCH: &str = "router-conditional-disagg";
const SETTINGS: &str = "router-conditional-disagg-config";

/// When decode workers compute prompts themselves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalPrefillOptions {
    /// What speaks for it.
    pub policy: LocalPrefillPolicy,
    /// Prompt tokens that the decode worker does not have must be fewer than this.
    pub new_tokens: u32,
    /// And a smaller part of the prompt than this, 0 to 1.
    pub new_share: f64,
    /// A prefill worker is busy beyond this many times its batch token limit. `None`: never.
    pub prefill_busy: Option<f64>,
    /// A decode worker is left alone beyond this share of its KV blocks. `None`: never.
    pub decode_busy: Option<f64>,
}

/// What speaks for computing a prompt on its decode worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalPrefillPolicy {
    /// Little of it is new there.
    #[default]
    IslBounding,
    /// The prefill worker is busy.
    PrefillLoad,
    /// Either.
    IslOrLoad,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    policy: LocalPrefillPolicy,
    eff_isl_threshold: u32,
    eff_isl_ratio_threshold: f64,
    prefill_busy_threshold: Option<f64>,
    decode_busy_threshold: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            policy: LocalPrefillPolicy::default(),
            eff_isl_threshold: 2048,
            eff_isl_ratio_threshold: 0.7,
            prefill_busy_threshold: None,
            decode_busy_threshold: None,
        }
    }
}

impl Settings {
    fn read(text: &str) -> Result<Self, String> {
        let settings: Settings = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !(0.0..=1.0).contains(&settings.eff_isl_ratio_threshold) {
            return Err("eff_isl_ratio_threshold must be from 0 to 1".to_owned());
        }
        for (name, value) in [
            ("prefill_busy_threshold", settings.prefill_busy_threshold),
            ("decode_busy_threshold", settings.decode_busy_threshold),
        ] {
            if value.is_some_and(|value| value < 0.0) {
                return Err(format!("{name} must be at least 0"));
            }
        }
        Ok(settings)
    }
}

impl LocalPrefillOptions {
    /// `None`: prompts are computed on prefill workers, always.
    pub(super) fn of(values: &Values) -> Option<Self> {
        let settings = match values.text(SETTINGS) {
            Some(text) => Settings::read(&text).expect("checked when the options were resolved"),
            None => Settings::default(),
        };
        if !values.switch(SWITCH) {
            return None;
        }
        Some(LocalPrefillOptions {
            policy: settings.policy,
            new_tokens: settings.eff_isl_threshold,
            new_share: settings.eff_isl_ratio_threshold,
            prefill_busy: settings
                .prefill_busy_threshold
                .or_else(|| values.optional_number("router-queue-threshold")),
            decode_busy: settings.decode_busy_threshold,
        })
    }
}

/// Rules that one option alone cannot state.
pub(super) fn check(resolved: &mut Resolved) {
    let on = resolved.value(SWITCH) == Some(&Value::Switch(true));
    let mut settings = Settings::default();
    let mut problems = Vec::new();
    let subject = |name: &str| match resolved.source(name) {
        Some(source) => source.to_string(),
        None => format!("--{name}"),
    };
    if let Some(Value::Text(text)) = resolved.value(SETTINGS) {
        match Settings::read(text) {
            Ok(read) => settings = read,
            Err(why) => {
                let message = format!(
                    "{why}; a JSON object with any of policy (isl_bounding, prefill_load, isl_or_load), \
                     eff_isl_threshold, eff_isl_ratio_threshold, prefill_busy_threshold and decode_busy_threshold"
                );
                problems.push(Problem::new(subject(SETTINGS), message));
            }
        }
        if !on {
            problems.push(Problem::new(subject(SETTINGS), format!("is of no use without --{SWITCH}")));
        }
    }
    if on {
        if resolved.value("router-mode") != Some(&Value::Choice("kv")) {
            problems.push(Problem::new(subject(SWITCH), "needs --router-mode kv"));
        }
        if resolved.value("router-kv-events") != Some(&Value::Switch(true)) {
            problems.push(Problem::new(subject(SWITCH), "needs --router-kv-events"));
        }
        let line =
            settings.prefill_busy_threshold.is_some() || resolved.value("router-queue-threshold").is_some();
        if settings.policy != LocalPrefillPolicy::IslBounding && !line {
            let message =
                "this policy needs prefill_busy_threshold, or --router-queue-threshold in its place";
            problems.push(Problem::new(subject(SETTINGS), message));
        }
    }
    resolved.problems.extend(problems);
}
