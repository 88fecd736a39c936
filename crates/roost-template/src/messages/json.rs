//! JSON text straight to template values.

use std::fmt;

use minijinja::Value;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::Message;

/// Parses any JSON value.
pub(crate) fn parse_json(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str::<Json>(text).map(|json| json.0)
}

/// Parses a JSON object; members in order.
pub(crate) fn parse_object(text: &str) -> Result<Vec<(String, Value)>, serde_json::Error> {
    serde_json::from_str::<Members>(text).map(|members| members.0)
}

pub(super) fn parse_messages(text: &str) -> Result<Vec<Message>, serde_json::Error> {
    let messages: Vec<Members> = serde_json::from_str(text)?;
    Ok(messages.into_iter().map(|members| Message { members: members.0 }).collect())
}

struct Json(Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members: Vec<(String, Value)> = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    let value = map.next_value_seed(AnyValue)?;
                    // As in Python, the last of equal keys counts, at the place of the first.
                    match members.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, old)) => *old = value,
                        None => members.push((key, value)),
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[derive(Clone, Copy)]
struct AnyValue;

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::from(()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::with_capacity(items.size_hint().unwrap_or_default().min(1024));
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::from(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or_default().min(1024));
        while let Some(key) = map.next_key_seed(self)? {
            pairs.push((key, map.next_value_seed(self)?));
        }
        Ok(Value::from_pairs(pairs))
    }
}
