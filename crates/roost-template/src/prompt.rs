//! The rendered prompt.

use std::ops::Range;

/// Prompt text, with the trust of its parts where the renderer knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The whole text.
    pub text: String,
    /// Parts in order, covering `text` without gaps; `None` when the text is one piece in which spellings of
    /// control tokens are control tokens (every Jinja template).
    pub segments: Option<Vec<Segment>>,
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes of [`Prompt::text`].
    pub range: Range<usize>,
    /// True: control tokens written by the renderer. False: ordinary text that must not become control tokens.
    pub special: bool,
}

impl Prompt {
    /// The parts as (text, special); one special part when there are no segments.
    pub fn parts(&self) -> impl Iterator<Item = (&str, bool)> {
        let whole = self.segments.is_none().then_some((self.text.as_str(), true));
        let parts = self.segments.iter().flatten();
        whole.into_iter().chain(parts.map(|part| (&self.text[part.range.clone()], part.special)))
    }
}
