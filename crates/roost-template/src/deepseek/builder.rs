//! A prompt under construction: text with its trust.

use crate::prompt::{Prompt, Segment};

pub(super) const BOS: &str = "<｜begin▁of▁sentence｜>";
pub(super) const EOS: &str = "<｜end▁of▁sentence｜>";
pub(super) const SYSTEM: &str = "<｜System｜>";
pub(super) const USER: &str = "<｜User｜>";
pub(super) const ASSISTANT: &str = "<｜Assistant｜>";
pub(super) const REMINDER: &str = "<｜latest_reminder｜>";
pub(super) const THINK: &str = "<think>";
pub(super) const END_THINK: &str = "</think>";
pub(super) const DSML: &str = "｜DSML｜";

/// Tokens an assistant may have written itself; everything else in its text is ordinary.
const GROUNDING: [&str; 8] = [
    "<｜ref｜>",
    "<｜/ref｜>",
    "<｜box｜>",
    "<｜/box｜>",
    "<｜point｜>",
    "<｜/point｜>",
    "<｜polygon｜>",
    "<｜/polygon｜>",
];

/// Text and the ends of its segments, which alternate in kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Builder {
    text: String,
    segments: Vec<Segment>,
    places: Vec<Option<usize>>,
}

/// A prompt, and where the text before each of its answers ends.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) prompt: Prompt,
    /// For each answer in order, and for the end: bytes of the prompt before it. `None` where that text depends on
    /// what follows it, beyond what [`Facts`](crate::incremental::Facts) tell.
    pub(super) places: Vec<Option<usize>>,
}

impl Builder {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Appends ordinary text.
    pub(super) fn plain(&mut self, text: &str) -> &mut Self {
        self.push(text, false)
    }

    /// Appends a control token.
    pub(super) fn special(&mut self, token: &str) -> &mut Self {
        self.push(token, true)
    }

    /// Appends text of an earlier answer.
    pub(super) fn answer(&mut self, mut text: &str) -> &mut Self {
        while let Some((at, token)) = first_grounding(text) {
            self.plain(&text[..at]).special(token);
            text = &text[at + token.len()..];
        }
        self.plain(text)
    }

    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        for segment in &other.segments {
            self.push(&other.text[segment.range.clone()], segment.special);
        }
        self
    }

    /// Notes that an answer begins here, or the end of the messages, and whether this is a place to go on from: the
    /// text before does not depend on what follows.
    pub(super) fn place(&mut self, is_sealed: bool) {
        self.places.push(is_sealed.then_some(self.text.len()));
    }

    /// Whether what was written last is no ordinary text.
    pub(super) fn ends_special(&self) -> bool {
        self.segments.last().is_some_and(|last| last.special)
    }

    pub(super) fn finish(self) -> Rendered {
        let prompt = Prompt { text: self.text, segments: Some(self.segments) };
        Rendered { prompt, places: self.places }
    }

    fn push(&mut self, text: &str, special: bool) -> &mut Self {
        if text.is_empty() {
            return self;
        }
        let start = self.text.len();
        self.text.push_str(text);
        let end = self.text.len();
        match self.segments.last_mut() {
            Some(last) if last.special == special => last.range.end = end,
            _ => self.segments.push(Segment { range: start..end, special }),
        }
        self
    }
}

fn first_grounding(text: &str) -> Option<(usize, &'static str)> {
    text.match_indices("<｜").find_map(|(at, _)| {
        let token = GROUNDING.iter().find(|token| text[at..].starts_with(**token))?;
        Some((at, *token))
    })
}
