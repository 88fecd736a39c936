//! Reading the peer's vectors in tests.

use serde_json::Value;

use crate::TokenId;

pub(crate) fn load(path: &str) -> Value {
    let path = format!("{}/../../tests/fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub(crate) fn uint(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

/// Reads `0x…`.
pub(crate) fn hash(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

pub(crate) fn hashes<T>(value: &Value, wrap: impl Fn(u64) -> T) -> Vec<T> {
    array(value).iter().map(|value| wrap(hash(value))).collect()
}

pub(crate) fn tokens(value: &Value) -> Vec<TokenId> {
    array(value).iter().map(uint).collect()
}
