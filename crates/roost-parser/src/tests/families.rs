//! What each family's syntax may look like.

use serde_json::{Value, json};

use super::support::{context, deltas, fold, parse, spec, thinking, without_tools};
use crate::ToolContext;

fn check(tool: &str, text: &str, content: &str, calls: &[(&str, Value)]) {
    let folded = parse(&spec(tool, ""), &context(), text);
    assert_eq!(folded.content, content, "{tool}: {text}");
    let calls: Vec<(String, Value)> =
        calls.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    assert_eq!(folded.json_calls(), calls, "{tool}: {text}");
    assert!(folded.calls.iter().all(|call| call.2), "{tool}: {text}");
}

fn paris() -> (&'static str, Value) {
    ("get_weather", json!({"city": "Paris"}))
}

#[test]
fn hermes_in_all_shapes() {
    for text in [
        "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}</tool_call>",
        // Arguments first, another word for them, members that mean nothing.
        "<tool_call>\n{\"arguments\": {\"city\": \"Paris\"}, \"name\": \"get_weather\"}\n</tool_call>\n",
        "<tool_call>{\"id\": 7, \"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}, \"x\": [1]}</tool_call>",
        // Arguments in quotes, a missing brace, a brace too many, a list.
        r#"<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}</tool_call>"#,
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}}\n</tool_call>",
        "<tool_call>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]</tool_call>",
    ] {
        check("hermes", text, "", &[paris()]);
    }
    check(
        "hermes",
        "a\n\n<tool_call>{\"name\": \"search\"}</tool_call>\nb",
        "a\nb",
        &[("search", json!({}))],
    );
    check(
        "hermes",
        "<tool_call>{\"name\": \"search\", \"arguments\": null}\n{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "",
        &[("search", json!({})), ("f", json!({}))],
    );
    // The end mark inside an argument is part of it; a raw line break in one is put right.
    check(
        "hermes",
        "<tool_call>{\"name\": \"search\", \"arguments\": {\"q\": \"a</tool_call>\nb\"}}</tool_call>",
        "",
        &[("search", json!({"q": "a</tool_call>\nb"}))],
    );
    for text in [
        "<tool_call></tool_call>",
        "<tool_call>\n{\"name\": 3}\n</tool_call>",
        "<tool_call>\n{\"arguments\": {}}\n</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"no object\"}</tool_call>",
        "Use <tool_call> to call.",
        "<tool_call",
    ] {
        check("hermes", text, text, &[]);
    }
    // Text that is no call may be followed by one.
    let call = "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}</tool_call>";
    check("hermes", &format!("<tool_call>oops<tool_call>\n{call}"), "<tool_call>oops<tool_call>", &[paris()]);
}

#[test]
fn broken_arguments_are_passed_on() {
    let text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, b}}</tool_call>";
    let folded = parse(&spec("hermes", ""), &context(), text);
    assert_eq!(folded.calls, [("f".into(), "{\"a\": 1, b}}".into(), true)]);
    let text = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": oops<|tool_call_end|>";
    let folded = parse(&spec("kimi_k2", ""), &context(), text);
    assert_eq!(folded.calls, [("f".into(), "{\"a\": oops".into(), true)]);
}

#[test]
fn qwen3_coder_in_all_shapes() {
    let body = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>";
    check("qwen3_coder", &format!("<tool_call>\n{body}\n</tool_call>"), "", &[paris()]);
    check("nemotron_nano", &format!("<tool_call>{body}</tool_call>"), "", &[paris()]);
    // Without the outer tag, with its end only, and one of each.
    check("qwen3_coder", body, "", &[paris()]);
    check("qwen3_coder", &format!("ok {body}\n</tool_call>"), "ok ", &[paris()]);
    check("qwen3_coder", &format!("{body}\n<tool_call>{body}</tool_call>"), "", &[paris(), paris()]);
    // Code in a value keeps its layout and its tags.
    let code = "\n  <b>if a < b:</b>\n\n  x = \"\\n\"\n";
    let text = format!("<function=search><parameter=q>\n{code}\n</parameter></function>");
    check("qwen3_coder", &text, "", &[("search", json!({"q": code}))]);
    let stray = "<function=f>\nwell\n</function>";
    check("qwen3_coder", stray, stray, &[]);
    check(
        "qwen3_coder",
        "<function=f><parameter=a>1</parameter>well</function>",
        "well",
        &[("f", json!({"a": "1"}))],
    );
    check("qwen3_coder", "<tool_call>\n<function=f\n>", "<tool_call>\n<function=f\n>", &[]);
}

