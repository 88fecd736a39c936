//! Values written as text, and the JSON checks behind them.

use serde_json::{Value, json};

use super::support::{parse, spec};
use crate::json::{JsonScan, Step, escape};
use crate::{ToolContext, Tools};

/// Parses one parameter of a schema.
fn value(schema: &str, text: &str) -> Value {
    let tools = format!(
        r##"[{{"function":{{"name":"f","parameters":{{"$defs":{{"N":{{"type":"number"}},"R":{{"$ref":"#/$defs/R"}}}},
            "properties":{{"v":{schema}}}}}}}}}]"##
    );
    let context = ToolContext { tools: Tools::parse(&tools).unwrap().into(), ..ToolContext::default() };
    let text = format!("<function=f><parameter=v>{text}</parameter></function>");
    parse(&spec("qwen3_coder", ""), &context, &text).json_calls()[0].1["v"].clone()
}

#[test]
fn types_decide() {
    for (schema, text, expected) in [
        (r#"{"type":"integer"}"#, " 30 ", json!(30)),
        (r#"{"type":"integer"}"#, "30.0", json!(30.0)),
        (r#"{"type":"integer"}"#, "3.5", json!("3.5")),
        (r#"{"type":"integer"}"#, "007", json!("007")),
        (r#"{"type":"number"}"#, "-1.5e3", json!(-1500.0)),
        (r#"{"type":"boolean"}"#, "True", json!(true)),
        (r#"{"type":"boolean"}"#, "yes", json!("yes")),
        (r#"{"type":"string"}"#, "null", json!("null")),
        (r#"{"type":["string","null"]}"#, "null", json!(null)),
        (r#"{"type":["string","null"]}"#, "None", json!("None")),
        (r#"{"anyOf":[{"type":"string"},{"type":"integer"}]}"#, "30", json!(30)),
        (r#"{"anyOf":[{"type":"string"},{"type":"integer"}]}"#, "30a", json!("30a")),
        (r#"{"type":"object"}"#, "{\"a\": [1, null]}", json!({"a": [1, null]})),
        (r#"{"type":"object"}"#, "{oops", json!("{oops")),
        (r#"{"type":"array"}"#, "\"quoted\"", json!("\"quoted\"")),
        (r##"{"$ref":"#/$defs/N"}"##, "2", json!(2)),
        (r##"{"$ref":"#/$defs/R"}"##, "2", json!("2")),
        (r#"{"enum":["a","b"]}"#, "a", json!("a")),
        (r#"{"enum":[1,2]}"#, "2", json!(2)),
        (r#"{"items":{}}"#, "[]", json!([])),
        (r#"{}"#, "[1]", json!("[1]")),
        (r#"{"type":"integer","nullable":true}"#, "null", json!(null)),
        (r#"{"type":"integer"}"#, "", json!("")),
    ] {
        assert_eq!(value(schema, text), expected, "{schema} {text:?}");
    }
}

#[test]
fn long_values_that_are_no_json_are_text() {
    let long = format!("[{}", "not json ".repeat(500));
    assert_eq!(value(r#"{"type":"array"}"#, &long), json!(long));
    let list = format!("[{}0]", "1, ".repeat(2000));
    assert_eq!(value(r#"{"type":"array"}"#, &list).as_array().unwrap().len(), 2001);
}

#[test]
fn json_is_recognised_as_serde_does() {
    for text in [
        "{}",
        "[]",
        "[1, 2.5, -0, 1e5, 1E-2]",
        r#"{"a": {"b": [true, false, null]}}"#,
        r#""\u00e9\n""#,
        "0",
        "-12.5",
        "true",
        " {\"a\" : 1 } ",
        " 3 ",
        "null\n",
        "1 2",
        "",
        "{",
        "[1,]",
        "{\"a\":}",
        "{a:1}",
        "01",
        "1.",
        "-",
        "tru",
        "nul",
        "truee",
        "\"\\x\"",
        "{\"a\":1,}",
        "[1 2]",
        "{} {}",
        "\"\\u12g4\"",
        "1e",
        "+1",
        "{\"a\" 1}",
        "[}",
        "\"open",
    ] {
        let mut scan = JsonScan::new();
        let valid = text.chars().all(|c| scan.step(c) != Step::Invalid) && scan.complete();
        assert_eq!(valid, serde_json::from_str::<Value>(text).is_ok(), "{text:?}");
    }
    let deep = "[".repeat(300);
    let mut scan = JsonScan::new();
    assert!(deep.chars().any(|c| scan.step(c) == Step::Invalid), "nesting is bounded");
}

#[test]
fn escapes_are_read_back() {
    let text: String = (0..=0x7f_u8).map(char::from).chain("é漢😀\u{2028}".chars()).collect();
    let mut json = String::from("\"");
    escape(&text, &mut json);
    json.push('"');
    assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
}
