use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fields::{Fields, interpret};
use crate::{ApiError, Flavor, Raw};

/// Most stop strings of one request.
const STOP_LIMIT: usize = 32;
/// Most alternatives per token that a chat may ask for.
const TOP_LOGPROBS_LIMIT: u32 = 20;
/// Most alternatives per token that a text completion may ask for.
const COMPLETION_LOGPROBS_LIMIT: u32 = 5;
/// Most tokens one request may ask for.
const MAX_TOKENS_LIMIT: u64 = 1_048_576;

/// How much to generate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Upper limit of generated tokens; `None` leaves it to the engine.
    pub max_tokens: Option<u32>,
    /// Tokens before any stop condition applies.
    pub min_tokens: Option<u32>,
    /// Budget of reasoning tokens.
    pub max_thinking_tokens: Option<u32>,
}

/// When to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stop {
    /// Stop strings.
    pub strings: Vec<String>,
    /// Stop token ids.
    pub token_ids: Vec<u32>,
    /// Generate past the model's end-of-sequence ids.
    pub ignore_eos: Option<bool>,
    /// Keep the stop string in the text.
    pub include_stop_str: Option<bool>,
}

/// Sampling numbers, as sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampling {
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// Above 0, to 1.
    pub top_p: Option<f64>,
    /// −1 (off) or more.
    pub top_k: Option<i32>,
    /// 0 to 1.
    pub min_p: Option<f64>,
    /// −2 to 2.
    pub frequency_penalty: Option<f64>,
    /// −2 to 2.
    pub presence_penalty: Option<f64>,
    /// Above 0, to 2.
    pub repetition_penalty: Option<f64>,
    /// Seed of the engine's sampler.
    pub seed: Option<i64>,
    /// Choices to generate, 1 to 128.
    pub n: Option<u8>,
    /// Token id to what is added to its logit, −100 to 100.
    pub logit_bias: BTreeMap<u32, f64>,
    /// Constrained decoding.
    pub guided: Guided,
}

/// Constrained decoding; at most one member is set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Guided {
    /// JSON schema.
    pub json: Option<Raw>,
    /// Regular expression.
    pub regex: Option<String>,
    /// One of these texts.
    pub choice: Option<Vec<String>>,
    /// Grammar in the engine's own notation.
    pub grammar: Option<String>,
    /// What an answer is made of, or what begins at a trigger: a description for the engine's grammar library, verbatim.
    pub structural_tag: Option<Raw>,
}

/// What the answer shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Leave special tokens out of the text; the default is true.
    pub skip_special_tokens: Option<bool>,
    /// Log probabilities of the tokens, with so many alternatives for each; `None` for none at all.
    pub logprobs: Option<u32>,
    /// Log probabilities name tokens by id, not by text.
    pub return_tokens_as_token_ids: Option<bool>,
}

/// `stream_options`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// One more chunk with the usage.
    pub include_usage: bool,
    /// Running usage on every chunk.
    pub continuous_usage_stats: bool,
}

