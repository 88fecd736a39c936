//! V4 and V4.1 as Dynamo's frontend renders them.

use std::collections::HashMap;

use super::DeepSeek;
use super::builder::{ASSISTANT, BOS, Builder, END_THINK, EOS, REMINDER, Rendered, SYSTEM, THINK, USER};
use super::conversation::{Assistant, Conversation, Scene, Turn};
use super::dump::{Floats, json};
use super::tools::Markup;
use super::{v4, v41};

/// A message after its neighbours were merged into it.
enum Item {
    System(String),
    Developer(String),
    /// What users and tools said in a row.
    User(Vec<Block>),
    Reminder(String),
    Assistant(Assistant),
}

enum Block {
    Text(String),
    Result { call: Option<String>, text: String },
}

/// What decides about reasoning.
struct Thinking {
    format: DeepSeek,
    thinking: bool,
    /// Reasoning of earlier turns is left out.
    drops: bool,
    last_user: Option<usize>,
    /// The items go on behind others.
    goes_on: bool,
}

pub(super) fn render(Conversation { scene, turns, goes_on }: Conversation, format: DeepSeek) -> Rendered {
    let markup = match format {
        DeepSeek::V41 => v41::MARKUP,
        DeepSeek::V4 | DeepSeek::V32 => {
            Markup { floats: Floats::Python, line_for_no_parameters: true, ..v4::MARKUP }
        }
    };
    let thinking = scene.thinks();
    let drops = drops_reasoning(&scene);
    let mut out = Builder::default();
    let mut head = Builder::default();
    if !goes_on {
        head = self::head(&scene, &markup);
        out.special(BOS);
    }
    let effort = scene.effort;
    let mut items = merged(turns, !head.is_empty());
    sort_results(&mut items);
    let head_at = items.iter().position(|item| matches!(item, Item::System(_))).filter(|_| !goes_on);
    if drops && format == DeepSeek::V4 {
        forget_developers(&mut items);
    }
    let scene = Thinking { format, thinking, drops, last_user: last_user(&items, format, goes_on), goes_on };
    for (index, item) in items.iter().enumerate() {
        let is_first = index == 0 && !goes_on;
        if format == DeepSeek::V41 && (matches!(item, Item::System(_)) || (is_first && thinking)) {
            out.special(SYSTEM);
        }
        if is_first && thinking {
            match format {
                DeepSeek::V41 => _ = out.plain(&v41::effort(effort)),
                DeepSeek::V4 | DeepSeek::V32 => v4::effort(effort, &mut out),
            }
        }
        match item {
            Item::System(text) => {
                out.plain(text);
                if head_at == Some(index) {
                    out.append(&head);
                }
            }
            Item::Developer(text) => _ = out.special(USER).plain(text),
            Item::User(blocks) => user(blocks, &mut out),
            Item::Reminder(text) => _ = out.special(REMINDER).plain(text),
            Item::Assistant(assistant) => {
                out.place(!is_first);
                said(assistant, scene.shows_reasoning(index), &markup, &mut out);
            }
        }
        let answered = matches!(items.get(index + 1), None | Some(Item::Assistant(_) | Item::Reminder(_)));
        if answered && scene.is_asking(item, index) {
            out.special(ASSISTANT).special(if scene.thinks_after(index) { THINK } else { END_THINK });
        }
    }
    out.place(goes_on || !items.is_empty());
    out.finish()
}

/// Whether earlier reasoning is left out.
pub(super) fn drops_reasoning(scene: &Scene) -> bool {
    scene.thinks() && !scene.has_tools && scene.drop_thinking
}

/// Whether a turn is one that earlier reasoning is left out before; the first turn may be told wrongly.
pub(super) fn asks(turn: &Turn, format: DeepSeek) -> bool {
    match turn {
        Turn::User(_) | Turn::Tool { .. } | Turn::Developer(_) => true,
        Turn::System(_) => format == DeepSeek::V41,
        Turn::Reminder(_) | Turn::Assistant(_) => false,
    }
}

impl Thinking {
    /// The answer at `index` repeats its reasoning.
    fn shows_reasoning(&self, index: usize) -> bool {
        self.thinking && (!self.drops || self.last_user.is_none_or(|last| index > last))
    }

    /// The answer to `index` begins with reasoning.
    fn thinks_after(&self, index: usize) -> bool {
        self.thinking && (!self.drops || self.last_user.is_none_or(|last| index >= last))
    }

    fn is_asking(&self, item: &Item, index: usize) -> bool {
        match item {
            Item::User(_) | Item::Developer(_) => true,
            Item::System(_) => self.format == DeepSeek::V41 && (index > 0 || self.goes_on),
            Item::Reminder(_) | Item::Assistant(_) => false,
        }
    }
}

