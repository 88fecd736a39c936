//! Prompts that continue earlier prompts.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::Error;
use crate::tokenizer::{Segment, Tokenizer};

/// Most text between a mark's ids and its place.
const PENDING: usize = 64;

/// The ids of a prompt, and places from which another prompt with the same beginning can go on.
#[derive(Clone, Debug)]
pub struct EncodedPrompt {
    /// The ids of the whole prompt.
    pub ids: Arc<[u32]>,
    /// For each place that was asked for, how to go on there; `None` where that is not possible.
    pub marks: Vec<Option<Mark>>,
}

/// A place in a prompt: so many ids, then text whose ids depend on what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    tokens: u32,
    pending: Box<str>,
}

/// An earlier prompt and how much of it stays.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// The earlier prompt.
    pub prompt: &'a EncodedPrompt,
    /// How many of its places stay; behind the last of these the new text goes on. That place must have a mark.
    pub places: usize,
}

impl Mark {
    /// Ids of the prompt up to here that every continuation has.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens as usize
    }
}

impl EncodedPrompt {
    /// Bytes of memory the marks take; the ids take 4 each.
    #[must_use]
    pub fn mark_bytes(&self) -> usize {
        let pending = self.marks.iter().flatten().map(|mark| mark.pending.len());
        self.marks.capacity() * size_of::<Option<Mark>>() + pending.sum::<usize>()
    }
}

impl Tokenizer {
    /// Encodes a prompt as [`encode`](Self::encode) does without special tokens of its own. `text` is what follows the
    /// kept part of an earlier prompt, the whole prompt when there is none. `places` are offsets in `text`, in order,
    /// behind which later prompts may want to go on.
    ///
    /// # Errors
    /// [`Error::Encode`] when the backend refuses the text.
    pub fn encode_prompt(
        &self,
        kept: Option<Kept<'_>>,
        text: &str,
        places: impl IntoIterator<Item = usize>,
    ) -> Result<EncodedPrompt, Error> {
        let last =
            kept.and_then(|kept| kept.prompt.marks.get(..kept.places)?.last()?.as_ref().map(|m| (kept, m)));
        let (before, mut marks, text, pending) = match last {
            Some((kept, mark)) => {
                let text = Cow::Owned([&mark.pending, text].concat());
                let marks = kept.prompt.marks[..kept.places].to_vec();
                (&kept.prompt.ids[..mark.tokens()], marks, text, mark.pending.len())
            }
            None => (&[] as &[u32], Vec::new(), Cow::Borrowed(text), 0),
        };
        let mut ids = Vec::new();
        let mut ends =
            self.inner.boundaries.iter().flat_map(|boundaries| boundaries.solid_ends(&text)).peekable();
        // Up to where the text is encoded, and up to where it may be.
        let (mut done, mut cut) = (0, 0);
        for place in places {
            let place = place + pending;
            while let Some(end) = ends.next_if(|end| *end <= place) {
                cut = end;
            }
            let near = self.inner.boundaries.is_some() && place - cut <= PENDING;
            if near {
                self.extend(&mut ids, Segment { text: &text[done..cut], special: true })?;
                done = cut;
            }
            let tokens = (before.len() + ids.len()) as u32;
            marks.push(near.then(|| Mark { tokens, pending: text[cut..place].into() }));
        }
        self.extend(&mut ids, Segment { text: &text[done..], special: true })?;
        Ok(EncodedPrompt { ids: joined(before, &ids), marks })
    }
}

/// One list of two. Copies of whole ranges, the second one into the shared allocation, are cheaper than one pass id by
/// id.
fn joined(head: &[u32], tail: &[u32]) -> Arc<[u32]> {
    [head, tail].concat().into()
}

#[cfg(test)]
mod tests;