impl Limits {
    pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Self, ApiError> {
        // `max_completion_tokens` wins, as in the peer.
        let mut max_tokens = None;
        for name in ["max_tokens", "max_completion_tokens"] {
            if let Some(value) = fields.get::<u64>(name)? {
                max_tokens = Some(token_limit(name, value)?);
            }
        }
        let min_tokens = fields.get("min_tokens")?;
        if let (Some(min), Some(max)) = (min_tokens, max_tokens)
            && min > max
        {
            return Err(range("min_tokens", &format!("at most max_tokens ({max})"), min));
        }
        Ok(Limits { max_tokens, min_tokens, max_thinking_tokens: fields.get("thinking_token_budget")? })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Stop {
    pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Self, ApiError> {
        let strings = match fields.raw("stop").map(|v| interpret::<OneOrMany>("", "stop", v)) {
            None => Vec::new(),
            Some(Err(_)) => {
                return Err(ApiError::invalid("stop", "`stop` must be a string or a list of strings"));
            }
            Some(Ok(OneOrMany::One(one))) => vec![one],
            Some(Ok(OneOrMany::Many(many))) => many,
        };
        check_stops("stop", &strings)?;
        Ok(Stop {
            strings,
            token_ids: fields.get("stop_token_ids")?.unwrap_or_default(),
            ignore_eos: fields.get("ignore_eos")?,
            include_stop_str: fields.get("include_stop_str_in_output")?,
        })
    }
}

/// Checks the stop strings that member `name` has.
pub(crate) fn check_stops(name: &str, strings: &[String]) -> Result<(), ApiError> {
    if strings.len() > STOP_LIMIT {
        return Err(range(name, &format!("at most {STOP_LIMIT} strings"), strings.len()));
    }
    if strings.iter().any(String::is_empty) {
        return Err(ApiError::invalid(name, format!("`{name}` must not contain empty strings")));
    }
    Ok(())
}

/// Checks a token limit that member `name` has.
pub(crate) fn token_limit(name: &str, value: u64) -> Result<u32, ApiError> {
    if value == 0 || value > MAX_TOKENS_LIMIT {
        return Err(range(name, &format!("between 1 and {MAX_TOKENS_LIMIT}"), value));
    }
    Ok(value as u32)
}

impl Sampling {
    pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Self, ApiError> {
        let mut number =
            |name: &'static str, allowed: &str, ok: fn(f64) -> bool| -> Result<Option<f64>, ApiError> {
                let value = fields.get::<f64>(name)?;
                match value {
                    Some(v) if !ok(v) => Err(range(name, allowed, v)),
                    _ => Ok(value),
                }
            };
        let temperature = number("temperature", "between 0 and 2", |v| (0.0..=2.0).contains(&v))?;
        let top_p = number("top_p", "above 0 and at most 1", |v| v > 0.0 && v <= 1.0)?;
        let min_p = number("min_p", "between 0 and 1", |v| (0.0..=1.0).contains(&v))?;
        let frequency_penalty =
            number("frequency_penalty", "between -2 and 2", |v| (-2.0..=2.0).contains(&v))?;
        let presence_penalty = number("presence_penalty", "between -2 and 2", |v| (-2.0..=2.0).contains(&v))?;
        let repetition_penalty =
            number("repetition_penalty", "above 0 and at most 2", |v| v > 0.0 && v <= 2.0)?;
        let top_k = fields.get::<i32>("top_k")?;
        if let Some(k) = top_k
            && k < -1
        {
            return Err(range("top_k", "-1 or more", k));
        }
        let n = fields.get::<u8>("n")?;
        match n {
            Some(0 | 129..) => return Err(range("n", "between 1 and 128", n.unwrap_or(0))),
            Some(2..) if temperature == Some(0.0) => {
                return Err(ApiError::invalid("n", "`n` above 1 needs a temperature above 0"));
            }
            _ => {}
        }
        Ok(Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
            frequency_penalty,
            presence_penalty,
            repetition_penalty,
            seed: fields.get("seed")?,
            n,
            logit_bias: logit_bias(fields)?,
            guided: Guided::take(fields)?,
        })
    }
}

#[derive(Deserialize)]
struct ResponseFormat<'a> {
    r#type: String,
    #[serde(borrow)]
    json_schema: Option<JsonSchema<'a>>,
    /// Of a structural tag: what the answer is made of.
    format: Option<serde::de::IgnoredAny>,
    /// Of an older form of it: what a trigger begins.
    structures: Option<serde::de::IgnoredAny>,
    triggers: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct JsonSchema<'a> {
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
}

