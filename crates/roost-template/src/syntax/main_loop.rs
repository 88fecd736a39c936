//! The loop over the messages, rewritten so that it can be watched.
//!
//! `{% for message in X %}…{% endfor %}` becomes `{% for __loop, message in __watch(X, …) %}…{% endfor %}`, and `loop`
//! inside becomes `__loop`. The further arguments of `__watch` are all names that the body and the macros mention: with
//! the item and the loop, they are all that an iteration can depend on, since nothing set inside a loop outlives an
//! iteration but the members of namespaces, and those are reached by name. Members that are only compared with the
//! index are told apart ([`Comparisons`]): they come as a list before the names, and are compared by `__loop.compare`.

use super::comparisons::Comparisons;
use super::push_tag;
use super::scan::{Part, Tag, Token, scan};

/// Name of the function that wraps the loop's list.
pub(crate) const WATCH: &str = "__watch";

/// Members of `loop` that the watched loop has.
const MEMBERS: [&str; 9] =
    ["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem"];

/// Statements after which the text of an iteration is not the text written between two items.
const REFUSED: [&str; 11] = [
    "break",
    "continue",
    "macro",
    "call",
    "include",
    "import",
    "from",
    "extends",
    "block",
    "autoescape",
    "do",
];

const WORDS: [&str; 12] =
    ["true", "false", "none", "True", "False", "None", "set", "elif", "endif", "endfor", "endset", "loop"];

/// Rewrites the last loop that stands in no other block; `None` where that is not possible.
pub(crate) fn watch(source: &str) -> Option<String> {
    let parts = scan(source);
    let (start, end) = last_loop(&parts)?;
    let Part::Tag(head) = &parts[start] else { return None };
    let [_, target, word, ..] = head.tokens.as_slice() else { return None };
    let rest = &head.tokens[3.min(head.tokens.len())..];
    if word.text != "in"
        || rest.is_empty()
        || rest.iter().any(|t| matches!(t.text, "if" | "recursive" | "loop"))
    {
        return None;
    }
    let inside = &parts[start + 1..end];
    let changes = changes_namespaces(inside) || macros(&parts).any(changes_namespaces);
    // What an iteration may change is no member that stays the same for all.
    let compared = match changes {
        true => Comparisons::default(),
        false => Comparisons::find(inside, macros(&parts), target.text),
    };
    let body = rewrite_body(inside, &compared)?;
    let mut names = Vec::new();
    for body in std::iter::once(inside).chain(macros(&parts)) {
        collect_names(body, &compared, &mut names);
    }
    // A date and a dump of everything are inputs that have no name.
    if names.iter().any(|name| name == "strftime_now" || name == "debug") {
        return None;
    }
    names.retain(|name| *name != target.text);
    let mut out = String::with_capacity(source.len() + 256);
    push_parts(&mut out, &parts[..start]);
    let list = head.body[rest[0].start..].trim_end();
    let names: String = names.iter().flat_map(|name| [", ", name.as_str()]).collect();
    let compared = compared.list();
    let watched = format!("{WATCH}({changes}, {list}, [{compared}]{names})");
    push_tag(&mut out, head, &format!(" for __loop, {} in {watched} ", target.text));
    out.push_str(&body);
    push_parts(&mut out, &parts[end..]);
    Some(out)
}

