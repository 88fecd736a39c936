//! Text to value, by kind.

use std::{fmt, net::IpAddr, path::PathBuf, time::Duration};

use crate::spec::{Kind, TimeUnit};

/// A value of an option.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Switch(bool),
    Integer(u64),
    Number(f64),
    Duration(Duration),
    Bytes(u64),
    Text(String),
    Path(PathBuf),
    Ip(IpAddr),
    Choice(&'static str),
}

impl Value {
    /// Reads `text` as a value of `kind`. The error says what is wrong and what would be accepted.
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let read = match kind {
            Kind::Switch => parse_switch(trimmed).map(Self::Switch),
            Kind::Integer { min, max } => {
                trimmed.parse().ok().filter(|value| (min..=max).contains(value)).map(Self::Integer)
            }
            Kind::Number { min, max } => parse_number(trimmed, min, max).map(Self::Number),
            Kind::Duration { unit, min, max } => parse_duration(trimmed, unit, min, max).map(Self::Duration),
            Kind::Bytes { unit, min, max } => parse_bytes(trimmed, unit, min, max).map(Self::Bytes),
            Kind::Text | Kind::Texts | Kind::Words => {
                (!trimmed.is_empty()).then(|| Self::Text(trimmed.to_owned()))
            }
            Kind::Path => (!text.is_empty()).then(|| Self::Path(PathBuf::from(text))),
            Kind::Ip => trimmed.trim_matches(['[', ']']).parse().ok().map(Self::Ip),
            Kind::Choice { accepted, unavailable } => {
                if let Some((word, reason)) = unavailable.iter().find(|(word, _)| *word == trimmed) {
                    return Err(format!("`{word}` {reason}; accepted: {}", accepted.join(", ")));
                }
                accepted.iter().find(|word| **word == trimmed).map(|word| Self::Choice(word))
            }
        };
        read.ok_or_else(|| format!("`{text}` is not {}", describe(kind)))
    }
}

impl fmt::Display for Value {
    /// Writes the value as it could be given again.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => write!(out, "{value}"),
            Self::Integer(value) => write!(out, "{value}"),
            Self::Bytes(value) => {
                let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
                let (factor, unit) =
                    units.into_iter().find(|(factor, _)| value % factor == 0).unwrap_or((1, "B"));
                write!(out, "{}{unit}", value / factor)
            }
            Self::Number(value) => write!(out, "{value}"),
            Self::Duration(value) => write!(out, "{}", humantime::format_duration(*value)),
            Self::Text(value) => write!(out, "{value}"),
            Self::Path(value) => write!(out, "{}", value.display()),
            Self::Ip(value) => write!(out, "{value}"),
            Self::Choice(value) => write!(out, "{value}"),
        }
    }
}

/// What is accepted, as the end of a sentence that begins "is not".
pub(crate) fn describe(kind: Kind) -> String {
    match kind {
        Kind::Switch => "true, 1, yes, on or false, 0, no, off".to_owned(),
        Kind::Integer { min: 0, max: u64::MAX } => "a whole number".to_owned(),
        Kind::Integer { min, max: u64::MAX } => format!("a whole number of at least {min}"),
        Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Number { min, max: f64::MAX } => format!("a number of at least {min}"),
        Kind::Number { min, max } => format!("a number from {min} to {max}"),
        Kind::Duration { unit, min, max } => {
            let unit = match unit {
                TimeUnit::Seconds => "seconds",
                TimeUnit::Milliseconds => "milliseconds",
            };
            format!(
                "a duration from {min} to {max} {unit} (a number of {unit}, or with a unit such as `500ms`, `2h`)"
            )
        }
        Kind::Bytes { unit, min, max } => {
            let bare = if unit == 1 { "bytes" } else { "MiB" };
            format!(
                "a size from {} to {} {bare} (a number of {bare}, or with a unit such as `45MiB`, `8GB`)",
                min / unit,
                max / unit
            )
        }
        Kind::Text | Kind::Texts | Kind::Words => "a text that is not empty".to_owned(),
        Kind::Path => "a path".to_owned(),
        Kind::Ip => "an IP address".to_owned(),
        Kind::Choice { accepted, .. } => format!("one of {}", accepted.join(", ")),
    }
}

fn parse_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn parse_number(text: &str, min: f64, max: f64) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite() && (min..=max).contains(value))
}

fn parse_duration(text: &str, unit: TimeUnit, min: f64, max: f64) -> Option<Duration> {
    let per_second = match unit {
        TimeUnit::Seconds => 1.0,
        TimeUnit::Milliseconds => 1000.0,
    };
    if min == 0.0 && text.eq_ignore_ascii_case("off") {
        return Some(Duration::ZERO);
    }
    let duration = match text.parse::<f64>() {
        Ok(bare) => Duration::try_from_secs_f64(bare / per_second).ok()?,
        Err(_) => humantime::parse_duration(text).ok()?,
    };
    (min..=max).contains(&(duration.as_secs_f64() * per_second)).then_some(duration)
}

fn parse_bytes(text: &str, unit: u64, min: u64, max: u64) -> Option<u64> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[digits..].trim() {
        "" => unit,
        "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let value = text[..digits].parse::<u64>().ok()?.checked_mul(factor)?;
    (min..=max).contains(&value).then_some(value)
}
