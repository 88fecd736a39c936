//! The V4.1 format: system text has a token and may come at any place.

use super::builder::{ASSISTANT, BOS, Builder, END_THINK, EOS, REMINDER, Rendered, SYSTEM, THINK, USER};
use super::conversation::{Assistant, Conversation, Effort, ResponseFormat, Scene, Turn};
use super::dump::{Floats, json};
use super::tools::Markup;

pub(super) const MARKUP: Markup = Markup {
    calls: " calls",
    invoke: " invoke",
    parameter: " parameter",
    floats: Floats::Python,
    line_for_no_parameters: true,
};

pub(super) fn render(Conversation { scene, turns, goes_on }: Conversation) -> Rendered {
    let thinking = scene.thinks();
    let keeps_reasoning = scene.keeps_reasoning();
    let mut out = Builder::default();
    let mut head = Builder::default();
    if !goes_on {
        head = self::head(&scene);
        out.special(BOS);
        if thinking {
            out.special(SYSTEM).plain(&effort(scene.effort));
        }
    }
    let turns = arrange(turns, !head.is_empty());
    for (index, turn) in turns.iter().enumerate() {
        let is_first = index == 0 && !goes_on;
        let follows = index > 0 && matches!(turns[index - 1], Turn::User(_) | Turn::Tool { .. });
        match turn {
            Turn::System(text) => {
                // The effort line has opened the first system message already.
                if !is_first || !thinking {
                    out.special(SYSTEM);
                }
                out.plain(text);
                if is_first {
                    out.append(&head);
                }
            }
            Turn::User(text) | Turn::Developer(text) => _ = open_user(&mut out, follows).plain(text),
            Turn::Tool { text, .. } => {
                open_user(&mut out, follows).plain("<tool_result>").plain(text).plain("</tool_result>");
            }
            Turn::Reminder(text) => _ = out.special(REMINDER).plain(text),
            Turn::Assistant(turn) => {
                out.place(!is_first);
                let shows_reasoning = thinking && !is_first && (keeps_reasoning || turn.continued);
                assistant(turn, shows_reasoning, &mut out);
            }
        }
    }
    out.place(goes_on || !turns.is_empty());
    if !matches!(turns.last(), Some(Turn::Assistant(assistant)) if assistant.continued) {
        out.special(ASSISTANT).special(if thinking { THINK } else { END_THINK });
    }
    out.finish()
}

fn open_user(out: &mut Builder, follows: bool) -> &mut Builder {
    if follows { out.plain("\n\n") } else { out.special(USER) }
}

fn assistant(turn: &Assistant, shows_reasoning: bool, out: &mut Builder) {
    out.special(ASSISTANT);
    // A continued answer without text is still in its reasoning.
    let ended = !(turn.continued && turn.text.is_empty() && turn.calls.is_empty());
    if shows_reasoning {
        out.special(THINK).answer(turn.reasoning.as_deref().unwrap_or_default());
        if ended {
            out.special(END_THINK);
        }
    } else {
        out.special(END_THINK);
    }
    out.answer(&turn.text);
    MARKUP.calls(&turn.calls, out);
    if !turn.continued {
        out.special(EOS);
    }
}

pub(super) fn effort(effort: Effort) -> String {
    let score = match effort {
        Effort::Low => 50,
        Effort::Off | Effort::High => 75,
        Effort::Max => 100,
        Effort::Score(score) => score,
    };
    format!(
        "Reasoning Effort: {score} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    )
}

/// What follows the first system text: tools and response format.
fn head(scene: &Scene) -> Builder {
    let mut out = Builder::default();
    if !scene.tools.is_empty() {
        out.plain("\n\n").append(&MARKUP.instructions(&scene.tools));
    }
    let object = serde_json::json!({"type": "json_object"});
    let schema = match &scene.format {
        ResponseFormat::Text => return out,
        ResponseFormat::Object => &object,
        ResponseFormat::Schema(schema) => schema,
    };
    out.plain("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
    out.plain(&json(schema, MARKUP.floats));
    out
}

/// Users in a row become one, repeated reminders are dropped, results stand in the order of the calls. `needs_system`:
/// the first turn must be a system message.
fn arrange(turns: Vec<Turn>, needs_system: bool) -> Vec<Turn> {
    let mut arranged: Vec<Turn> = Vec::with_capacity(turns.len() + 1);
    if needs_system && !matches!(turns.first(), Some(Turn::System(_))) {
        arranged.push(Turn::System(String::new()));
    }
    for turn in turns {
        match (arranged.last_mut(), turn) {
            (Some(Turn::User(last)), Turn::User(text)) => {
                last.push_str("\n\n");
                last.push_str(&text);
            }
            (Some(Turn::Reminder(_)), Turn::Reminder(_)) => {}
            (_, turn) => arranged.push(turn),
        }
    }
    sort_results(&mut arranged);
    arranged
}

/// Within each run of users and results, the results with an id change places among themselves.
fn sort_results(turns: &mut [Turn]) {
    let mut order: Vec<String> = Vec::new();
    let mut index = 0;
    while index < turns.len() {
        match &turns[index] {
            Turn::Assistant(assistant) if !assistant.calls.is_empty() => {
                order = assistant.calls.iter().map(|call| call.id.clone()).collect();
                index += 1;
            }
            Turn::User(_) | Turn::Tool { .. } => {
                let run = turns[index..]
                    .iter()
                    .take_while(|turn| matches!(turn, Turn::User(_) | Turn::Tool { .. }))
                    .count();
                sort_run(&mut turns[index..index + run], &order);
                index += run;
            }
            _ => index += 1,
        }
    }
}

fn sort_run(run: &mut [Turn], order: &[String]) {
    if order.is_empty() {
        return;
    }
    let rank = |turn: &Turn| match turn {
        // A result of no known call stands with the first one.
        Turn::Tool { call: Some(id), .. } => Some(order.iter().position(|known| known == id).unwrap_or(0)),
        _ => None,
    };
    let places: Vec<usize> = (0..run.len()).filter(|&at| rank(&run[at]).is_some()).collect();
    let mut results: Vec<Turn> = places.iter().map(|&at| run[at].clone()).collect();
    results.sort_by_key(rank);
    for (at, result) in places.into_iter().zip(results) {
        run[at] = result;
    }
}
