use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
};

/// Why a worker ended an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence token.
    Eos,
    /// The token limit.
    Length,
    /// A stop string or stop token.
    Stop,
    /// The request was cancelled.
    Cancelled,
    /// The content was filtered.
    ContentFilter,
    /// The engine failed; the text is empty when the worker gave none.
    Error(String),
}

impl FinishReason {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "eos" => Self::Eos,
            "length" => Self::Length,
            "stop" => Self::Stop,
            "cancelled" | "abort" => Self::Cancelled,
            "content_filter" => Self::ContentFilter,
            "error" => Self::Error(String::new()),
            _ => Self::Error(text.strip_prefix("error: ")?.to_owned()),
        })
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eos => "eos",
            Self::Length => "length",
            Self::Stop => "stop",
            Self::Cancelled => "cancelled",
            Self::ContentFilter => "content_filter",
            Self::Error(text) if text.is_empty() => "error",
            Self::Error(text) => return write!(f, "error: {text}"),
        })
    }
}

impl Serialize for FinishReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FinishReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReasonVisitor)
    }
}

/// Accepts both live forms: text, and a map from the name to the text of an error.
struct ReasonVisitor;

impl<'de> Visitor<'de> for ReasonVisitor {
    type Value = FinishReason;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a finish reason")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<FinishReason, E> {
        FinishReason::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FinishReason, A::Error> {
        let Some((name, text)) = map.next_entry::<String, Option<String>>()? else {
            return Err(de::Error::invalid_length(0, &self));
        };
        if map.next_key::<de::IgnoredAny>()?.is_some() {
            return Err(de::Error::invalid_length(2, &self));
        }
        match (name.as_str(), text) {
            ("error", text) => Ok(FinishReason::Error(text.unwrap_or_default())),
            (other, None) => self.visit_str(other),
            (other, Some(_)) => Err(de::Error::unknown_variant(other, &["error"])),
        }
    }
}
