//! The operator `%` as a call.

use super::MODULO;
use super::scan::{Tag, Token};

/// The body of a tag with every `a % b` written as a call.
pub(super) fn rewrite(tag: &Tag<'_>) -> String {
    let mut edits: Vec<(usize, String)> = Vec::new();
    for (index, token) in tag.tokens.iter().enumerate().filter(|(_, token)| token.text == "%") {
        let (Some(start), Some(end)) =
            (left_operand(&tag.tokens[..index]), right_operand(&tag.tokens[index + 1..]))
        else {
            continue;
        };
        edits.push((start, format!("{MODULO}(")));
        edits.push((token.start, ",".to_owned()));
        edits.push((end, ")".to_owned()));
    }
    if edits.is_empty() {
        return tag.body.to_owned();
    }
    // Edits at one place keep their order: calls that open there nest from the left.
    edits.sort_by_key(|(at, _)| *at);
    let mut out = String::with_capacity(tag.body.len() + edits.len() * 8);
    let mut at = 0;
    for (place, text) in edits {
        out.push_str(&tag.body[at..place]);
        // The comma replaces the operator.
        at = if text == "," { place + 1 } else { place };
        out.push_str(&text);
    }
    out.push_str(&tag.body[at..]);
    out
}

/// Offset where the operand before `%` starts: everything back to an operator that binds less.
fn left_operand(before: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0usize;
    let mut start = None;
    for (index, token) in before.iter().enumerate().rev() {
        match token.text {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" if depth == 0 => break,
            "(" | "[" | "{" => depth -= 1,
            _ if depth > 0 => {}
            "+" | "-" if is_binary(before, index) => break,
            "~" | "==" | "!=" | "<" | ">" | "<=" | ">=" | "," | ":" | "=" => break,
            _ if token.is_word_operator() => break,
            _ => {}
        }
        start = Some(token.start);
    }
    start
}

fn is_binary(tokens: &[Token<'_>], index: usize) -> bool {
    index.checked_sub(1).is_some_and(|previous| {
        matches!(tokens[previous].text, ")" | "]" | "}") || tokens[previous].is_operand()
    })
}

/// Offset where the operand after `%` ends: a sign, one value, and what is attached to it.
fn right_operand(after: &[Token<'_>]) -> Option<usize> {
    let mut index = usize::from(after.first().is_some_and(|token| matches!(token.text, "-" | "+")));
    index = value(after, index)?;
    loop {
        index = match after.get(index).map(|token| token.text) {
            Some("." | "|") => index + 2,
            Some("(" | "[") => group(after, index)?,
            Some("**") => value(after, index + 1)?,
            _ => break,
        };
    }
    after.get(index.checked_sub(1)?).map(Token::end)
}

fn value(tokens: &[Token<'_>], index: usize) -> Option<usize> {
    match tokens.get(index)? {
        token if matches!(token.text, "(" | "[" | "{") => group(tokens, index),
        token if token.is_operand() => Some(index + 1),
        _ => None,
    }
}

/// Index after the bracket that closes the one at `index`.
fn group(tokens: &[Token<'_>], index: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(index) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}
