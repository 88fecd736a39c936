use std::{fmt, ops::Deref};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};
use smallvec::SmallVec;

use super::PromptTokens;

/// Most elements that are reserved because a sequence header promises them.
const TRUSTED_LEN: usize = 64 * 1024;

/// The new tokens of one item: almost always one to a few, held without a heap allocation.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OutputTokens(SmallVec<[u32; 6]>);

impl Deref for OutputTokens {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

impl fmt::Debug for OutputTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&[u32]> for OutputTokens {
    fn from(ids: &[u32]) -> Self {
        Self(SmallVec::from_slice(ids))
    }
}

impl<const N: usize> From<[u32; N]> for OutputTokens {
    fn from(ids: [u32; N]) -> Self {
        Self::from(ids.as_slice())
    }
}

impl From<Vec<u32>> for OutputTokens {
    fn from(ids: Vec<u32>) -> Self {
        Self(SmallVec::from_vec(ids))
    }
}

impl FromIterator<u32> for OutputTokens {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl Extend<u32> for OutputTokens {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        self.0.extend(ids);
    }
}

impl Serialize for OutputTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

impl<'de> Deserialize<'de> for OutputTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TokensVisitor(Self::default()))
    }
}

/// Deserializes the tokens of a prompt: an array, or a byte string of little-endian 32-bit integers.
pub(super) fn prompt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PromptTokens, D::Error> {
    deserializer.deserialize_any(TokensVisitor(Vec::new())).map(PromptTokens::from)
}

/// What tokens are collected into.
trait Tokens: Extend<u32> {
    fn reserve(&mut self, additional: usize);
    fn push(&mut self, id: u32);
}

impl Tokens for Vec<u32> {
    fn reserve(&mut self, additional: usize) {
        Vec::reserve(self, additional);
    }

    fn push(&mut self, id: u32) {
        Vec::push(self, id);
    }
}

impl Tokens for OutputTokens {
    fn reserve(&mut self, additional: usize) {
        self.0.reserve(additional);
    }

    fn push(&mut self, id: u32) {
        self.0.push(id);
    }
}

struct TokensVisitor<T>(T);

impl<'de, T: Tokens> Visitor<'de> for TokensVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("token ids: an array, or little-endian 32-bit integers")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<T, A::Error> {
        self.0.reserve(seq.size_hint().unwrap_or(0).min(TRUSTED_LEN));
        while let Some(id) = seq.next_element()? {
            self.0.push(id);
        }
        Ok(self.0)
    }

    fn visit_bytes<E: de::Error>(mut self, bytes: &[u8]) -> Result<T, E> {
        let (ids, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(E::invalid_length(bytes.len(), &"a multiple of four bytes"));
        }
        self.0.extend(ids.iter().map(|id| u32::from_le_bytes(*id)));
        Ok(self.0)
    }
}
