//! Where a prompt may be cut so that the ids of the pieces are the ids of the whole.
//!
//! An encoder finds added tokens first and works on each text between them alone: it normalizes, pre-tokenizes and
//! merges never across one. So both ends of an added token are such places, provided that the token takes nothing from
//! its surroundings and that no step treats the first text of an input in its own way. [`Boundaries::of`] checks both.

use std::ops::Range;
use std::path::Path;

use aho_corasick::{AhoCorasick, MatchKind};
use serde::Deserialize;
use serde_json::Value;

use crate::backend::{AddedToken, Encoder};

/// Texts of this many bytes stand alone; shorter ones are joined with the tokens and short texts around them.
const ALONE: usize = 256;

/// Joined pieces end behind the first token that makes them this long.
const JOINED: usize = 1024;

/// The added tokens of a model, all of them safe to cut at.
#[derive(Debug)]
pub(crate) struct Boundaries {
    /// Tokens found in the text as it is, before all others.
    raw: Option<Tokens>,
    /// Tokens found between those, in normalized text; present only where normalizing changes nothing.
    normalized: Option<Tokens>,
}

/// Tokens that are looked for together.
#[derive(Debug)]
struct Tokens {
    automaton: AhoCorasick,
    /// By pattern: nothing that follows the token in a text can make it another one. So it is no part of another token
    /// and, when it is found late, ends in the beginning of none that is found earlier.
    solid: Vec<bool>,
}

/// A piece of text between two places where it may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Text,
    /// An added token.
    Token,
    /// An added token that stays one whatever follows it.
    Solid,
}

#[derive(Deserialize)]
struct File {
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    /// Missing in files of old versions.
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
}

impl Boundaries {
    /// The boundaries of a loaded model; `None` when there are none or cutting at one would not be safe.
    pub(crate) fn of(path: &Path, encoder: &Encoder) -> Option<Self> {
        Self::of_json(&std::fs::read(path).ok()?, encoder)
    }

    /// The same for a model described by the bytes of a `tokenizer.json`; its vocabulary is not looked at.
    pub(crate) fn of_json(json: &[u8], encoder: &Encoder) -> Option<Self> {
        let file: File = serde_json::from_slice(json).ok()?;
        let is_byte_pair = file.model.r#type.as_deref() == Some("BPE") && file.model.dropout.is_none();
        let normalizers = steps(file.normalizer.as_ref(), "normalizers");
        let pre_tokenizers = steps(file.pre_tokenizer.as_ref(), "pretokenizers");
        let tokens: Vec<AddedToken> =
            encoder.added_tokens().into_iter().filter(|token| !token.content.is_empty()).collect();
        let safe = is_byte_pair
            && normalizers
                .iter()
                .all(|step| matches!(kind(step), "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase"))
            && pre_tokenizers.iter().all(|step| is_local(step))
            && tokens.iter().all(|token| token.is_plain);
        if !safe {
            return None;
        }
        let (normalized, raw): (Vec<_>, Vec<_>) = tokens.into_iter().partition(|token| token.normalized);
        let all = || raw.iter().chain(&normalized).map(|token| token.content.as_str());
        let is_part = |token: &str| all().any(|other| other.len() > token.len() && other.contains(token));
        let opens_raw = |tail: &str| raw.iter().any(|other| other.content.starts_with(tail));
        let is_opening = |token: &str| token.char_indices().skip(1).any(|(at, _)| opens_raw(&token[at..]));
        let boundaries = Self {
            raw: Tokens::new(&raw, |token| !is_part(token)),
            normalized: (normalizers.is_empty())
                .then(|| Tokens::new(&normalized, |token| !is_part(token) && !is_opening(token)))
                .flatten(),
        };
        let any = boundaries.raw.is_some() || boundaries.normalized.is_some();
        (any && boundaries.holds(encoder, &raw, &normalized)).then_some(boundaries)
    }

    /// Tries cuts at tokens between texts that like to merge.
    fn holds(&self, encoder: &Encoder, raw: &[AddedToken], normalized: &[AddedToken]) -> bool {
        let texts = ["a", " ", "\n", " the", "e\u{301}", "\u{301}", "  x ", "'s", "12", "\n\n a"];
        let mut text = String::new();
        let tokens = raw.iter().chain(normalized).take(128);
        for (n, token) in tokens.enumerate() {
            text += texts[n % texts.len()];
            text += &token.content;
            text += texts[(n * 7 + 3) % texts.len()];
        }
        let Ok(whole) = encoder.encode(&text, false) else { return false };
        let mut pieces = Vec::new();
        for (range, _) in self.spans(&text) {
            match encoder.encode(&text[range], false) {
                Ok(ids) => pieces.extend(ids),
                Err(_) => return false,
            }
        }
        whole == pieces
    }

