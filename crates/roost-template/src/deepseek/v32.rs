//! The V3.2 format: system text without a token, results in a block behind the calls, not in a user's turn.

use super::DeepSeekStyle;
use super::builder::{ASSISTANT, BOS, Builder, DSML, END_THINK, EOS, Rendered, THINK, USER};
use super::conversation::{Assistant, Conversation, ResponseFormat, Scene, Turn};
use super::dump::{Floats, json};
use super::tools::Markup;

const MARKUP: Markup = Markup {
    calls: "function_calls",
    invoke: "invoke",
    parameter: "parameter",
    floats: Floats::Python,
    line_for_no_parameters: true,
};

pub(super) fn render(
    Conversation { scene, turns, goes_on }: &Conversation,
    style: DeepSeekStyle,
) -> Rendered {
    let thinking = scene.thinks();
    // Earlier reasoning is not shown again.
    let last_user = turns.iter().rposition(asks);
    let mut head_at = None;
    let mut head = Builder::default();
    let mut out = Builder::default();
    if !goes_on {
        head_at = turns.iter().position(|turn| matches!(turn, Turn::System(_)));
        head = self::head(scene, style);
        out.special(BOS);
        if head_at.is_none() {
            out.append(&head);
        }
    }
    let mut open_calls = 0;
    let mut results = 0;
    for (index, turn) in turns.iter().enumerate() {
        let current = thinking && last_user.is_none_or(|last| index >= last);
        match turn {
            Turn::System(text) => {
                out.plain(text);
                if head_at == Some(index) {
                    out.append(&head);
                }
            }
            Turn::User(text) => answer(out.special(USER).plain(text), current),
            // The publisher's encoder leaves out what a developer said before the last user.
            Turn::Developer(_) if style == DeepSeekStyle::Publisher && thinking && !current => {}
            Turn::Developer(text) => {
                answer(out.special(USER).plain("\n\n# The user's message is: ").plain(text), current);
            }
            Turn::Tool { text, .. } => {
                results += 1;
                if results == 1 {
                    out.plain("\n\n<function_results>");
                }
                out.plain("\n<result>").plain(text).plain("</result>");
                if results == open_calls {
                    out.plain("\n</function_results>\n\n").special(if current { THINK } else { END_THINK });
                }
            }
            Turn::Reminder(text) => _ = out.plain(text),
            Turn::Assistant(assistant) => {
                place(index > 0 || *goes_on, style, &mut out);
                (open_calls, results) = (assistant.calls.len(), 0);
                let shows_reasoning = thinking && last_user.is_none_or(|last| index > last);
                said(assistant, shows_reasoning, style, &mut out);
            }
        }
    }
    place(!turns.is_empty() || *goes_on, style, &mut out);
    out.finish()
}

/// Whether a turn is one that reasoning is left out before.
pub(super) fn asks(turn: &Turn) -> bool {
    matches!(turn, Turn::User(_) | Turn::Developer(_))
}

/// Of this format's answers only the calls and the end begin with a token: text before them has to end with one.
fn place(has_text: bool, style: DeepSeekStyle, out: &mut Builder) {
    let is_sealed = has_text && (style == DeepSeekStyle::Dynamo || out.ends_special());
    out.place(is_sealed);
}

/// The answer begins.
fn answer(out: &mut Builder, thinks: bool) {
    out.special(ASSISTANT).special(if thinks { THINK } else { END_THINK });
}

fn said(assistant: &Assistant, shows_reasoning: bool, style: DeepSeekStyle, out: &mut Builder) {
    if shows_reasoning {
        let reasoning = assistant.reasoning.as_deref().unwrap_or_default();
        // A continued answer without text is still in its reasoning; Dynamo leaves empty reasoning open, too.
        let unfinished = assistant.continued && assistant.text.is_empty() && assistant.calls.is_empty();
        let open = unfinished || (reasoning.is_empty() && style == DeepSeekStyle::Dynamo);
        out.answer(reasoning);
        if !open {
            out.special(END_THINK);
        }
    }
    out.answer(&assistant.text);
    MARKUP.calls(&assistant.calls, out);
    if !assistant.continued {
        out.special(EOS);
    }
}

/// What follows the first system text: tools and response format.
fn head(scene: &Scene, style: DeepSeekStyle) -> Builder {
    let mut out = Builder::default();
    if !scene.tools.is_empty() {
        out.plain("\n\n").append(&instructions(&scene.tools));
    }
    let format = match (style, &scene.format) {
        (DeepSeekStyle::Dynamo, _) => scene.format_json.as_ref(),
        (DeepSeekStyle::Publisher, ResponseFormat::Text) => None,
        (DeepSeekStyle::Publisher, ResponseFormat::Object) => scene.format_json.as_ref(),
        (DeepSeekStyle::Publisher, ResponseFormat::Schema(schema)) => Some(schema),
    };
    if let Some(format) = format {
        out.plain("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
        out.plain(&json(format, MARKUP.floats));
    }
    out
}

/// How to call tools, and their schemas.
fn instructions(tools: &[serde_json::Value]) -> Builder {
    let mut out = Builder::default();
    let tag = |out: &mut Builder, before: &str, rest: &str| {
        out.plain(before).special(DSML).plain(rest);
    };
    out.plain(
        "## Tools\n\nYou have access to a set of tools you can use to answer the user's question.\nYou can invoke \
         functions by writing a \"",
    );
    tag(&mut out, "<", "function_calls>\" block like the following as part of your reply to the user:\n");
    tag(&mut out, "<", "function_calls>\n");
    tag(&mut out, "<", "invoke name=\"$FUNCTION_NAME\">\n");
    tag(&mut out, "<", "parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE");
    tag(&mut out, "</", "parameter>\n...\n");
    tag(&mut out, "</", "invoke>\n");
    tag(&mut out, "<", "invoke name=\"$FUNCTION_NAME2\">\n...\n");
    tag(&mut out, "</", "invoke>\n");
    tag(&mut out, "</", "function_calls>\n\n");
    out.plain(
        "String and scalar parameters should be specified as is without any escaping or quotes, while lists and \
         objects should use JSON format. The \"string\" attribute should be set to \"true\" for string type \
         parameters and \"false\" for other types (numbers, booleans, arrays, objects).\n\nIf the thinking_mode is \
         enabled, then after function results you should strongly consider outputting a thinking block. Here is an \
         example:\n\n",
    );
    tag(&mut out, "<", "function_calls>\n...\n");
    tag(&mut out, "</", "function_calls>\n\n<function_results>\n...\n</function_results>\n\n");
    out.special(THINK).plain("...thinking about results").special(END_THINK);
    out.plain("\n\nHere are the functions available in JSONSchema format:\n<functions>\n");
    for tool in tools {
        out.plain(&json(tool, MARKUP.floats)).plain("\n");
    }
    out.plain("</functions>\n");
    out
}
