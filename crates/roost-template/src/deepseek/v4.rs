//! The V4 format: all system text leads, without a token of its own.

use super::builder::{ASSISTANT, BOS, Builder, END_THINK, EOS, REMINDER, THINK, USER};
use super::conversation::{Conversation, Effort, ResponseFormat, Turn};
use super::dump::{Floats, json};
use super::tools::Markup;
use crate::prompt::Prompt;

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

pub(super) fn render(conversation: Conversation) -> Prompt {
    let thinking = conversation.effort != Effort::Off;
    let keeps_reasoning = conversation.keeps_reasoning();
    let (system, turns) = arrange(conversation.turns);
    let mut out = Builder::default();
    out.special(BOS);
    effort(conversation.effort, &mut out);
    let system = system_texts(system, &conversation.tools, &conversation.format);
    for (index, text) in system.iter().enumerate() {
        out.plain(if index > 0 { "\n\n" } else { "" }).append(text);
    }

    let mut previous: Option<&Turn> = None;
    for turn in &turns {
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

/// System texts and the other turns. Users in a row become one; calls, and the results that answer them, are sorted
/// by id.
fn arrange(turns: Vec<Turn>) -> (Vec<String>, Vec<Turn>) {
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
    for (index, turn) in rest.iter_mut().enumerate() {
        if let Turn::Assistant(assistant) = turn {
            assistant.calls.sort_by(|a, b| a.id.cmp(&b.id));
            answers.push(index + 1..index + 1 + assistant.calls.len());
        }
    }
    for range in answers {
        // An incomplete set of results keeps its order.
        if let Some(results) = rest.get_mut(range) {
            results.sort_by(|a, b| result_key(a).cmp(&result_key(b)));
        }
    }
    (system, rest)
}

/// Results first, by id; other turns behind them.
fn result_key(turn: &Turn) -> (bool, Option<&str>) {
    match turn {
        Turn::Tool { call, .. } => (false, call.as_deref()),
        _ => (true, None),
    }
}
