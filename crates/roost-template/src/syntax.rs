//! Jinja syntax that the engine does not have, rewritten before compiling.
//!
//! - `{% generation %}` blocks mark the assistant's text for training; for a prompt they are plain blocks.
//! - `a % b` formats text when `a` is text, so it becomes a call.
//! - Macros that read `varargs` or `kwargs` get them as parameters.

pub(crate) mod comparisons;
pub(crate) mod main_loop;
mod operator;
mod scan;

use scan::{Part, Tag, scan};

/// Name of the function that stands for the operator `%`.
pub(crate) const MODULO: &str = "__modulo";

/// Name of the function that wraps macros with surplus arguments.
pub(crate) const VARIADIC: &str = "__variadic";

/// Rewrites a template. What cannot be understood stays as it is, for the engine to report.
pub(crate) fn rewrite(source: &str) -> String {
    let parts = scan(source);
    let mut out = String::with_capacity(source.len() + 64);
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Tag(tag) => match tag.keyword() {
                Some("generation") => push_tag(&mut out, tag, " with "),
                Some("endgeneration") => push_tag(&mut out, tag, " endwith "),
                Some("macro") if reads_surplus(&parts[index + 1..]) => push_macro(&mut out, tag),
                Some("endmacro") => push_end_of_macro(&mut out, tag, &parts[..index]),
                _ => push_tag(&mut out, tag, &operator::rewrite(tag)),
            },
        }
    }
    out
}

fn push_tag(out: &mut String, tag: &Tag<'_>, body: &str) {
    out.push_str(tag.open);
    out.push_str(body);
    out.push_str(tag.close);
}

/// Whether the macro that starts before `parts` mentions its surplus arguments.
fn reads_surplus(parts: &[Part<'_>]) -> bool {
    body_of_macro(parts).any(|tag| tag.tokens.iter().any(|token| matches!(token.text, "varargs" | "kwargs")))
}

fn body_of_macro<'a>(parts: &'a [Part<'a>]) -> impl Iterator<Item = &'a Tag<'a>> {
    let tags = parts.iter().filter_map(|part| match part {
        Part::Tag(tag) => Some(tag),
        Part::Text(_) => None,
    });
    tags.take_while(|tag| tag.keyword() != Some("endmacro"))
}

/// `macro f(a)` to `macro f(a, varargs, kwargs)`.
fn push_macro(out: &mut String, tag: &Tag<'_>) {
    let body = operator::rewrite(tag);
    let Some(close) = body.rfind(')') else { return push_tag(out, tag, &body) };
    let (head, tail) = body.split_at(close);
    let comma = if head.trim_end().ends_with('(') { "" } else { ", " };
    push_tag(out, tag, &format!("{head}{comma}varargs, kwargs{tail}"));
}

/// After a macro with surplus arguments, its name is bound to the wrapper.
fn push_end_of_macro(out: &mut String, tag: &Tag<'_>, before: &[Part<'_>]) {
    push_tag(out, tag, tag.body);
    let begin =
        before.iter().rposition(|part| matches!(part, Part::Tag(tag) if tag.keyword() == Some("macro")));
    let Some(begin) = begin else { return };
    let Part::Tag(start) = &before[begin] else { return };
    if !reads_surplus(&before[begin + 1..]) {
        return;
    }
    let Some((name, parameters)) = signature(start) else { return };
    // The new tag takes over the white-space control of the end tag; the end tag itself may not trim twice.
    let quoted: Vec<String> = parameters.iter().map(|name| format!("'{name}'")).collect();
    out.push_str(&format!("{{%- set {name} = {VARIADIC}({name}, [{}]) {}", quoted.join(", "), tag.close));
}

/// Name and parameters of a macro.
fn signature<'a>(tag: &Tag<'a>) -> Option<(&'a str, Vec<&'a str>)> {
    let tokens = &tag.tokens;
    let name = tokens.get(1)?.text;
    let mut parameters = Vec::new();
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(2) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 1 && matches!(token.text, "(" | ",") {
            parameters.extend(tokens.get(index + 1).map(|next| next.text).filter(|text| *text != ")"));
        }
    }
    Some((name, parameters))
}

#[cfg(test)]
mod tests;
