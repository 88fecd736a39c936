//! Events as engines write them: maps with a `type`, or arrays whose first element is the tag. Optional parts may be left
//! out, versions add some at the end.

use std::fmt;

use roost_kv::EngineHash;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::engine_hash;

/// `[time, [event, …], rank, …]`.
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
}

pub(super) enum Event {
    Stored(Stored),
    Removed {
        hashes: Vec<EngineHash>,
        medium: Option<Medium>,
    },
    Cleared,
    /// Of a kind that is not known, or of a cache that holds no prompts.
    Unknown,
}

#[derive(Default)]
pub(super) struct Stored {
    pub(super) hashes: Vec<EngineHash>,
    pub(super) parent: Option<EngineHash>,
    pub(super) tokens: Tokens,
    pub(super) block_size: u32,
    pub(super) lora_id: Option<i64>,
    pub(super) lora_name: Option<String>,
    pub(super) cache_salt: Option<String>,
    pub(super) medium: Option<Medium>,
}

/// Where blocks are held, in the engine's words.
#[derive(serde::Deserialize)]
pub(super) struct Medium(pub(super) String);

/// The parts of an event before it is known what it is: `type` need not come first.
#[derive(Default)]
struct Parts {
    tag: String,
    stored: Stored,
    /// Kind of the cache that holds the blocks; main attention when absent.
    kind: Option<String>,
}

impl Parts {
    fn event(self) -> Event {
        let holds_prompts = self.kind.as_deref().is_none_or(|kind| {
            let kind = kind.to_ascii_lowercase();
            kind.contains("full") || kind.contains("mla")
        });
        match self.tag.as_str() {
            "AllBlocksCleared" => Event::Cleared,
            _ if !holds_prompts => Event::Unknown,
            "BlockStored" => Event::Stored(self.stored),
            "BlockRemoved" => Event::Removed { hashes: self.stored.hashes, medium: self.stored.medium },
            _ => Event::Unknown,
        }
    }
}

/// The ids of a stored event.
#[derive(Default)]
pub(super) struct Tokens {
    /// One for each token of the blocks.
    pub(super) ids: Vec<u32>,
    /// The token behind them, where speculation keys blocks by pairs of tokens.
    pub(super) behind: Option<u32>,
}

struct Hash(EngineHash);

/// A token, and the one behind it where blocks are keyed by pairs.
struct Token(u32, Option<u32>);

fn hashes(list: Vec<Hash>) -> Vec<EngineHash> {
    list.into_iter().map(|hash| hash.0).collect()
}

fn tokens(list: Vec<Token>) -> Tokens {
    let behind = list.last().and_then(|token| token.1);
    Tokens { ids: list.into_iter().map(|token| token.0).collect(), behind }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BatchVisitor;
        impl<'de> Visitor<'de> for BatchVisitor {
            type Value = Batch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch of kv events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Batch, A::Error> {
                let missing = |at| de::Error::invalid_length(at, &self);
                seq.next_element::<IgnoredAny>()?.ok_or_else(|| missing(0))?;
                let events = seq.next_element()?.ok_or_else(|| missing(1))?;
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Batch { events })
            }
        }
        deserializer.deserialize_seq(BatchVisitor)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a kv event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let mut parts = Parts::default();
        let stored = &mut parts.stored;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "type" => parts.tag = map.next_value()?,
                "block_hashes" => stored.hashes = hashes(map.next_value()?),
                "parent_block_hash" => stored.parent = map.next_value::<Option<Hash>>()?.map(|hash| hash.0),
                "token_ids" => stored.tokens = tokens(map.next_value()?),
                "block_size" => stored.block_size = map.next_value()?,
                "lora_id" => stored.lora_id = map.next_value()?,
                "lora_name" => stored.lora_name = map.next_value()?,
                "cache_salt" => stored.cache_salt = map.next_value()?,
                "medium" => stored.medium = map.next_value()?,
                "kv_cache_spec_kind" => parts.kind = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(parts.event())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Event, A::Error> {
        let mut parts = Parts { tag: seq.next_element()?.unwrap_or_default(), ..Parts::default() };
        let stored = &mut parts.stored;
        match parts.tag.as_str() {
            "BlockStored" => {
                stored.hashes = hashes(seq.next_element()?.unwrap_or_default());
                stored.parent = seq.next_element::<Option<Hash>>()?.flatten().map(|hash| hash.0);
                stored.tokens = tokens(seq.next_element()?.unwrap_or_default());
                stored.block_size = seq.next_element()?.unwrap_or_default();
                stored.lora_id = seq.next_element()?.flatten();
                stored.medium = seq.next_element()?.flatten();
                stored.lora_name = seq.next_element()?.flatten();
                // extra keys, media, group
                for _ in 0..3 {
                    seq.next_element::<IgnoredAny>()?;
                }
                parts.kind = seq.next_element()?.flatten();
            }
            "BlockRemoved" => {
                stored.hashes = hashes(seq.next_element()?.unwrap_or_default());
                stored.medium = seq.next_element()?.flatten();
            }
            _ => {}
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(parts.event())
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HashVisitor;
        impl<'de> Visitor<'de> for HashVisitor {
            type Value = Hash;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a block hash")
            }

            fn visit_i64<E: de::Error>(self, hash: i64) -> Result<Hash, E> {
                Ok(Hash(EngineHash::from_signed(hash)))
            }

            fn visit_u64<E: de::Error>(self, hash: u64) -> Result<Hash, E> {
                Ok(Hash(EngineHash(hash)))
            }

            fn visit_bytes<E: de::Error>(self, hash: &[u8]) -> Result<Hash, E> {
                Ok(Hash(engine_hash(hash)))
            }

            fn visit_str<E: de::Error>(self, hash: &str) -> Result<Hash, E> {
                Ok(Hash(engine_hash(hash.as_bytes())))
            }
        }
        deserializer.deserialize_any(HashVisitor)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenVisitor;
        impl<'de> Visitor<'de> for TokenVisitor {
            type Value = Token;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token id or a pair of them")
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Token, E> {
                u32::try_from(id).map(|id| Token(id, None)).map_err(|_| E::custom("a token id above 32 bits"))
            }

            fn visit_i64<E: de::Error>(self, id: i64) -> Result<Token, E> {
                u32::try_from(id).map(|id| Token(id, None)).map_err(|_| E::custom("a negative token id"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Token, A::Error> {
                let first = pair.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
                let second = pair.next_element()?;
                while pair.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Token(first, second))
            }
        }
        deserializer.deserialize_any(TokenVisitor)
    }
}
