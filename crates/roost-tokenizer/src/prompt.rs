//! Prompts that continue earlier prompts.

use crate::error::Error;
use crate::tokenizer::{Segment, Tokenizer};

/// Most text between a mark's ids and its place.
const PENDING: usize = 64;

/// The ids of a prompt, and places from which another prompt with the same beginning can go on.
#[derive(Clone, Debug)]
pub struct EncodedPrompt {
    /// The ids behind those of the mark that the prompt went on from: all, where there was none.
    pub ids: Vec<u32>,
    /// For each place that was asked for, how to go on there; `None` where that is not possible. Their numbers of ids
    /// are those of the whole prompt.
    pub marks: Vec<Option<Mark>>,
}

/// A place in a prompt: so many ids, then text whose ids depend on what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    tokens: u32,
    pending: Box<str>,
}

impl Mark {
    /// Ids of the prompt up to here that every continuation has.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens as usize
    }

    /// Bytes of memory it takes beside its own size.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pending.len()
    }
}

impl Tokenizer {
    /// Encodes a prompt as [`encode_segments`](Self::encode_segments) does. `parts` are what follows a place of an
    /// earlier prompt with a mark, the whole prompt when there is none; of two in a row at most one is special.
    /// `places` are offsets in their text, in order, behind which later prompts may want to go on. A place at the end
    /// of an ordinary part is good only for prompts that go on with a special one; that is up to the caller.
    ///
    /// The beginning of a prompt, up to the first mark, is what prompts of different sessions have in common: only that
    /// is taken from the cache and left there. The rest is with the one who keeps the marks.
    ///
    /// # Errors
    /// [`Error::Encode`] when the backend refuses the text.
    pub fn encode_prompt<'a>(
        &self,
        mark: Option<&Mark>,
        parts: impl IntoIterator<Item = Segment<'a>>,
        places: impl IntoIterator<Item = usize>,
    ) -> Result<EncodedPrompt, Error> {
        let (before, pending) = mark.map_or((0, ""), |mark| (mark.tokens, &*mark.pending));
        let mut parts = parts.into_iter().peekable();
        let joined = match parts.next_if(|part| part.special && !pending.is_empty()) {
            Some(part) => [pending, part.text].concat(),
            None => pending.to_owned(),
        };
        let mut places = places.into_iter().map(|place| place + pending.len()).peekable();
        let mut encoding = Encoding {
            tokenizer: self,
            before,
            ids: Vec::new(),
            marks: Vec::new(),
            is_shared: mark.is_none(),
        };
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
        Ok(EncodedPrompt { ids: encoding.ids, marks: encoding.marks })
    }
}

/// The ids behind the kept ones, so far.
struct Encoding<'t> {
    tokenizer: &'t Tokenizer,
    /// Ids before these.
    before: u32,
    ids: Vec<u32>,
    marks: Vec<Option<Mark>>,
    /// Other prompts begin like this.
    is_shared: bool,
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
                self.extend(Segment { text: &text[done..cut], special: true })?;
                done = cut;
            }
            let mark = near.then(|| self.mark(&text[cut..place]));
            self.marks.push(mark);
        }
        self.extend(Segment { text: &text[done..], special: true })
    }

    /// A part that is encoded as it is. Only its end is a place to go on from.
    fn ordinary(&mut self, text: &str, places: impl Iterator<Item = usize>) -> Result<(), Error> {
        self.extend(Segment { text, special: false })?;
        for place in places {
            let mark = (place == text.len()).then(|| self.mark(""));
            self.marks.push(mark);
        }
        Ok(())
    }

    fn extend(&mut self, segment: Segment<'_>) -> Result<(), Error> {
        match self.is_shared {
            true => self.tokenizer.extend(&mut self.ids, segment),
            false => self.tokenizer.extend_uncached(&mut self.ids, segment),
        }
    }

    fn mark(&mut self, pending: &str) -> Mark {
        self.is_shared = false;
        Mark { tokens: self.before + self.ids.len() as u32, pending: pending.into() }
    }
}

#[cfg(test)]
mod tests;
