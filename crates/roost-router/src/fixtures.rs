//! Reading the peer's vectors in tests.

use serde_json::Value;

pub(crate) fn load(path: &str) -> Value {
    let path = format!("{}/../../tests/fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub(crate) fn uint(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

pub(crate) fn small(value: &Value) -> u32 {
    uint(value).try_into().unwrap()
}