    /// Cuts `text` into segments. Where a segment ends depends only on the text near by, so equal stretches of two
    /// prompts have equal segments, but for the first and last of the stretch.
    pub(crate) fn segments(&self, text: &str) -> Vec<Range<usize>> {
        let mut segments: Vec<Range<usize>> = Vec::new();
        // A joined piece that may still grow.
        let mut open: Option<Range<usize>> = None;
        for (span, kind) in self.spans(text) {
            let is_token = kind != Span::Text;
            if !is_token && span.len() >= ALONE {
                segments.extend(open.take());
                segments.push(span);
                continue;
            }
            let joined = open.take().map_or(span.start, |open| open.start)..span.end;
            if is_token && joined.len() >= JOINED { segments.push(joined) } else { open = Some(joined) }
        }
        segments.extend(open);
        segments
    }

    /// Ends of the tokens in `text` that stay tokens whatever follows; in order.
    pub(crate) fn solid_ends<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.spans(text).filter(|(_, kind)| *kind == Span::Solid).map(|(range, _)| range.end)
    }

    /// The tokens in `text`, in order.
    pub(crate) fn tokens<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        self.spans(text).filter(|(_, kind)| *kind != Span::Text).map(|(range, _)| range)
    }

    /// The texts between them, in order.
    pub(crate) fn texts<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        self.spans(text).filter(|(_, kind)| *kind == Span::Text).map(|(range, _)| range)
    }

    /// The tokens in `text` and the texts between them, in order.
    fn spans<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (Range<usize>, Span)> + 'a {
        split(self.raw.as_ref(), text, 0..text.len()).flat_map(move |(range, kind)| {
            let inner = (kind == Span::Text).then_some(self.normalized.as_ref()).flatten();
            split(inner, text, range)
                .map(move |(part, found)| (part, if inner.is_some() { found } else { kind }))
        })
    }
}

impl Tokens {
    fn new(tokens: &[AddedToken], is_solid: impl Fn(&str) -> bool) -> Option<Self> {
        if tokens.is_empty() {
            return None;
        }
        let contents = || tokens.iter().map(|token| token.content.as_str());
        let automaton =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(contents()).ok()?;
        Some(Self { automaton, solid: contents().map(is_solid).collect() })
    }
}

/// Cuts a part of `text` at the tokens in it; without tokens to look for it stays whole.
fn split<'a>(
    tokens: Option<&'a Tokens>,
    text: &'a str,
    part: Range<usize>,
) -> impl Iterator<Item = (Range<usize>, Span)> + 'a {
    let (start, end) = (part.start, part.end);
    let found = tokens.into_iter().flat_map(move |tokens| {
        tokens.automaton.find_iter(&text[part.clone()]).map(move |m| {
            let kind = if tokens.solid[m.pattern().as_usize()] { Span::Solid } else { Span::Token };
            (start + m.start()..start + m.end(), kind)
        })
    });
    let mut at = start;
    // A token without length at the end brings the last text.
    found.chain(std::iter::once((end..end, Span::Token))).flat_map(move |(token, kind)| {
        let before = at..token.start;
        at = token.end;
        [(before, Span::Text), (token, kind)].into_iter().filter(|(range, _)| !range.is_empty())
    })
}

/// The steps of a normalizer or pre-tokenizer, sequences taken apart.
fn steps<'a>(step: Option<&'a Value>, members: &str) -> Vec<&'a Value> {
    match step {
        None | Some(Value::Null) => Vec::new(),
        Some(step) if kind(step) == "Sequence" => {
            let list = step.get(members).and_then(Value::as_array);
            // A sequence without its list is no step that is known here.
            list.map_or(vec![step], |list| list.iter().flat_map(|step| steps(Some(step), members)).collect())
        }
        Some(step) => vec![step],
    }
}

fn kind(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a pre-tokenizer looks at each text between added tokens alone.
fn is_local(step: &Value) -> bool {
    match kind(step) {
        "Split" | "Digits" | "Punctuation" | "Whitespace" | "WhitespaceSplit" => true,
        "ByteLevel" => step.get("add_prefix_space").and_then(Value::as_bool) == Some(false),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
