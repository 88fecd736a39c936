//! DeepSeek outputs, against what the peers made of them.

use serde_json::{Value, json};

use super::support::{
    Folded, context, deltas, fixture, fold, parse, spec, thinking, with_choice, without_tools,
};
use crate::{ParserSpec, PromptEnd, ToolChoice, ToolContext, Tools};

/// Cases in which the result is not the peer's, and what it is instead: first generation (V4), unified (V4.1).
///
/// - A parameter that is not the JSON it claims to be is passed as text: the unified parser drops the call for content.
/// - A call that was cut off ends with what was written; both peers drop it.
/// - Text behind a call inside the reasoning stays reasoning; the first generation makes it content.
/// - Markup that is not wanted is content, layout included; the unified parser drops it.
const DIFFERENT: &[(&str, &str)] = &[
    ("v4", "truncated_in_param"),
    ("v4", "call_inside_reasoning"),
    ("v41", "bad_json_param"),
    ("v41", "truncated_in_param"),
    ("v41", "call_without_tools"),
    ("v41", "call_tool_choice_none"),
];

fn family(name: &str) -> ParserSpec {
    if name == "v4" { spec("deepseek_v4", "deepseek_v4") } else { spec("deepseek_v41", "deepseek_v41") }
}

fn case_context(case: &Value) -> ToolContext {
    let mut context = if case["tools"] == json!(true) { context() } else { without_tools() };
    if case["tool_choice"] == json!("none") {
        context.tool_choice = ToolChoice::None;
    }
    let off = case["chat_template_kwargs"]["thinking"] == json!(false);
    context.prompt_end = if off { PromptEnd::Answer } else { PromptEnd::Reasoning };
    context
}

/// What the peer sent, folded, with arguments as JSON.
fn peer(answer: &Value) -> (String, String, Vec<(String, Value)>) {
    let (mut reasoning, mut content) = (String::new(), String::new());
    let mut calls: Vec<(String, String)> = Vec::new();
    let deltas = answer.as_array().cloned().unwrap_or_else(|| vec![answer.clone()]);
    for delta in &deltas {
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or(""));
        content.push_str(delta["content"].as_str().unwrap_or(""));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            if let Some(name) = function["name"].as_str() {
                calls.push((name.to_owned(), String::new()));
            }
            calls.last_mut().unwrap().1.push_str(function["arguments"].as_str().unwrap());
        }
    }
    let calls = calls.into_iter().map(|(name, arguments)| (name, serde_json::from_str(&arguments).unwrap()));
    (reasoning, content, calls.collect())
}

fn run(family_name: &str, name: &str) -> Folded {
    let fixture = fixture("http/parse_dsml.json");
    let cases = fixture["families"][family_name].as_array().unwrap();
    let case = cases.iter().find(|case| case["name"] == json!(name)).unwrap();
    parse(&family(family_name), &case_context(case), case["output"].as_str().unwrap())
}

#[test]
fn outputs_give_the_peers_result() {
    let fixture = fixture("http/parse_dsml.json");
    let mut compared = 0;
    for family_name in ["v4", "v41"] {
        for case in fixture["families"][family_name].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            let folded = parse(&family(family_name), &case_context(case), case["output"].as_str().unwrap());
            let different = DIFFERENT.contains(&(family_name, name));
            let theirs = peer(&case["dynamo_1_6_1"]);
            let complete = folded.calls.iter().all(|call| call.2);
            let calls = if complete { folded.json_calls() } else { Vec::new() };
            let same = (folded.reasoning, folded.content, calls) == theirs && complete;
            assert_eq!(same, !different, "{family_name} {name}: {theirs:?}");
            compared += usize::from(same);
        }
    }
    assert_eq!(compared, 40);
}

#[test]
fn a_cut_call_ends_with_what_was_written() {
    let folded = run("v41", "truncated_in_param");
    assert_eq!(folded.calls, [("get_weather".into(), r#"{"city":"P"#.into(), false)]);
    assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("r", ""));
    let folded = run("v4", "truncated_in_param");
    assert_eq!(folded.calls, [("get_weather".into(), "{\"city".into(), false)]);
}

#[test]
fn a_value_that_is_no_json_is_text() {
    for family in ["v4", "v41"] {
        assert_eq!(
            run(family, "bad_json_param").json_calls(),
            [("get_weather".into(), json!({"days": "{oops"}))]
        );
    }
}

#[test]
fn reasoning_goes_on_behind_a_call() {
    for family in ["v4", "v41"] {
        let folded = run(family, "call_inside_reasoning");
        assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("r  still", "ok"));
        assert_eq!(folded.json_calls(), [("get_weather".into(), json!({"city": "Paris"}))]);
    }
}

#[test]
fn unwanted_markup_is_content() {
    for family in ["v4", "v41"] {
        for case in ["call_without_tools", "call_tool_choice_none"] {
            let folded = run(family, case);
            assert!(folded.content.starts_with("\n\n<｜DSML｜"), "{folded:?}");
            assert!(folded.content.ends_with("calls>"), "{folded:?}");
            assert_eq!(folded.calls, []);
        }
    }
}

#[test]
fn a_list_is_passed_on_before_it_is_complete() {
    let spec = spec("deepseek_v4", "");
    let mut parser = spec.start(&context());
    let mut out = Vec::new();
    let open = "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"edits\" string=\"false\">[\"";
    parser.push(open, &mut out);
    for _ in 0..200 {
        parser.push("0123456789", &mut out);
    }
    let seen = fold(&out).calls[0].1.clone();
    assert!(seen.len() > 2000, "{} bytes were passed on", seen.len());
    parser.push("\"]</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>", &mut out);
    parser.finish(false, &mut out);
    assert_eq!(fold(&out).json_calls()[0].1, json!({"edits": ["0123456789".repeat(200)]}));
}

#[test]
fn older_generations() {
    let v31 = "r</think>x<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}\
               <｜tool▁call▁end｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    let folded = parse(&spec("deepseek_v3_1", "deepseek_v3_1"), &thinking(context()), v31);
    assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("r", "x"));
    let expected = [("get_weather".into(), json!({"city": "Paris"})), ("get_time".into(), json!({}))];
    assert_eq!(folded.json_calls(), expected);
    let v3 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n\
              ```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜>\
              <｜tool▁calls▁end｜>";
    let folded = parse(&spec("deepseek_v3", ""), &context(), v3);
    assert_eq!(folded.json_calls(), expected);
    assert_eq!(folded.content, "");
}

#[test]
fn a_prefix_is_cut_off_without_an_end() {
    let text = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" \
                string=\"true\">Paris</｜DSML｜parameter>\n";
    let spec = spec("deepseek_v4", "");
    let cut = fold(&deltas(&spec, &with_choice(ToolChoice::Auto), [text], true));
    assert_eq!(cut.calls, [("get_weather".into(), r#"{"city":"Paris""#.into(), false)]);
    let stopped = fold(&deltas(&spec, &context(), [text], false));
    assert_eq!(stopped.calls, [("get_weather".into(), r#"{"city":"Paris"}"#.into(), true)]);
    let no_tools = ToolContext { tools: Tools::default().into(), ..context() };
    assert_eq!(fold(&deltas(&spec, &no_tools, [text], true)).content, text);
}