#[test]
fn glm_in_all_shapes() {
    let pair = "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>";
    check("glm45", &format!("<tool_call>get_weather\n{pair}\n</tool_call>"), "", &[paris()]);
    check("glm47", &format!("<tool_call>get_weather{pair}</tool_call>"), "", &[paris()]);
    check(
        "glm47",
        "<tool_call>search</tool_call>\n<tool_call>f\n</tool_call>",
        "",
        &[("search", json!({})), ("f", json!({}))],
    );
    let typed = "<tool_call>f<arg_key>a</arg_key><arg_value>[1]</arg_value><arg_key>b</arg_key><arg_value>2\
                 </arg_value></tool_call>";
    check("glm47", typed, "", &[("f", json!({"a": [1], "b": "2"}))]);
    check("glm47", "<tool_call> </tool_call>", "<tool_call> </tool_call>", &[]);
    check("glm47", "<tool_call>two words", "<tool_call>two words", &[]);
}

#[test]
fn minimax_m2_in_all_shapes() {
    let text = "hm</think>\n\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris\
                </parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"search\">\n</invoke>\n\
                </minimax:tool_call>";
    let folded = parse(&spec("minimax_m2", "minimax_m2"), &context(), text);
    assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("hm", ""));
    let expected =
        [("get_weather".into(), json!({"city": "Paris", "days": 3})), ("search".into(), json!({}))];
    assert_eq!(folded.json_calls(), expected);
}

#[test]
fn kimi_k2_in_all_shapes() {
    let call = "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|>";
    check("kimi_k2", call, "", &[paris()]);
    check("kimi_k2", &format!("<|tool_call_section_begin|>{call}<|tool_call_section_end|>"), "", &[paris()]);
    check("kimi_k2", &format!("<|tool_calls_section_begin|> {call}"), "", &[paris()]);
    check("kimi_k2", &format!("{call}\nDone"), "\nDone", &[paris()]);
    check(
        "kimi_k2",
        "<|tool_call_begin|>get_time<|tool_call_argument_begin|> <|tool_call_end|>",
        "",
        &[("get_time", json!({}))],
    );
    let refused = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>no<|tool_call_end|>";
    check("kimi_k2", refused, refused, &[]);
    // Thoughts that are never closed end with the calls.
    let folded = parse(&spec("kimi_k2", "kimi_k25"), &context(), &format!("hm {call}"));
    assert_eq!((folded.reasoning.as_str(), folded.calls.len()), ("hm ", 1));
    assert_eq!(folded.ids, [Some("functions.get_weather:0".into())]);
}

#[test]
fn json_behind_a_mark() {
    let call = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}";
    check("mistral", &format!("[TOOL_CALLS][{call}, {call}]"), "", &[paris(), paris()]);
    check("mistral", &format!("[TOOL_CALLS] {call}"), "", &[paris()]);
    check("nemotron_deci", &format!("<TOOLCALL>[{call}]</TOOLCALL>"), "", &[paris()]);
    check("jamba", &format!("<tool_calls>[\n  {call}\n]</tool_calls>"), "", &[paris()]);
    check("phi4", &format!("functools[{call}]"), "", &[paris()]);
    check("phi4", "functools is a module", "functools is a module", &[]);
    check("llama3_json", &format!("<|python_tag|>{call}"), "", &[paris()]);
    check("llama3_json", call, "", &[paris()]);
    check("llama3_json", "{\"answer\": 42}", "{\"answer\": 42}", &[]);
}