impl Guided {
    fn take(fields: &mut Fields<'_>) -> Result<Self, ApiError> {
        let mut guided = Guided {
            json: fields.slice("guided_json"),
            regex: fields.get("guided_regex")?,
            choice: fields.get("guided_choice")?,
            grammar: fields.get("guided_grammar")?,
            structural_tag: None,
        };
        if let Some(value) = fields.raw("response_format") {
            let format: ResponseFormat<'_> = serde_json::from_str(value.get()).map_err(|e| {
                ApiError::invalid("response_format", format!("Failed to deserialize `response_format`: {e}"))
            })?;
            match format.r#type.as_str() {
                "text" => {}
                "json_object" => guided.json = Some(Raw::slice_of(fields.body(), r#"{"type":"object"}"#)),
                "json_schema" => {
                    let schema = format.json_schema.and_then(|s| s.schema).ok_or_else(|| {
                        ApiError::invalid(
                            "response_format.json_schema",
                            "`response_format.json_schema.schema` is missing",
                        )
                    })?;
                    guided.json = Some(Raw::slice_of(fields.body(), schema.get()));
                }
                "structural_tag" => {
                    let is_older = format.structures.is_some() && format.triggers.is_some();
                    if format.format.is_none() && !is_older {
                        return Err(ApiError::invalid(
                            "response_format.format",
                            "`response_format.format` is missing, or `structures` and `triggers` in place of it",
                        ));
                    }
                    guided.structural_tag = Some(Raw::slice_of(fields.body(), value.get()));
                }
                other => {
                    let shown: String = other.chars().take(64).collect();
                    return Err(ApiError::invalid(
                        "response_format.type",
                        format!(
                            "`response_format.type` must be text, json_object, json_schema or structural_tag, \
                             not `{shown}`"
                        ),
                    ));
                }
            }
        }
        let set = [
            guided.json.is_some(),
            guided.regex.is_some(),
            guided.choice.is_some(),
            guided.grammar.is_some(),
            guided.structural_tag.is_some(),
        ];
        if set.iter().filter(|set| **set).count() > 1 {
            return Err(ApiError::invalid(
                "guided_json",
                "only one kind of constrained decoding can be asked for",
            ));
        }
        Ok(guided)
    }

    /// Whether decoding is constrained.
    pub fn is_some(&self) -> bool {
        self.json.is_some()
            || self.regex.is_some()
            || self.choice.is_some()
            || self.grammar.is_some()
            || self.structural_tag.is_some()
    }
}

impl Output {
    pub(crate) fn take(fields: &mut Fields<'_>, flavor: Flavor) -> Result<Self, ApiError> {
        let logprobs = match flavor {
            Flavor::Chat => {
                let top = at_most(fields, "top_logprobs", TOP_LOGPROBS_LIMIT)?;
                // Without a number of alternatives the peer asks for the likeliest one.
                fields.get("logprobs")?.unwrap_or(false).then(|| top.unwrap_or(1))
            }
            Flavor::Completion => at_most(fields, "logprobs", COMPLETION_LOGPROBS_LIMIT)?,
        };
        Ok(Output {
            skip_special_tokens: fields.get("skip_special_tokens")?,
            logprobs,
            return_tokens_as_token_ids: fields.get("return_tokens_as_token_ids")?,
        })
    }
}

fn at_most(fields: &mut Fields<'_>, name: &str, limit: u32) -> Result<Option<u32>, ApiError> {
    match fields.get::<u32>(name)? {
        Some(n) if n > limit => Err(range(name, &format!("at most {limit}"), n)),
        n => Ok(n),
    }
}

/// JSON object keys are token ids in decimal.
fn logit_bias(fields: &mut Fields<'_>) -> Result<BTreeMap<u32, f64>, ApiError> {
    let bias: BTreeMap<u32, f64> = fields.get("logit_bias")?.unwrap_or_default();
    match bias.iter().find(|(_, bias)| !(-100.0..=100.0).contains(*bias)) {
        Some((id, bias)) => Err(range(&format!("logit_bias[{id}]"), "between -100 and 100", bias)),
        None => Ok(bias),
    }
}

impl StreamOptions {
    pub(crate) fn take(fields: &mut Fields<'_>, stream: bool) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct Wire {
            include_usage: Option<bool>,
            continuous_usage_stats: Option<bool>,
        }
        let Some(wire) = fields.get::<Wire>("stream_options")? else { return Ok(StreamOptions::default()) };
        if !stream {
            return Err(ApiError::invalid(
                "stream_options",
                "Validation: `stream_options` needs `stream: true`",
            ));
        }
        let include_usage = wire.include_usage.unwrap_or(false);
        Ok(StreamOptions {
            include_usage,
            continuous_usage_stats: include_usage && wire.continuous_usage_stats.unwrap_or(false),
        })
    }
}

fn range(name: &str, allowed: &str, got: impl std::fmt::Display) -> ApiError {
    ApiError::invalid(name, format!("Validation: `{name}` must be {allowed}, got {got}"))
}
