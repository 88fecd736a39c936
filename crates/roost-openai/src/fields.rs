use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{ApiError, Raw};

/// Most names of ignored members that one request reports.
const IGNORED_LIMIT: usize = 16;
/// Most members a request object may have.
const MEMBER_LIMIT: usize = 256;

/// What to do with members nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldPolicy {
    /// Ignore and report them, as engines and gateways do.
    #[default]
    Ignore,
    /// Answer 400 and name them, as Dynamo does.
    Refuse,
}

/// Names of members that had no effect, bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignored(pub Vec<String>);

impl Ignored {
    pub(crate) fn add(&mut self, name: String) {
        if self.0.len() < IGNORED_LIMIT {
            self.0.push(name);
        }
    }
}

/// The members of one request object: split once, interpreted one by one.
///
/// Splitting scans the body a single time and copies nothing; prompt-sized members stay slices.
pub(crate) struct Fields<'a> {
    body: &'a Bytes,
    prefix: &'static str,
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Splits a request body.
    pub(crate) fn of_body(body: &'a Bytes) -> Result<Self, ApiError> {
        let text = std::str::from_utf8(body).map_err(|e| {
            ApiError::invalid("", format!("Request body is not valid UTF-8 at byte {}.", e.valid_up_to()))
        })?;
        Self::split(body, text, "")
    }

    /// Splits a nested object; `prefix` names it in messages, with its dot.
    pub(crate) fn of_raw(body: &'a Bytes, raw: &'a RawValue, prefix: &'static str) -> Result<Self, ApiError> {
        Self::split(body, raw.get(), prefix)
    }

    fn split(body: &'a Bytes, text: &'a str, prefix: &'static str) -> Result<Self, ApiError> {
        let mut de = serde_json::Deserializer::from_str(text);
        let members =
            de.deserialize_map(Members).and_then(|members| de.end().map(|()| members)).map_err(|e| {
                ApiError::invalid(
                    prefix.trim_end_matches('.'),
                    format!("Failed to parse the request body as JSON: {e}"),
                )
            })?;
        Ok(Fields { body, prefix, members })
    }

    /// Takes a member verbatim; an explicit `null` counts as absent.
    pub(crate) fn raw(&mut self, name: &str) -> Option<&'a RawValue> {
        let at = self.members.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.members.swap_remove(at);
        (value.get() != "null").then_some(value)
    }

    /// A member as a slice of the body; it stays to be taken.
    pub(crate) fn peek(&self, name: &str) -> Option<Raw> {
        let (_, value) = self.members.iter().find(|(key, _)| key == name)?;
        (value.get() != "null").then(|| Raw::slice_of(self.body, value.get()))
    }

    /// Takes a member as a slice of the body.
    pub(crate) fn slice(&mut self, name: &str) -> Option<Raw> {
        self.raw(name).map(|value| Raw::slice_of(self.body, value.get()))
    }

    /// Takes and interprets a member; an explicit `null` counts as absent.
    pub(crate) fn get<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let prefix = self.prefix;
        self.raw(name).map(|value| interpret(prefix, name, value)).transpose()
    }

    /// Takes a member that must be there.
    pub(crate) fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ApiError> {
        self.get(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn missing(&self, name: &str) -> ApiError {
        let path = format!("{}{name}", self.prefix);
        ApiError::invalid(path.clone(), format!("missing field `{path}`"))
    }

    pub(crate) fn body(&self) -> &'a Bytes {
        self.body
    }

    /// Drops members that are known to have no effect.
    pub(crate) fn accept(&mut self, names: &[&str]) {
        self.members.retain(|(key, _)| !names.contains(&key.as_ref()));
    }

    /// Ends the interpretation: what is left is unknown.
    pub(crate) fn rest(self, policy: FieldPolicy, ignored: &mut Ignored) -> Result<(), ApiError> {
        let names = self.members.iter().map(|(key, _)| {
            let shown: String = key.chars().take(64).collect();
            format!("{}{shown}", self.prefix)
        });
        match policy {
            FieldPolicy::Ignore => {
                let room = IGNORED_LIMIT.saturating_sub(ignored.0.len());
                ignored.0.extend(names.take(room));
                Ok(())
            }
            FieldPolicy::Refuse if self.members.is_empty() => Ok(()),
            FieldPolicy::Refuse => {
                let names: Vec<String> = names.take(IGNORED_LIMIT).map(|n| format!("`{n}`")).collect();
                Err(ApiError::invalid(
                    names[0].trim_matches('`').to_owned(),
                    format!("Validation: Unsupported parameter(s): {}", names.join(", ")),
                ))
            }
        }
    }
}

pub(crate) fn interpret<T: DeserializeOwned>(
    prefix: &str,
    name: &str,
    value: &RawValue,
) -> Result<T, ApiError> {
    serde_json::from_str(value.get()).map_err(|e| {
        let path = format!("{prefix}{name}");
        // The position inside the member means nothing to a client that sees the whole body.
        let text = e.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
        ApiError::invalid(path.clone(), format!("Failed to deserialize `{path}`: {}", in_words(text)))
    })
}

/// What the deserializer expected, in the words of JSON.
fn in_words(text: &str) -> String {
    let Some((found, expected)) = text.rsplit_once(", expected ") else { return text.to_owned() };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        _ if expected.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        use serde::de::Error;
        let mut members: Self::Value = Vec::with_capacity(24);
        while let Some(Key(key)) = map.next_key()? {
            if members.iter().any(|(known, _)| *known == key) {
                let shown: String = key.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("duplicate field `{shown}`")));
            }
            if members.len() == MEMBER_LIMIT {
                return Err(A::Error::custom(format_args!("more than {MEMBER_LIMIT} members")));
            }
            members.push((key, map.next_value()?));
        }
        Ok(members)
    }
}

/// A member name that borrows unless it has escapes (a plain `Cow` always copies).
struct Key<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(v.to_owned())))
            }
        }
        de.deserialize_str(Text)
    }
}
