//! The shared cases about tool calls, reasoning and characters.

use serde_json::{Value, json};

use super::support::{context, deltas, fixture, fold, parse, spec, thinking, with_choice, without_tools};
use crate::{Delta, ParserSpec, PromptEnd, ToolChoice, ToolContext, Tools};

/// The text a scripted worker of a case writes.
fn script(case: &str, name: &str) -> String {
    let fixture = fixture(&format!("cases/{case}.json"));
    let steps = fixture["worker_scripts"][name].as_array().unwrap();
    steps.iter().filter_map(|step| step["text"].as_str()).collect()
}

/// Cuts a text into pieces of `size` characters.
pub(super) fn chunks(text: &str, size: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        let (piece, more) = rest.split_at(end);
        pieces.push(piece);
        rest = more;
    }
    pieces
}

fn check_all_cuts(spec: &ParserSpec, text: &str) -> Vec<Delta> {
    let whole = deltas(spec, &context(), [text], false);
    for size in [1, 2, 3, 5, 7, 9, 11, 20] {
        assert_eq!(deltas(spec, &context(), chunks(text, size), false), whole, "pieces of {size}");
    }
    whole
}

#[test]
fn c_tool_01_the_result_does_not_depend_on_the_pieces() {
    let kimi = fold(&check_all_cuts(&spec("kimi_k2", ""), &script("C-TOOL-01", "kimi")));
    assert_eq!(kimi.content, "Let me check. ");
    assert_eq!(kimi.ids, [Some("functions.get_weather:0".into()), Some("functions.get_time:1".into())]);
    let arguments: Vec<&str> = kimi.calls.iter().map(|call| call.1.as_str()).collect();
    assert_eq!(arguments, [r#"{"city": "Paris"}"#, r#"{"tz": "CET"}"#]);
    assert_eq!(kimi.calls[0].0, "get_weather");

    let dsml = fold(&check_all_cuts(&spec("deepseek_v3_2", ""), &script("C-TOOL-01", "dsml")));
    assert_eq!(dsml.content, "");
    let expected = [("search".into(), json!({})), ("get_weather".into(), json!({"city": "42", "days": 7}))];
    assert_eq!(dsml.json_calls(), expected);

    let hermes = fold(&check_all_cuts(&spec("hermes", ""), &script("C-TOOL-01", "hermes2")));
    assert_eq!(hermes.content, "");
    let call = |city: &str| ("get_weather".to_owned(), json!({"city": city}));
    assert_eq!(hermes.json_calls(), [call("Paris"), call("Rome")]);
}

#[test]
fn c_tool_01_arguments_are_passed_on_before_the_call_is_complete() {
    for (tool, open) in [
        ("hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par"),
        ("kimi_k2", "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Par"),
        ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar"),
        (
            "deepseek_v3_1",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Par",
        ),
        ("glm47", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Par"),
        ("minimax_m2", "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Par"),
        (
            "harmony",
            "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Par",
        ),
    ] {
        let mut parser = spec(tool, "").start(&context());
        let mut out = Vec::new();
        parser.push(open, &mut out);
        let calls = fold(&out).calls;
        assert_eq!(calls.len(), 1, "{tool}: {out:?}");
        assert!(calls[0].1.ends_with("\"Par"), "{tool}: {out:?}");
        assert!(!calls[0].2);
    }
}

#[test]
fn c_tool_02_values_take_the_types_of_the_schema() {
    let text = script("C-TOOL-02", "qwen");
    let request = fixture("cases/C-TOOL-02.json")["input"][0]["http"]["body"]["tools"].to_string();
    let context =
        |tools: &str| ToolContext { tools: Tools::parse(tools).unwrap().into(), ..ToolContext::default() };
    let spec = spec("qwen3_coder", "");
    let expected =
        json!({"seconds": 30, "loud": true, "label": "007", "when": "2026-01-15", "tags": ["a", "b"]});
    let typed = parse(&spec, &context(&request), &text);
    assert_eq!(typed.json_calls(), [("set_timer".into(), expected.clone())]);
    assert_eq!(typed.content, "");
    for (from, to) in [
        (r#"{"type":"integer"}"#, r#"{"type":["integer","null"]}"#),
        (r#"{"type":"integer"}"#, r#"{"anyOf":[{"type":"integer"},{"type":"null"}]}"#),
    ] {
        let tools = request.replace(from, to);
        assert_ne!(tools, request);
        assert_eq!(
            parse(&spec, &context(&tools), &text).json_calls(),
            [("set_timer".into(), expected.clone())]
        );
    }
    // Without a schema, values stay text.
    let untyped = parse(&spec, &context(r#"[{"type":"function","function":{"name":"set_timer"}}]"#), &text);
    let strings = json!({"seconds": "30", "loud": "true", "label": "007", "when": "2026-01-15",
                         "tags": "[\"a\", \"b\"]"});
    assert_eq!(untyped.json_calls(), [("set_timer".into(), strings)]);
}

#[test]
fn c_tool_03_one_call_no_calls_and_text_like_a_call() {
    let hermes = spec("hermes", "");
    let text = script("C-TOOL-03", "hermes2");
    let single = parse(&hermes, &ToolContext { single_call: true, ..context() }, &text);
    assert_eq!(single.json_calls(), [("get_weather".into(), json!({"city": "Paris"}))]);
    assert_eq!(single.content, "");
    for context in [with_choice(ToolChoice::None), without_tools()] {
        let folded = parse(&hermes, &context, &text);
        assert_eq!((folded.content, folded.calls), (text.clone(), Vec::new()));
    }
    let plain = script("C-TOOL-03", "plainlt");
    for tool in
        ["hermes", "qwen3_coder", "kimi_k2", "glm47", "deepseek_v4", "minimax_m2", "llama3_json", "harmony"]
    {
        let folded = parse(&spec(tool, ""), &context(), &plain);
        assert_eq!((folded.content, folded.calls), (plain.clone(), Vec::new()), "{tool}");
    }
    // Nothing but the layout in front of a block is held back: a lone `<` goes out at the end.
    assert_eq!(parse(&hermes, &context(), "a <").content, "a <");
}

#[test]
fn c_rea_01_the_prompt_decides_where_an_answer_begins() {
    let spec = spec("hermes", "qwen3");
    let closed = ToolContext { prompt_end: spec.prompt_end("<think>\n\n</think>\n\n"), ..context() };
    assert_eq!(closed.prompt_end, PromptEnd::Answer);
    let calls = parse(&spec, &closed, &script("C-REA-01", "hermes2"));
    assert_eq!((calls.calls.len(), calls.reasoning.as_str(), calls.content.as_str()), (2, "", ""));
    let hello = parse(&spec, &ToolContext { tools: Tools::default().into(), ..closed }, "hello");
    assert_eq!((hello.content.as_str(), hello.reasoning.as_str()), ("hello", ""));
    let open =
        ToolContext { prompt_end: spec.prompt_end("<|im_start|>assistant\n<think>\n"), ..without_tools() };
    assert_eq!(open.prompt_end, PromptEnd::Reasoning);
    let cut = fold(&deltas(&spec, &open, [script("C-REA-01", "thinktrunc").as_str()], true));
    assert_eq!((cut.reasoning.as_str(), cut.content.as_str()), ("let me think about it step by", ""));
    let whole = parse(&spec, &open, &script("C-REA-01", "thinkok"));
    assert_eq!(
        (whole.reasoning.as_str(), whole.content.as_str()),
        ("step one\nstep two", "\n\nFinal answer.")
    );
    // A family that always thinks does not where the prompt has closed the thoughts.
    let forced = super::support::spec("", "deepseek_r1");
    let prompt_end = forced.prompt_end("<｜Assistant｜></think>");
    assert_eq!(parse(&forced, &ToolContext { prompt_end, ..without_tools() }, "hello").content, "hello");
    assert_eq!(parse(&forced, &without_tools(), "hm").reasoning, "hm");
}

#[test]
fn c_str_01_characters_stay_whole() {
    let text = "ok 😀 é你";
    for context in [context(), without_tools(), thinking(context())] {
        let folded = parse(&spec("hermes", "kimi"), &context, text);
        assert_eq!(folded.content + &folded.reasoning, text);
    }
}

#[test]
fn c_api_03_says_nothing_about_parsing() {
    let case: Value = fixture("cases/C-API-03.json");
    assert_eq!(script("C-API-03", "hello"), "hello");
    assert_eq!(parse(&spec("hermes", "qwen3"), &context(), "hello").content, "hello");
    assert!(!case.to_string().contains("tool_call"));
}
