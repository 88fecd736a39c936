//! Text that spells control tokens and is not to become them.
//!
//! Before a template joins the texts of a conversation, a guard is put into every such spelling of those that are not to
//! be trusted; in the rendered prompt it tells them from the template's own. A guard is a character that occurs nowhere
//! else.

use crate::error::Error;
use crate::tokenizer::{Segment, Tokenizer};

impl Tokenizer {
    /// The text with a guard behind the first character of each added token that it spells; `None` where it spells
    /// none. A token of a single character cannot be guarded.
    #[must_use]
    pub fn guarded(&self, text: &str, guard: char) -> Option<String> {
        let mut guarded: Option<String> = None;
        loop {
            let text = guarded.as_deref().unwrap_or(text);
            let mut next = String::new();
            let mut done = 0;
            for at in self.spellings(text) {
                next.push_str(&text[done..at]);
                next.push(guard);
                done = at;
            }
            if done == 0 {
                return guarded;
            }
            next.push_str(&text[done..]);
            // Another token may have been covered by one that is none any more.
            guarded = Some(next);
        }
    }

    /// Behind the first character of each token of two and more characters.
    fn spellings(&self, text: &str) -> Vec<usize> {
        let behind = |start: usize, end: usize| {
            let first = text[start..end].chars().next()?.len_utf8();
            (start + first < end).then_some(start + first)
        };
        match &self.inner.boundaries {
            Some(boundaries) => {
                boundaries.tokens(text).filter_map(|range| behind(range.start, range.end)).collect()
            }
            None => {
                let tokens = self.inner.encoder.added_tokens();
                let mut found: Vec<usize> = tokens
                    .iter()
                    .filter(|token| !token.content.is_empty())
                    .flat_map(|token| {
                        text.match_indices(token.content.as_str())
                            .filter_map(|(at, found)| behind(at, at + found.len()))
                    })
                    .collect();
                found.sort_unstable();
                found.dedup();
                found
            }
        }
    }

    /// Encodes a prompt without its guards: a text between two tokens that has one is encoded as ordinary text, all
    /// others as [`encode`](Self::encode) does.
    ///
    /// # Errors
    /// [`Error::Encode`] when the backend refuses the text, or where prompts of this model cannot be cut safely.
    pub fn encode_guarded(&self, text: &str, guard: char) -> Result<Vec<u32>, Error> {
        let boundaries = self.inner.boundaries.as_ref().ok_or_else(|| {
            Error::Encode(
                "this tokenizer cannot keep text apart from the control tokens it spells".to_owned(),
            )
        })?;
        let mut ids = Vec::new();
        // Up to where the text is encoded.
        let mut done = 0;
        for range in boundaries.texts(text) {
            if !text[range.clone()].contains(guard) {
                continue;
            }
            self.extend(&mut ids, Segment { text: &text[done..range.start], special: true })?;
            let plain = text[range.clone()].replace(guard, "");
            self.extend(&mut ids, Segment { text: &plain, special: false })?;
            done = range.end;
        }
        self.extend(&mut ids, Segment { text: &text[done..], special: true })?;
        Ok(ids)
    }
}

#[cfg(test)]
mod tests;
