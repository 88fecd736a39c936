//! Prompts that continue earlier prompts.

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
    /// Encodes a prompt as [`encode_segments`](Self::encode_segments) does. `parts` are what follows the kept part of
    /// an earlier prompt, the whole prompt when there is none; of two in a row at most one is special. `places` are
    /// offsets in their text, in order, behind which later prompts may want to go on. A place at the end of an ordinary
    /// part is good only for prompts that go on with a special one; that is up to the caller.
    ///
    /// # Errors
    /// [`Error::Encode`] when the backend refuses the text.
    pub fn encode_prompt<'a>(
        &self,
        kept: Option<Kept<'_>>,
        parts: impl IntoIterator<Item = Segment<'a>>,
        places: impl IntoIterator<Item = usize>,
    ) -> Result<EncodedPrompt, Error> {
        let last =
            kept.and_then(|kept| kept.prompt.marks.get(..kept.places)?.last()?.as_ref().map(|m| (kept, m)));
        let (before, marks, pending) = match last {
            Some((kept, mark)) => {
                let ids = &kept.prompt.ids[..mark.tokens()];
                (ids, kept.prompt.marks[..kept.places].to_vec(), &*mark.pending)
            }
            None => (&[] as &[u32], Vec::new(), ""),
        };
        let mut parts = parts.into_iter().peekable();
        let joined = match parts.next_if(|part| part.special && !pending.is_empty()) {
            Some(part) => [pending, part.text].concat(),
            None => pending.to_owned(),
        };
        let mut places = places.into_iter().map(|place| place + pending.len()).peekable();
        let mut encoding = Encoding { tokenizer: self, before: before.len(), ids: Vec::new(), marks };
        let mut start = 0;
        let mut encode = |Segment { text, special }: Segment<'_>| {
            let end = start + text.len();
            let inside =
                std::iter::from_fn(|| places.next_if(|place| *place <= end)).map(|place| place - start);
            if special {
                encoding.special(text, inside)?
            } else {
                encoding.ordinary(text, inside)?
            }
            start = end;
            Ok(())
        };
        if !joined.is_empty() {
            encode(Segment { text: &joined, special: true })?;
        }
        parts.try_for_each(encode)?;
        encoding.marks.extend(places.map(|_| None));
        Ok(EncodedPrompt { ids: self::joined(before, &encoding.ids), marks: encoding.marks })
    }
}

/// The ids behind the kept ones, so far.
struct Encoding<'t> {
    tokenizer: &'t Tokenizer,
    /// Ids that are kept.
    before: usize,
    ids: Vec<u32>,
    marks: Vec<Option<Mark>>,
}

impl Encoding<'_> {
    /// A part in which spellings of tokens are tokens. A place is marked behind a token near by that stays one.
    fn special(&mut self, text: &str, places: impl Iterator<Item = usize>) -> Result<(), Error> {
        let tokenizer = self.tokenizer;
        let mut ends =
            tokenizer.inner.boundaries.iter().flat_map(|boundaries| boundaries.solid_ends(text)).peekable();
        // Up to where the text is encoded, and up to where it may be.
        let (mut done, mut cut) = (0, 0);
        for place in places {
            while let Some(end) = ends.next_if(|end| *end <= place) {
                cut = end;
            }
            let near = tokenizer.inner.boundaries.is_some() && place - cut <= PENDING;
            if near {
                tokenizer.extend(&mut self.ids, Segment { text: &text[done..cut], special: true })?;
                done = cut;
            }
            self.marks.push(near.then(|| self.mark(&text[cut..place])));
        }
        tokenizer.extend(&mut self.ids, Segment { text: &text[done..], special: true })
    }

    /// A part that is encoded as it is. Only its end is a place to go on from.
    fn ordinary(&mut self, text: &str, places: impl Iterator<Item = usize>) -> Result<(), Error> {
        self.tokenizer.extend(&mut self.ids, Segment { text, special: false })?;
        for place in places {
            self.marks.push((place == text.len()).then(|| self.mark("")));
        }
        Ok(())
    }

    fn mark(&self, pending: &str) -> Mark {
        Mark { tokens: (self.before + self.ids.len()) as u32, pending: pending.into() }
    }
}

/// One list of two. Copies of whole ranges, the second one into the shared allocation, are cheaper than one pass id by
/// id.
fn joined(head: &[u32], tail: &[u32]) -> Arc<[u32]> {
    [head, tail].concat().into()
}

#[cfg(test)]
mod tests;
