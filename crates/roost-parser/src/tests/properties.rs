//! What holds for any text, cut anywhere.

use super::cases::chunks;
use super::support::{context, deltas, fixture, fold, spec, thinking, with_choice, without_tools};
use crate::{Delta, ParserSpec, ToolChoice, ToolContext};

const PAIRS: &[(&str, &str)] = &[
    ("hermes", "qwen3"),
    ("qwen3_coder", "nemotron3"),
    ("deepseek_v3", "deepseek_r1"),
    ("deepseek_v3_1", "deepseek_v3_1"),
    ("deepseek_v3_2", "deepseek_v4"),
    ("deepseek_v4", "deepseek_v4"),
    ("deepseek_v41", "deepseek_v41"),
    ("kimi_k2", "kimi_k25"),
    ("glm47", "glm45"),
    ("minimax_m2", "minimax_m2"),
    ("harmony", "gpt_oss"),
    ("mistral", "mistral"),
    ("llama3_json", "granite"),
    ("phi4", "kimi"),
    ("", "qwen3"),
    ("jamba", ""),
    ("nemotron_deci", "minimax_m3"),
];

/// Pieces of markup of all families, from which texts are put together.
const SHARDS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<tool_call",
    "\n",
    "\n\n",
    " ",
    "text",
    "é漢😀",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}",
    "\"name\"",
    "\"arguments\"",
    "{}",
    "0",
    "12",
    "<function=get_weather>",
    "<function=",
    "</function>",
    "<parameter=city>",
    "<parameter=days>",
    "</parameter>",
    "<arg_key>city</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "get_weather",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"get_weather\">",
    "</invoke>",
    "<parameter name=\"city\">",
    "<｜DSML｜tool_calls>",
    "</｜DSML｜tool_calls>",
    "<｜DSML｜invoke name=\"f\">",
    "</｜DSML｜invoke>",
    "<｜DSML｜parameter name=\"a\" string=\"true\">",
    "<｜DSML｜parameter name=\"b\" string=\"false\">",
    "</｜DSML｜parameter>",
    "<｜DSML｜ calls>",
    "<｜DSML｜ invoke name=\"f\">",
    "</｜DSML｜ invoke>",
    "<｜DSML｜",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "functions.f:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function",
    "<｜tool▁sep｜>",
    "```json",
    "```",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|start|>assistant",
    "<|channel|>",
    "analysis",
    "commentary to=functions.f",
    "final",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<think>",
    "</think>",
    "◁think▷",
    "◁/think▷",
    "[THINK]",
    "[/THINK]",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "functools",
    "<tool_calls>",
    "</tool_calls>",
    "<TOOLCALL>",
    "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]</TOOLCALL>",
    "</TOOLCALL>",
    "<mm:think>",
    "</mm:think>",
    "Here is my thought process:",
    "Here's my response:",
    "<",
    "</",
    "<|",
    "<｜",
];

fn generated(rng: &mut fastrand::Rng) -> String {
    let mut text = String::new();
    for _ in 0..rng.usize(1..24) {
        match rng.u8(0..4) {
            0 => text.push(rng.char(..)),
            _ => text.push_str(rng.choice(SHARDS).unwrap()),
        }
    }
    text
}

/// Outputs of all fixtures.
fn recorded() -> Vec<String> {
    let mut texts = Vec::new();
    let dsml = fixture("http/parse_dsml.json");
    for family in ["v4", "v41"] {
        let cases = dsml["families"][family].as_array().unwrap();
        texts.extend(cases.iter().map(|case| case["output"].as_str().unwrap().to_owned()));
    }
    let scripts = fixture("cases/fixtures/worker-scripts.json");
    for script in scripts.as_object().unwrap().values() {
        texts.extend(
            script.as_array().unwrap().iter().filter_map(|step| step["text"].as_str()).map(str::to_owned),
        );
    }
    assert!(texts.len() > 60, "{}", texts.len());
    texts
}

fn contexts() -> Vec<ToolContext> {
    vec![
        context(),
        thinking(context()),
        without_tools(),
        ToolContext { single_call: true, ..context() },
        with_choice(ToolChoice::Required),
        with_choice(ToolChoice::Named("get_weather".into())),
    ]
}

/// Cuts at random character boundaries.
fn random_cuts<'a>(text: &'a str, rng: &mut fastrand::Rng) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(rng.usize(1..9)).map_or(rest.len(), |(at, _)| at);
        let (piece, more) = rest.split_at(end);
        pieces.push(piece);
        rest = more;
    }
    pieces
}

fn check_cuts(spec: &ParserSpec, context: &ToolContext, text: &str, rng: &mut fastrand::Rng) {
    let cut = rng.bool();
    let whole = deltas(spec, context, [text], cut);
    fold(&whole);
    assert_eq!(deltas(spec, context, chunks(text, 1), cut), whole, "{spec:?} {text:?}");
    let pieces = random_cuts(text, rng);
    assert_eq!(deltas(spec, context, pieces.iter().copied(), cut), whole, "{spec:?} {pieces:?}");
}

#[test]
fn cuts_do_not_matter_for_recorded_texts() {
    let mut rng = fastrand::Rng::with_seed(1);
    for text in recorded() {
        for (tool, reasoning) in PAIRS {
            for context in contexts() {
                check_cuts(&spec(tool, reasoning), &context, &text, &mut rng);
            }
        }
    }
}

#[test]
fn cuts_do_not_matter_for_generated_texts() {
    let mut rng = fastrand::Rng::with_seed(2);
    for _ in 0..1500 {
        let text = generated(&mut rng);
        let (tool, reasoning) = *rng.choice(PAIRS).unwrap();
        let context = rng.choice(contexts()).unwrap();
        check_cuts(&spec(tool, reasoning), &context, &text, &mut rng);
    }
}

/// All words of three letters and more that carry meaning must come out again, in order.
#[test]
fn no_text_is_lost() {
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..3000 {
        let (tool, reasoning) = *rng.choice(PAIRS).unwrap();
        let mut text = String::new();
        let mut words = Vec::new();
        for at in 0..rng.usize(1..16) {
            text.push_str(rng.choice(SHARDS).unwrap());
            if rng.bool() {
                words.push(format!("w{round}x{at}w"));
                text.push_str(words.last().unwrap());
            }
        }
        let context = rng.choice([context(), thinking(context()), without_tools()]).unwrap();
        let joined: String = deltas(&spec(tool, reasoning), &context, [text.as_str()], true)
            .into_iter()
            .map(|delta| match delta {
                Delta::Reasoning(text) | Delta::Content(text) => text,
                Delta::ToolStart { name, .. } => name,
                Delta::ToolArguments { fragment, .. } => fragment,
                Delta::ToolEnd { .. } => String::new(),
            })
            .collect();
        for word in &words {
            assert!(joined.contains(word.as_str()), "{word} of {text:?} is lost in {joined:?} ({tool})");
        }
    }
}

/// Without marks, the deltas are the text.
#[test]
fn text_without_tools_and_marks_is_unchanged() {
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..500 {
        let text: String = (0..rng.usize(1..40))
            .map(|_| rng.choice(["a", " ", "\n", "<", "é", "{", "漢"]).unwrap())
            .collect();
        for (tool, reasoning) in [("hermes", "qwen3"), ("kimi_k2", ""), ("harmony", "gpt_oss")] {
            let folded = fold(&deltas(&spec(tool, reasoning), &context(), [text.as_str()], false));
            if tool != "harmony" || !text.trim().is_empty() {
                assert_eq!(folded.content, text, "{tool}");
            }
        }
    }
}
