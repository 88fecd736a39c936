//! The V4 format: all system text leads, without a token of its own.

use super::builder::{ASSISTANT, BOS, Builder, END_THINK, EOS, REMINDER, Rendered, THINK, USER};
use super::conversation::{Conversation, Effort, ResponseFormat, Turn};
use super::dump::{Floats, json};
use super::tools::Markup;

pub(super) const MARKUP: Markup = Markup {
    calls: "tool_calls",
    invoke: "invoke",
    parameter: "parameter",
    floats: Floats::Short,
    line_for_no_parameters: false,
};

const EFFORT_HIGH: &str = "Reasoning Effort: Absolute maximum with no shortcuts permitted.\nYou MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\nExplicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";

const EFFORT_MAX: &str = "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\nYou MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.\nDo not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n";

const JSON_OBJECT: &str = "You are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.";

pub(super) fn render(Conversation { scene, turns, goes_on }: Conversation) -> Rendered {
    let thinking = scene.thinks();
    let keeps_reasoning = scene.keeps_reasoning();
    let Arranged { system, turns, sealed } = arrange(turns);
    let mut out = Builder::default();
    if !goes_on {
        out.special(BOS);
        effort(scene.effort, &mut out);
        let system = system_texts(system, &scene.tools, &scene.format);
        for (index, text) in system.iter().enumerate() {
            out.plain(if index > 0 { "\n\n" } else { "" }).append(text);
        }
    }

    let mut previous: Option<&Turn> = None;
    for (index, turn) in turns.iter().enumerate() {
        match turn {
            // Not of this reading.
            Turn::System(_) | Turn::Developer(_) => {}
            Turn::User(text) => {
                let follows = matches!(previous, Some(Turn::User(_) | Turn::Tool { .. }));
                open_user(&mut out, follows).plain(text);
            }
            Turn::Tool { text, .. } => {
                let follows = matches!(previous, Some(Turn::Tool { .. }));
                open_user(&mut out, follows).plain("<tool_result>").plain(text).plain("</tool_result>");
            }
            Turn::Reminder(text) => _ = out.special(REMINDER).plain(text),
            Turn::Assistant(assistant) => {
                out.place(sealed[index]);
                out.special(ASSISTANT);
                if let Some(reasoning) = &assistant.reasoning
                    && (assistant.continued || keeps_reasoning)
                {
                    out.special(THINK).answer(reasoning);
                }
                // A continued answer without text is still in its reasoning.
                if !thinking || !assistant.continued || !assistant.text.is_empty() {
                    out.special(END_THINK);
                }
                out.answer(&assistant.text);
                MARKUP.calls(&assistant.calls, &mut out);
                if !assistant.continued {
                    out.special(EOS);
                }
            }
        }
        previous = Some(turn);
    }
    out.place(sealed[turns.len()]);
    if !matches!(turns.last(), Some(Turn::Assistant(assistant)) if assistant.continued) {
        out.special(ASSISTANT).special(if thinking { THINK } else { END_THINK });
    }
    out.finish()
}

pub(super) fn effort(effort: Effort, out: &mut Builder) {
    match effort {
        Effort::Off | Effort::Low => {}
        Effort::High | Effort::Score(_) => _ = out.plain(EFFORT_HIGH),
        Effort::Max => _ = out.plain(EFFORT_MAX),
    }
}

fn open_user(out: &mut Builder, follows: bool) -> &mut Builder {
    if follows { out.plain("\n\n") } else { out.special(USER) }
}

/// System text of the conversation, then the tools, then the response format.
fn system_texts(leading: Vec<String>, tools: &[serde_json::Value], format: &ResponseFormat) -> Vec<Builder> {
    let plain = |text: &str| {
        let mut builder = Builder::default();
        builder.plain(text);
        builder
    };
    let mut texts: Vec<Builder> = leading.iter().map(|text| plain(text)).collect();
    let mut added = Vec::new();
    if !tools.is_empty() {
        added.push(MARKUP.instructions(tools));
    }
    match format {
        ResponseFormat::Text => {}
        ResponseFormat::Object => added.push(plain(JSON_OBJECT)),
        ResponseFormat::Schema(schema) => added.push(plain(&format!(
            "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{}",
            json(schema, MARKUP.floats)
        ))),
    }
    if texts.is_empty() && !added.is_empty() {
        // The format has an empty system message there.
        texts.push(Builder::default());
    }
    texts.extend(added);
    texts
}

/// Turns as they are written.
struct Arranged {
    /// System texts.
    system: Vec<String>,
    /// The other turns.
    turns: Vec<Turn>,
    /// For each turn and the end, whether everything before has its place whatever follows.
    sealed: Vec<bool>,
}

/// System texts and the other turns. Users in a row become one; calls, and the results that answer them, are sorted
/// by id.
fn arrange(turns: Vec<Turn>) -> Arranged {
    let mut system = Vec::new();
    let mut rest: Vec<Turn> = Vec::with_capacity(turns.len());
    for turn in turns {
        match (rest.last_mut(), turn) {
            (_, Turn::System(text)) => system.push(text),
            (Some(Turn::User(last)), Turn::User(text)) => {
                if !last.is_empty() && !text.is_empty() {
                    last.push_str("\n\n");
                }
                last.push_str(&text);
            }
            (_, turn) => rest.push(turn),
        }
    }
    let mut answers = Vec::new();
    let mut sealed = Vec::with_capacity(rest.len() + 1);
    let mut open = 0;
    for (index, turn) in rest.iter_mut().enumerate() {
        sealed.push(open <= index);
        if let Turn::Assistant(assistant) = turn {
            assistant.calls.sort_by(|a, b| a.id.cmp(&b.id));
            let results = index + 1..index + 1 + assistant.calls.len();
            open = open.max(results.end);
            answers.push(results);
        }
    }
    sealed.push(open <= rest.len());
    for range in answers {
        // An incomplete set of results keeps its order.
        if let Some(results) = rest.get_mut(range) {
            results.sort_by(|a, b| result_key(a).cmp(&result_key(b)));
        }
    }
    Arranged { system, turns: rest, sealed }
}

/// Results first, by id; other turns behind them.
fn result_key(turn: &Turn) -> (bool, Option<&str>) {
    match turn {
        Turn::Tool { call, .. } => (false, call.as_deref()),
        _ => (true, None),
    }
}
