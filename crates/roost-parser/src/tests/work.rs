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