/// Start and end tag of the last `for` at the top level.
fn last_loop(parts: &[Part<'_>]) -> Option<(usize, usize)> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut found = None;
    for (at, tag) in tags(parts) {
        match tag.keyword() {
            Some(word) if word.starts_with("end") => {
                let (start, kind) = open.pop()?;
                if open.is_empty() && kind == "for" {
                    found = Some((start, at));
                }
            }
            // An `else` that belongs to a loop at the top level.
            Some("else") if matches!(open.as_slice(), [(_, "for")]) => return None,
            Some(word) if opens(word, tag) => open.push((at, word)),
            _ => {}
        }
    }
    open.is_empty().then_some(found)?
}

fn opens(word: &str, tag: &Tag<'_>) -> bool {
    match word {
        "for" | "if" | "macro" | "call" | "filter" | "with" | "block" | "autoescape" => true,
        "set" => !tag.tokens.iter().any(|token| token.text == "="),
        _ => false,
    }
}

pub(super) fn tags<'a>(parts: &'a [Part<'a>]) -> impl Iterator<Item = (usize, &'a Tag<'a>)> {
    parts.iter().enumerate().filter_map(|(at, part)| match part {
        Part::Tag(tag) => Some((at, tag)),
        Part::Text(_) => None,
    })
}

/// The bodies of all macros, signatures included.
fn macros<'a>(parts: &'a [Part<'a>]) -> impl Iterator<Item = &'a [Part<'a>]> {
    let starts = tags(parts).filter(|(_, tag)| tag.keyword() == Some("macro"));
    starts.map(|(at, _)| {
        let end = tags(&parts[at..]).find(|(_, tag)| tag.keyword() == Some("endmacro"));
        &parts[at..end.map_or(parts.len(), |(end, _)| at + end)]
    })
}

/// The body with its own `loop` renamed; `None` where it does what cannot be watched.
fn rewrite_body<'a>(parts: &'a [Part<'a>], compared: &Comparisons<'a>) -> Option<String> {
    let mut out = String::new();
    let mut depth = 0usize;
    for part in parts {
        let tag = match part {
            Part::Text(text) => {
                out.push_str(text);
                continue;
            }
            Part::Tag(tag) => tag,
        };
        let keyword = tag.keyword();
        if keyword.is_some_and(|word| REFUSED.contains(&word)) {
            return None;
        }
        if keyword == Some("endfor") {
            depth = depth.checked_sub(1)?;
        }
        let mut body = String::with_capacity(tag.body.len());
        let mut copied = 0;
        for (n, token) in tag.tokens.iter().enumerate() {
            if token.text == "loop" && is_name(&tag.tokens, n) {
                // In the tag of an inner loop it is not plain which loop is meant.
                if keyword == Some("for") {
                    return None;
                }
                if depth == 0 {
                    let member = (tag.tokens.get(n + 1)?.text == ".").then(|| tag.tokens.get(n + 2))??;
                    if !MEMBERS.contains(&member.text) {
                        return None;
                    }
                    body.push_str(&tag.body[copied..token.start]);
                    copied = match compared.rewritten(tag, n) {
                        Some((comparison, last)) => {
                            body.push_str(&comparison);
                            tag.tokens[last].end()
                        }
                        None => {
                            body.push_str("__loop");
                            token.end()
                        }
                    };
                }
            }
        }
        body.push_str(&tag.body[copied..]);
        push_tag(&mut out, tag, &body);
        if keyword == Some("for") {
            depth += 1;
        }
    }
    Some(out)
}

/// Whether a member of a namespace is set.
fn changes_namespaces(parts: &[Part<'_>]) -> bool {
    tags(parts).any(|(_, tag)| {
        tag.keyword() == Some("set") && tag.tokens.get(2).is_some_and(|token| token.text == ".")
    })
}

/// Whether a token is a name and no member.
pub(super) fn is_name(tokens: &[Token<'_>], at: usize) -> bool {
    let starts = tokens[at].text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    starts && (at == 0 || tokens[at - 1].text != ".")
}

/// Of a namespace with members that are only compared, the others are taken.
fn collect_names<'a>(parts: &'a [Part<'a>], compared: &Comparisons<'a>, names: &mut Vec<String>) {
    for (_, tag) in tags(parts) {
        for (at, token) in tag.tokens.iter().enumerate() {
            let word = token.text;
            let is_statement = at == 0 && tag.keyword().is_some();
            if is_name(&tag.tokens, at) && token.is_operand() && !is_statement && !WORDS.contains(&word) {
                let name = match tag.tokens.get(at + 2) {
                    Some(member) if compared.is_of(word) && !compared.has(word, member.text) => {
                        format!("{word}.{}", member.text)
                    }
                    _ if compared.is_of(word) => continue,
                    _ => word.to_owned(),
                };
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
}

fn push_parts(out: &mut String, parts: &[Part<'_>]) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Tag(tag) => push_tag(out, tag, tag.body),
        }
    }
}