#[test]
fn channels() {
    let spec = spec("harmony", "gpt_oss");
    let analysis = "<|channel|>analysis<|message|>hm<|end|>";
    let call = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>\
                {\"city\": \"Paris\"}<|call|>";
    let folded = parse(&spec, &context(), &format!("{analysis}{call}"));
    assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("hm", ""));
    assert_eq!(folded.json_calls(), [("get_weather".into(), json!({"city": "Paris"}))]);
    // The recipient may stand in front of the channel, the last mark may be missing, a preamble is for the user.
    let text = "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant to=functions.search\
                <|channel|>commentary<|message|>{}";
    let folded = parse(&spec, &context(), text);
    assert_eq!(
        (folded.content.as_str(), folded.calls.as_slice()),
        ("Let me look.", [("search".into(), "{}".into(), true)].as_slice())
    );
    let text = format!("{analysis}<|start|>assistant<|channel|>final<|message|>Hello <b>you</b>\n<|return|>");
    let folded = parse(&spec, &without_tools(), &text);
    assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("hm", "Hello <b>you</b>\n"));
    // Unwanted or unreadable calls are text.
    let folded = parse(&spec, &without_tools(), call.strip_suffix("<|call|>").unwrap());
    assert!(
        folded.content.ends_with("{\"city\": \"Paris\"}")
            && folded.content.contains("to=functions.get_weather")
    );
    let folded = parse(&spec, &context(), "<|channel|>commentary to=functions.f<|message|>no json<|call|>");
    assert_eq!((folded.content.ends_with("no json"), folded.calls.len()), (true, 0));
    assert_eq!(parse(&spec, &context(), "plain text \n").content, "plain text \n");
    let header = spec.prompt_end("…<|end|><|start|>assistant<|channel|>analysis<|message|>");
    let folded = parse(&spec, &ToolContext { prompt_end: header, ..context() }, "hm<|end|>");
    assert_eq!(folded.reasoning, "hm");
}

#[test]
fn channels_without_a_reasoning_parser_keep_the_thoughts_as_text() {
    let folded = parse(&spec("harmony", ""), &context(), "<|channel|>analysis<|message|>hm<|end|>");
    assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("", "hm"));
}

#[test]
fn reasoning_marks() {
    for (name, text) in [
        ("qwen3", "<think>hm</think>ok"),
        ("glm45", "\n<think>hm</think>ok"),
        ("deepseek_r1", "hm</think>ok"),
        ("deepseek_r1", "<think>hm</think>ok"),
        ("kimi", "◁think▷hm◁/think▷ok"),
        ("mistral", "[THINK]hm[/THINK]ok"),
        ("granite", "Here's my thought process:hmHere is my response:ok"),
        ("minimax_m3", "<mm:think>hm</mm:think>ok"),
        ("deepseek_v4", "<think>hm</think>ok"),
        ("nemotron3", "hm</think>ok"),
    ] {
        let folded = parse(&spec("", name), &without_tools(), text);
        assert_eq!((folded.reasoning.as_str(), folded.content.as_str()), ("hm", "ok"), "{name}");
    }
    // Thoughts between calls; none in the middle of text.
    let call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    let both = spec("hermes", "qwen3");
    let folded = parse(&both, &context(), &format!("<think>a</think>\n{call}\n<think>b</think>\n{call}"));
    assert_eq!((folded.reasoning.as_str(), folded.content.as_str(), folded.calls.len()), ("ab", "", 2));
    let text = "The tag <think> opens it.";
    assert_eq!(parse(&both, &context(), text).content, text);
    // Call markup in thoughts is a thought where the family closes them first.
    let folded = parse(&both, &thinking(context()), &format!("maybe {call}</think>no"));
    assert_eq!((folded.content.as_str(), folded.calls.len()), ("no", 0));
    assert!(folded.reasoning.contains(call));
}

#[test]
fn the_reasoning_state_is_known_between_pieces() {
    let mut parser = spec("", "qwen3").start(&without_tools());
    let mut out = Vec::new();
    let states: Vec<bool> = ["<think>", "plan", "</think>", "Done"]
        .into_iter()
        .map(|piece| {
            parser.push(piece, &mut out);
            parser.in_reasoning()
        })
        .collect();
    assert_eq!(states, [true, true, false, false]);
}

#[test]
fn a_cut_answer_keeps_what_it_has() {
    for (tool, text, arguments) in [
        ("qwen3_coder", "<function=get_weather><parameter=city>\nPar\n</para", "{\"city\":\"Par\\n</para"),
        ("qwen3_coder", "<function=get_weather><parameter=days>\n1", "{\"days\":1"),
        ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, ", "{\"a\": [1, "),
        ("harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\": \"b", "{\"a\": \"b"),
    ] {
        let folded = fold(&deltas(&spec(tool, ""), &context(), [text], true));
        assert_eq!(folded.calls.len(), 1, "{tool}");
        assert_eq!((folded.calls[0].1.as_str(), folded.calls[0].2), (arguments, false), "{tool}");
        assert_eq!(folded.content, "");
    }
}