/// `needs_system`: there is something to say that belongs to system text.
fn merged(turns: Vec<Turn>, needs_system: bool) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::with_capacity(turns.len() + 1);
    if needs_system && !turns.iter().any(|turn| matches!(turn, Turn::System(_))) {
        items.push(Item::System(String::new()));
    }
    for turn in turns {
        let block = match turn {
            Turn::User(text) => Block::Text(text),
            Turn::Tool { call, text } => Block::Result { call, text },
            other => {
                items.push(match other {
                    Turn::System(text) => Item::System(text),
                    Turn::Developer(text) => Item::Developer(text),
                    Turn::Reminder(text) => Item::Reminder(text),
                    Turn::Assistant(assistant) => Item::Assistant(assistant),
                    Turn::User(_) | Turn::Tool { .. } => unreachable!("taken above"),
                });
                continue;
            }
        };
        match items.last_mut() {
            Some(Item::User(blocks)) => blocks.push(block),
            _ => items.push(Item::User(vec![block])),
        }
    }
    items
}

/// Results in the order of the calls before them; one of no known call stands with the first.
fn sort_results(items: &mut [Item]) {
    let mut order: HashMap<String, usize> = HashMap::new();
    for item in items {
        match item {
            Item::Assistant(assistant) if !assistant.calls.is_empty() => {
                let ids = assistant.calls.iter().enumerate().filter(|(_, call)| !call.id.is_empty());
                order = ids.map(|(at, call)| (call.id.clone(), at)).collect();
            }
            Item::User(blocks) if !order.is_empty() => {
                let is_result = |block: &Block| matches!(block, Block::Result { .. });
                let places: Vec<usize> = (0..blocks.len()).filter(|at| is_result(&blocks[*at])).collect();
                let mut results: Vec<Block> = Vec::with_capacity(places.len());
                for at in &places {
                    results.push(std::mem::replace(&mut blocks[*at], Block::Text(String::new())));
                }
                results.sort_by_key(|block| match block {
                    Block::Result { call: Some(call), .. } => order.get(call).copied().unwrap_or(0),
                    _ => 0,
                });
                for (at, result) in places.into_iter().zip(results) {
                    blocks[at] = result;
                }
            }
            _ => {}
        }
    }
}

fn last_user(items: &[Item], format: DeepSeek, goes_on: bool) -> Option<usize> {
    let is_user = |(index, item): (usize, &Item)| match item {
        Item::User(_) | Item::Developer(_) => true,
        Item::System(_) => format == DeepSeek::V41 && (index > 0 || goes_on),
        Item::Reminder(_) | Item::Assistant(_) => false,
    };
    (0..items.len()).rev().find(|index| is_user((*index, &items[*index])))
}

/// Where reasoning is dropped, what a developer said before the last user is dropped with it.
fn forget_developers(items: &mut Vec<Item>) {
    let Some(last) = last_user(items, DeepSeek::V4, false) else { return };
    let mut index = 0;
    items.retain(|item| {
        index += 1;
        index > last || !matches!(item, Item::Developer(_))
    });
}

fn user(blocks: &[Block], out: &mut Builder) {
    out.special(USER);
    for (index, block) in blocks.iter().enumerate() {
        out.plain(if index > 0 { "\n\n" } else { "" });
        match block {
            Block::Text(text) => _ = out.plain(text),
            Block::Result { text, .. } => {
                out.plain("<tool_result>").plain(text).plain("</tool_result>");
            }
        }
    }
}

fn said(assistant: &Assistant, shows_reasoning: bool, markup: &Markup, out: &mut Builder) {
    if shows_reasoning {
        out.plain(assistant.reasoning.as_deref().unwrap_or_default());
        // A continued answer without text is still in its reasoning.
        if !(assistant.continued && assistant.text.is_empty() && assistant.calls.is_empty()) {
            out.special(END_THINK);
        }
    }
    out.plain(&assistant.text);
    markup.calls(&assistant.calls, out);
    if !assistant.continued {
        out.special(EOS);
    }
}

/// What follows the first system text: tools, and the response format with its wrapping.
fn head(scene: &Scene, markup: &Markup) -> Builder {
    let mut out = Builder::default();
    if !scene.tools.is_empty() {
        out.plain("\n\n").append(&markup.instructions(&scene.tools));
    }
    if let Some(format) = &scene.format_json {
        out.plain("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
        out.plain(&json(format, markup.floats));
    }
    out
}
