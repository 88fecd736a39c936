use minijinja::Value;

use super::{parse_json, parse_object};
use crate::engine::dump_json;

#[test]
fn json_keeps_order_and_exact_numbers() {
    let text = r#"{"z": 1, "a": [1.0, 0.1, -5, 18446744073709551615, true, null], "s": "é\"\n"}"#;
    let value = parse_json(text).unwrap();
    assert_eq!(dump_json(&value).unwrap(), text);
    assert!(value.get_attr("a").unwrap().get_item_by_index(3).unwrap().is_integer());
}

#[test]
fn the_last_of_equal_members_counts() {
    let members = parse_object(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap();
    assert_eq!(members, [("a".to_owned(), Value::from(3)), ("b".to_owned(), Value::from(2))]);
    assert_eq!(
        dump_json(&parse_json(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap()).unwrap(),
        r#"{"a": 3, "b": 2}"#
    );
}

#[test]
fn deep_nesting_is_an_error_not_an_overflow() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    assert!(parse_json(&deep).is_err());
}
