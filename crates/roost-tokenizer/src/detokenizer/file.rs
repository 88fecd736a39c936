//! What `tokenizer.json` says beyond what the encoder libraries tell.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::Error;

#[derive(Deserialize)]
pub(super) struct File {
    pub(super) decoder: Option<Value>,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    vocab: IdBound,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        serde_json::from_slice(&bytes)
            .map_err(|e| Error::Load { path: path.to_owned(), reason: e.to_string() })
    }

    /// One more than the largest id of the model's own vocabulary. Ids may have holes, so the number of tokens is no
    /// such bound.
    pub(super) fn id_bound(&self) -> usize {
        self.model.vocab.0
    }
}

/// Bound of the ids in a vocabulary, which is a map from token to id or a list in order of ids.
struct IdBound(usize);

impl<'de> Deserialize<'de> for IdBound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Vocabulary;
        impl<'de> Visitor<'de> for Vocabulary {
            type Value = IdBound;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a vocabulary")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IdBound, A::Error> {
                let mut bound = 0;
                while let Some((_, id)) = map.next_entry::<IgnoredAny, u32>()? {
                    bound = bound.max(id as usize + 1);
                }
                Ok(IdBound(bound))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<IdBound, A::Error> {
                let mut bound = 0;
                while items.next_element::<IgnoredAny>()?.is_some() {
                    bound += 1;
                }
                Ok(IdBound(bound))
            }
        }
        deserializer.deserialize_any(Vocabulary)
    }
}
