//! Comparisons of the loop's index with a member of a namespace: `loop.index0 > ns.last_user_index`.
//!
//! Templates of models that think tell the messages behind the last question that way. The member differs after every
//! question while the outcome, for most messages, does not: where a member is mentioned nowhere else, the outcome is
//! what an iteration depends on, and not the member.

use std::cmp::Ordering;

use super::main_loop::{is_name, tags};
use super::scan::{Part, Tag, Token};

/// What may stand before a comparison, so that it is one expression.
const BEFORE: [&str; 8] = ["if", "elif", "and", "or", "not", "(", "=", ","];

/// What may stand behind it.
const BEHIND: [&str; 6] = ["and", "or", "else", "if", ")", ","];

/// In the order of [`holds`].
const OPERATORS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];

/// Whether the comparison with the operator of this number is true of two numbers in this order; `None` when there is
/// no such operator.
pub(crate) fn holds(operator: u8, order: Ordering) -> Option<bool> {
    Some(match operator {
        0 => order.is_lt(),
        1 => order.is_le(),
        2 => order.is_gt(),
        3 => order.is_ge(),
        4 => order.is_eq(),
        5 => order.is_ne(),
        _ => return None,
    })
}

/// Tokens of `loop.index0 > ns.member`.
const LENGTH: usize = 7;
/// Where the namespace stands among them.
const NAME: usize = 4;

/// Most members that are told apart.
const MOST: usize = 8;

/// Namespace and member.
type Member<'a> = (&'a str, &'a str);

/// The members that the body of the loop only compares with its index.
#[derive(Debug, Default)]
pub(super) struct Comparisons<'a>(Vec<Member<'a>>);

impl<'a> Comparisons<'a> {
    /// `target` is the name of the loop's item.
    pub(super) fn find(
        body: &'a [Part<'a>],
        macros: impl Iterator<Item = &'a [Part<'a>]>,
        target: &str,
    ) -> Self {
        let mut found: Vec<Member<'a>> = Vec::new();
        let mut mentions = Vec::new();
        let mut depth = 0usize;
        for (_, tag) in tags(body) {
            depth = depth.saturating_sub(usize::from(tag.keyword() == Some("endfor")));
            let compared = |at: usize| depth == 0 && comparison(&tag.tokens, at).is_some();
            for at in 0..tag.tokens.len() {
                if let Some(member) = comparison(&tag.tokens, at).filter(|_| depth == 0)
                    && !found.contains(&member)
                {
                    found.push(member);
                }
                if is_name(&tag.tokens, at) && !at.checked_sub(NAME).is_some_and(compared) {
                    mentions.push(mention(tag, at));
                }
            }
            depth += usize::from(tag.keyword() == Some("for"));
        }
        for (_, tag) in macros.flat_map(tags) {
            let names = (0..tag.tokens.len()).filter(|at| is_name(&tag.tokens, *at));
            mentions.extend(names.map(|at| mention(tag, at)));
        }
        found.retain(|(name, member)| {
            *name != target
                && *name != "loop"
                && mentions.iter().all(|(other, of_it)| other != name || of_it.is_some_and(|m| m != *member))
        });
        found.truncate(MOST);
        Comparisons(found)
    }

    /// Whether one of the members is of this namespace.
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.0.iter().any(|(of, _)| *of == name)
    }

    /// Whether this is one of the members.
    pub(super) fn has(&self, name: &str, member: &str) -> bool {
        self.0.contains(&(name, member))
    }

    /// The members, as expressions of a list.
    pub(super) fn list(&self) -> String {
        let members: Vec<String> = self.0.iter().map(|(name, member)| format!("{name}.{member}")).collect();
        members.join(", ")
    }

    /// If the tokens from `at` on are a comparison with one of the members: what to write instead, and its last token.
    pub(super) fn rewritten(&self, tag: &Tag<'a>, at: usize) -> Option<(String, usize)> {
        let member = comparison(&tag.tokens, at)?;
        let which = self.0.iter().position(|known| *known == member)?;
        let operator = OPERATORS.iter().position(|known| *known == tag.tokens[at + 3].text)?;
        Some((format!("__loop.compare({which}, {operator})"), at + LENGTH - 1))
    }
}

/// The member that the tokens from `at` on compare the index with.
fn comparison<'a>(tokens: &[Token<'a>], at: usize) -> Option<Member<'a>> {
    let part = tokens.get(at..at + LENGTH)?;
    let [l, d, i, operator, name, dot, member] = [0, 1, 2, 3, 4, 5, 6].map(|n| part[n].text);
    let before = at.checked_sub(1).map(|before| tokens[before].text);
    let behind = tokens.get(at + LENGTH).map(|behind| behind.text);
    let is_one = [l, d, i, dot] == ["loop", ".", "index0", "."]
        && OPERATORS.contains(&operator)
        && part[NAME].is_operand()
        && is_name(tokens, at + NAME)
        && is_word(member)
        && before.is_none_or(|token| BEFORE.contains(&token))
        && behind.is_none_or(|token| BEHIND.contains(&token));
    is_one.then_some((name, member))
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A name, and its member where one is read.
fn mention<'a>(tag: &Tag<'a>, at: usize) -> (&'a str, Option<&'a str>) {
    let is_read = tag.tokens.get(at + 1).is_some_and(|token| token.text == ".");
    let member = tag.tokens.get(at + 2).filter(|_| is_read).map(|token| token.text);
    (tag.tokens[at].text, member)
}
