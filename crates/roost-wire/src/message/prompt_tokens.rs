use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{PackedIds, token_ids};

/// Ids at the end of a packed prompt that can be read without unpacking it.
const TAIL: usize = 64;

/// The tokens of a prompt: as ids, or as MessagePack writes them. What was made of the one is kept with the other, for
/// all clones.
///
/// A packed prompt is written in MessagePack without a look at its ids; to read it as a slice unpacks it once, at a
/// nanosecond for each id.
#[derive(Clone)]
pub struct PromptTokens(Arc<Forms>);

struct Forms {
    len: usize,
    tail: Box<[u32]>,
    ids: OnceLock<Box<[u32]>>,
    packed: OnceLock<PackedIds>,
}

impl PromptTokens {
    /// Packed tokens. `last` are ids at their end: all, or at least 64.
    #[must_use]
    pub fn packed(packed: PackedIds, last: &[u32]) -> Self {
        let tail = last[last.len().saturating_sub(TAIL)..].into();
        let (len, ids) = (packed.len(), OnceLock::new());
        Self(Arc::new(Forms { len, tail, ids, packed: packed.into() }))
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last ids: 64, or all.
    #[must_use]
    pub fn tail(&self) -> &[u32] {
        match self.0.ids.get() {
            Some(ids) => &ids[ids.len().saturating_sub(TAIL)..],
            None => &self.0.tail,
        }
    }

    /// The tokens in MessagePack's form.
    #[must_use]
    pub fn pack(&self) -> &PackedIds {
        self.0.packed.get_or_init(|| PackedIds::new(self))
    }

    /// Whether they are packed already.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.0.packed.get().is_some()
    }
}

impl Deref for PromptTokens {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        self.0
            .ids
            .get_or_init(|| self.0.packed.get().map_or_else(Box::default, |ids| ids.ids_from(0).collect()))
    }
}

impl From<Box<[u32]>> for PromptTokens {
    fn from(ids: Box<[u32]>) -> Self {
        let (len, tail) = (ids.len(), Box::default());
        Self(Arc::new(Forms { len, tail, ids: ids.into(), packed: OnceLock::new() }))
    }
}

impl From<Vec<u32>> for PromptTokens {
    fn from(ids: Vec<u32>) -> Self {
        ids.into_boxed_slice().into()
    }
}

impl From<&[u32]> for PromptTokens {
    fn from(ids: &[u32]) -> Self {
        Box::<[u32]>::from(ids).into()
    }
}

impl<const N: usize> From<[u32; N]> for PromptTokens {
    fn from(ids: [u32; N]) -> Self {
        Self::from(&ids[..])
    }
}

impl FromIterator<u32> for PromptTokens {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        ids.into_iter().collect::<Vec<u32>>().into()
    }
}

impl Default for PromptTokens {
    fn default() -> Self {
        Self::from([])
    }
}

impl PartialEq for PromptTokens {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self[..] == other[..]
    }
}

impl Eq for PromptTokens {}

impl fmt::Debug for PromptTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for PromptTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for PromptTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        token_ids::prompt(deserializer)
    }
}

#[cfg(test)]
mod tests;
