//! Answers of constrained decoding.

use serde_json::{Value, json};

use super::support::{context, deltas, fold, parse, spec, thinking, tools, with_choice, without_tools};
use crate::{ToolChoice, guided_schema};

const LIST: &str =
    r#"[{"name": "get_weather", "parameters": {"city": "Paris"}}, {"name": "search", "parameters": {}}]"#;

fn expected() -> Vec<(String, Value)> {
    vec![("get_weather".into(), json!({"city": "Paris"})), ("search".into(), json!({}))]
}

#[test]
fn a_list_of_calls_needs_no_parser() {
    for (tool, reasoning) in [("", ""), ("hermes", "qwen3"), ("kimi_k2", ""), ("harmony", "gpt_oss")] {
        let folded = parse(&spec(tool, reasoning), &with_choice(ToolChoice::Required), LIST);
        assert_eq!((folded.json_calls(), folded.content.as_str()), (expected(), ""), "{tool}");
        assert!(folded.calls.iter().all(|call| call.2));
    }
}

#[test]
fn reasoning_comes_first() {
    let text = format!("hm</think>\n\n{LIST}");
    let folded = parse(&spec("hermes", "qwen3"), &thinking(with_choice(ToolChoice::Required)), &text);
    assert_eq!(
        (folded.reasoning.as_str(), folded.content.as_str(), folded.json_calls()),
        ("hm", "", expected())
    );
    let text = format!(
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>\n{LIST}<|return|>"
    );
    let folded = parse(&spec("harmony", "gpt_oss"), &with_choice(ToolChoice::Required), &text);
    assert_eq!(
        (folded.reasoning.as_str(), folded.content.as_str(), folded.json_calls()),
        ("hm", "", expected())
    );
}

#[test]
fn a_named_call_is_its_arguments() {
    let named = with_choice(ToolChoice::Named("get_weather".into()));
    let folded = parse(&spec("", ""), &named, " {\"city\": \"Paris\"}\n");
    assert_eq!(folded.calls, [("get_weather".into(), r#"{"city": "Paris"}"#.into(), true)]);
    assert_eq!(folded.content, "");
    let cut = fold(&deltas(&spec("", ""), &named, ["{\"city\": \"Pa"], true));
    assert_eq!(cut.calls, [("get_weather".into(), r#"{"city": "Pa"#.into(), false)]);
}

#[test]
fn an_engine_that_ignores_the_schema_is_read_as_usual() {
    let call = "<tool_call>{\"name\": \"search\", \"arguments\": {}}</tool_call>";
    let folded = parse(&spec("hermes", ""), &with_choice(ToolChoice::Required), call);
    assert_eq!(folded.json_calls(), [("search".into(), json!({}))]);
    for text in ["I cannot.", "{oops", "[1]", "{\"x\": 1}"] {
        let folded = parse(&spec("hermes", ""), &with_choice(ToolChoice::Required), text);
        assert_eq!((folded.content.as_str(), folded.calls.len()), (text, 0));
    }
    assert_eq!(parse(&spec("", ""), &without_tools(), LIST).content, LIST);
}

#[test]
fn schemas_keep_the_clients_bytes() {
    let tools = tools();
    assert_eq!(guided_schema(&tools, &ToolChoice::Auto), None);
    assert_eq!(guided_schema(&tools, &ToolChoice::None), None);
    let own = context().tools.get("get_time").unwrap().parameters.clone();
    assert_eq!(guided_schema(&tools, &ToolChoice::Named("get_time".into())), own);
    assert_eq!(guided_schema(&tools, &ToolChoice::Named("search".into())).unwrap(), r#"{"type":"object"}"#);
    let required = guided_schema(&tools, &ToolChoice::Required).unwrap();
    assert!(required.contains(&own.unwrap()));
    let value: Value = serde_json::from_str(&required).unwrap();
    assert_eq!(value["items"]["anyOf"].as_array().unwrap().len(), 4);
}
