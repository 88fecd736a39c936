//! The ids of a remembered prompt, packed, with the places to go on from.

use std::borrow::Cow;

use roost_tokenizer::{EncodedPrompt, Mark};
use roost_wire::message::{PackedIds, Packer, PromptTokens};

/// Ids at the end that are needed as such: to find out how an answer begins.
const LAST: usize = 64;

#[derive(Debug)]
pub(super) struct Ids {
    packed: PackedIds,
    places: Vec<Option<Place>>,
}

/// A mark, and where its ids end in the packed ones.
#[derive(Clone, Debug)]
struct Place {
    mark: Mark,
    offset: u32,
}

impl Ids {
    /// Of a prompt that was encoded from its beginning.
    pub(super) fn new(encoded: &EncodedPrompt) -> Self {
        Self { packed: PackedIds::default(), places: Vec::new() }.grown(0, encoded)
    }

    /// Of a prompt that went on from a place of this one, behind which the first `places` places end.
    pub(super) fn grown(&self, places: usize, encoded: &EncodedPrompt) -> Self {
        let (tokens, offset) = match places.checked_sub(1).and_then(|last| self.places[last].as_ref()) {
            Some(Place { mark, offset }) => (mark.tokens(), *offset as usize),
            None => (0, 0),
        };
        let mut grown = Vec::with_capacity(places + encoded.marks.len());
        grown.extend_from_slice(&self.places[..places]);
        let mut packer = Packer::default();
        let mut done = 0;
        for mark in &encoded.marks {
            grown.push(mark.clone().map(|mark| {
                let upto = mark.tokens() - tokens;
                packer.put(&encoded.ids[done..upto]);
                done = upto;
                Place { mark, offset: (offset + packer.byte_len()) as u32 }
            }));
        }
        packer.put(&encoded.ids[done..]);
        Self { packed: self.packed.grown(tokens, offset, packer), places: grown }
    }

    /// How to go on behind the first `places` places.
    pub(super) fn mark(&self, places: usize) -> Option<&Mark> {
        Some(&self.places.get(places.checked_sub(1)?)?.as_ref()?.mark)
    }

    pub(super) fn resumable(&self) -> impl Iterator<Item = bool> + '_ {
        self.places.iter().map(Option::is_some)
    }

    /// The ids from number `first` on, of which those from number `known` on are `rest`; but at least the last ones.
    pub(super) fn from<'a>(&self, first: usize, known: usize, rest: &'a [u32]) -> Cow<'a, [u32]> {
        if let Some(skipped) = first.checked_sub(known) {
            return Cow::Borrowed(&rest[skipped..]);
        }
        // From the nearest place before.
        let place = self.places.iter().flatten().rev().find(|place| place.mark.tokens() <= first);
        let (tokens, offset) = place.map_or((0, 0), |place| (place.mark.tokens(), place.offset as usize));
        let before = self.packed.ids_from(offset).take(known - tokens).skip(first - tokens);
        Cow::Owned(before.chain(rest.iter().copied()).collect())
    }

    /// The prompt, whose last ids are `last`.
    pub(super) fn tokens(&self, last: &[u32]) -> PromptTokens {
        let missing = self.packed.len().min(LAST).saturating_sub(last.len());
        if missing == 0 {
            return PromptTokens::packed(self.packed.clone(), last);
        }
        let known = self.packed.len() - last.len();
        PromptTokens::packed(self.packed.clone(), &self.from(known - missing, known, last))
    }

    pub(super) fn bytes(&self) -> usize {
        let pending = self.places.iter().flatten().map(|place| place.mark.heap_bytes());
        self.packed.memory() + self.places.capacity() * size_of::<Option<Place>>() + pending.sum::<usize>()
    }
}
