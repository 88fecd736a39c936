//! The work grows with the text, not faster.

use std::cell::Cell;

use super::cases::chunks;
use super::support::{context, fold, spec};
use crate::Delta;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts one look at a character.
pub(crate) fn count() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Texts with `n` characters at the place where a family could be slow, and how many of them must come out.
fn long(tool: &str, place: &str, n: usize) -> (String, usize) {
    let value = "x".repeat(n);
    let text = match (tool, place) {
        ("hermes", "value") => {
            format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}</tool_call>")
        }
        ("hermes", "value before the name") => {
            format!("<tool_call>{{\"arguments\": {{\"a\": \"{value}\"}}, \"name\": \"f\"}}</tool_call>")
        }
        ("hermes", "never a call") => format!("<tool_call>{{\"arguments\": {{\"a\": \"{value}"),
        ("kimi_k2", "value") => format!(
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{{\"a\": \"{value}\"}}<|tool_call_end|>"
        ),
        ("qwen3_coder", "value") => {
            format!("<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>")
        }
        ("qwen3_coder", "typed value") => {
            format!("<function=get_weather><parameter=opts>{value}</parameter></function>")
        }
        ("qwen3_coder", "typed space") => {
            let space = " ".repeat(n);
            return (format!("<function=get_weather><parameter=opts>{space}</parameter></function>"), 0);
        }
        ("deepseek_v4", "value") => format!(
            "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"false\">[\"{value}\"]\
             </｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>"
        ),
        ("deepseek_v41", "value") => format!(
            "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"false\">[\"{value}\"]\
             </｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>"
        ),
        ("deepseek_v3_2", "value") => format!(
            "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"true\">{value}\
             </｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>"
        ),
        ("deepseek_v3", "value") => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{{\"a\": \"{value}\"}}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        ("deepseek_v3_1", "value") => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{{\"a\": \"{value}\"}}<｜tool▁call▁end｜>\
             <｜tool▁calls▁end｜>"
        ),
        ("deepseek_v3" | "deepseek_v3_1", "marks") => {
            return ("<｜tool▁call▁begin｜>".repeat(n / 19), n / 19 * 19);
        }
        ("mistral", "value") => {
            format!("[TOOL_CALLS][{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}]")
        }
        ("mistral", "marks") => return ("[TOOL_CALLS]".repeat(n / 12), n / 12 * 12),
        ("mistral", "list never closed") => return (format!("[TOOL_CALLS]{}", "[".repeat(n)), n),
        ("llama3_json", "value") => {
            format!("<|python_tag|>{{\"name\": \"f\", \"parameters\": {{\"a\": \"{value}\"}}}}")
        }
        ("llama3_json", "bare value") => {
            format!("{{\"name\": \"f\", \"parameters\": {{\"a\": \"{value}\"}}}}")
        }
        ("llama3_json", "bare, never a call") => return (format!("{{\"parameters\": {{\"a\": \"{value}"), n),
        ("llama3_json", "marks") => return ("<|python_tag|>".repeat(n / 14), n / 14 * 14),
        ("llama3_json", "bare braces") => return ("{".repeat(n), n),
        ("phi4", "value") => {
            format!("functools[{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}]")
        }
        ("phi4", "marks") => return ("functools".repeat(n / 9), n / 9 * 9),
        ("jamba", "value") => {
            format!("<tool_calls>[{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}]</tool_calls>")
        }
        ("jamba", "marks") => return ("<tool_calls>".repeat(n / 12), n / 12 * 12),
        ("nemotron_deci", "value") => {
            format!("<TOOLCALL>[{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}]</TOOLCALL>")
        }
        ("nemotron_deci", "marks") => return ("<TOOLCALL>".repeat(n / 10), n / 10 * 10),
        ("nemotron_deci", "value before the name") => {
            format!("<TOOLCALL>[{{\"arguments\": {{\"a\": \"{value}\"}}, \"name\": \"f\"}}]</TOOLCALL>")
        }
        ("glm47", "value") => {
            format!("<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>")
        }
        ("minimax_m2", "value") => format!(
            "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">{value}</parameter></invoke></minimax:tool_call>"
        ),
        ("harmony", "value") => {
            format!("<|channel|>commentary to=functions.f<|message|>{{\"a\": \"{value}\"}}<|call|>")
        }
        (_, "space in a block") => return (format!("<tool_call>{}", " ".repeat(n)), n),
        (_, "marks") => return ("<tool_call>".repeat(n / 11), n / 11 * 11),
        (_, "nested marks") => return ("<tool_call>{\"arguments\": {\"".repeat(n / 27), n / 27 * 27),
        (_, "half marks") => return ("<tool_cal".repeat(n / 9), n / 9 * 9),
        (_, "line breaks") => return ("\n".repeat(n), n),
        _ => return (value, n),
    };
    (text, n)
}

fn characters(deltas: &[Delta]) -> usize {
    let folded = fold(deltas);
    folded.content.len() + folded.calls.iter().map(|call| call.1.len()).sum::<usize>()
}

/// Steps for a text of `n` characters that arrives in pieces of eight.
fn steps(tool: &str, place: &str, n: usize) -> u64 {
    let (text, expected) = long(tool, place, n);
    STEPS.with(|steps| steps.set(0));
    let mut parser = spec(tool, "").start(&context());
    let mut out = Vec::new();
    for piece in chunks(&text, 8) {
        parser.push(piece, &mut out);
    }
    parser.finish(false, &mut out);
    // Otherwise it would be the work on plain text that is measured.
    assert!(!place.ends_with("value") || parser.calls() == 1, "{tool}, {place}: not read as a call");
    assert!(characters(&out) >= expected, "{tool}, {place}: {} of {expected} came out", characters(&out));
    STEPS.with(Cell::get)
}

#[test]
fn eight_times_the_text_is_eight_times_the_work() {
    for (tool, place) in [
        ("hermes", "value"),
        ("hermes", "value before the name"),
        ("hermes", "never a call"),
        ("kimi_k2", "value"),
        ("qwen3_coder", "value"),
        ("qwen3_coder", "typed value"),
        ("qwen3_coder", "typed space"),
        ("deepseek_v4", "value"),
        ("glm47", "value"),
        ("minimax_m2", "value"),
        ("harmony", "value"),
        ("harmony", "text"),
        ("deepseek_v3", "value"),
        ("deepseek_v3", "marks"),
        ("deepseek_v3_1", "value"),
        ("deepseek_v3_1", "marks"),
        ("deepseek_v3_2", "value"),
        ("deepseek_v41", "value"),
        ("mistral", "value"),
        ("mistral", "marks"),
        ("mistral", "list never closed"),
        ("llama3_json", "value"),
        ("llama3_json", "bare value"),
        ("llama3_json", "bare, never a call"),
        ("llama3_json", "marks"),
        ("llama3_json", "bare braces"),
        ("phi4", "value"),
        ("phi4", "marks"),
        ("jamba", "value"),
        ("jamba", "marks"),
        ("nemotron_deci", "value"),
        ("nemotron_deci", "value before the name"),
        ("nemotron_deci", "marks"),
        ("hermes", "space in a block"),
        ("qwen3_coder", "space in a block"),
        ("hermes", "marks"),
        ("qwen3_coder", "marks"),
        ("hermes", "nested marks"),
        ("hermes", "half marks"),
        ("hermes", "line breaks"),
        ("hermes", "text"),
    ] {
        let small = steps(tool, place, 10_000);
        let large = steps(tool, place, 80_000);
        // A little is added for what does not grow, so that texts that are passed over in one go compare, too.
        assert!(large <= 8 * small + 1000, "{tool}, {place}: {small} steps, then {large}");
    }
}

/// Far beyond what anything but linear work could finish.
#[test]
fn very_long_arguments_have_no_limit() {
    for tool in ["hermes", "kimi_k2", "qwen3_coder"] {
        assert!(steps(tool, "value", 640_000) > 0);
    }
}
