//! The payload of `kv-events`: blocks stored, removed and cleared.

use std::borrow::Cow;
use std::fmt;

use roost_kv::{BlockHash, EngineHash, KvEvent, KvEventData, StoredBlock, Tier, WorkerId, WorkerRank};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::EventError;

/// Decodes a batch.
///
/// An event that does not concern this index (another residency domain, an unknown tier or kind) comes back as a
/// removal of nothing: its number still counts.
///
/// # Errors
/// [`EventError::Payload`] when the batch is not an array of events.
pub fn decode_kv_events(payload: &[u8]) -> Result<Vec<KvEvent>, EventError> {
    let batch: Vec<WireEvent<'_>> =
        rmp_serde::from_slice(payload).map_err(|e| EventError::payload("kv-events batch")(&e))?;
    Ok(batch.into_iter().map(KvEvent::from).collect())
}

/// Encodes a batch.
pub fn encode_kv_events(events: &[KvEvent]) -> Vec<u8> {
    let batch: Vec<WireEvent<'_>> = events.iter().map(WireEvent::from).collect();
    rmp_serde::to_vec_named(&batch).expect("plain structs always encode")
}

/// True for the removal of nothing that stands for an event of no concern.
pub(super) fn is_void(event: &KvEvent) -> bool {
    matches!(&event.data, KvEventData::Removed { blocks } if blocks.is_empty())
}

/// An event as on the wire.
#[derive(Debug, DeriveDeserialize, DeriveSerialize)]
pub(super) struct WireEvent<'a> {
    worker_id: u64,
    #[serde(default, borrow)]
    storage_tier: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    residency_domain: Option<Cow<'a, str>>,
    event: Inner,
}

#[derive(Debug, DeriveDeserialize, DeriveSerialize)]
struct Inner {
    event_id: u64,
    data: Data,
    #[serde(default)]
    dp_rank: u32,
}

#[derive(Debug)]
enum Data {
    Stored(Stored),
    Removed(Removed),
    Cleared,
    Unknown,
}

#[derive(Debug, DeriveDeserialize, DeriveSerialize)]
struct Stored {
    #[serde(default)]
    parent_hash: Option<EngineHash>,
    /// Written as null: positions follow from the parents.
    #[serde(default, skip_deserializing)]
    start_position: (),
    blocks: Vec<Block>,
}

#[derive(Debug, DeriveDeserialize, DeriveSerialize)]
struct Block {
    block_hash: EngineHash,
    tokens_hash: BlockHash,
    /// Written as null: the content hash covers multimodal inputs already.
    #[serde(default, skip_deserializing)]
    mm_extra_info: (),
}

#[derive(Debug, DeriveDeserialize, DeriveSerialize)]
struct Removed {
    block_hashes: Vec<EngineHash>,
}

impl From<WireEvent<'_>> for KvEvent {
    fn from(wire: WireEvent<'_>) -> Self {
        let rank = WorkerRank::new(WorkerId(wire.worker_id), wire.event.dp_rank);
        let tier = tier_named(wire.storage_tier.as_deref());
        // Only blocks in the worker's own memory belong to it. A clear without a domain clears every domain.
        let ours = matches!(wire.residency_domain.as_deref(), None | Some("worker"));
        let data = match wire.event.data {
            Data::Cleared if ours => KvEventData::Cleared,
            Data::Stored(stored) if ours && tier.is_some() => KvEventData::Stored {
                parent: stored.parent_hash,
                blocks: stored
                    .blocks
                    .into_iter()
                    .map(|block| StoredBlock { engine: block.block_hash, local: block.tokens_hash })
                    .collect(),
            },
            Data::Removed(removed) if ours && tier.is_some() => {
                KvEventData::Removed { blocks: removed.block_hashes }
            }
            _ => KvEventData::Removed { blocks: Vec::new() },
        };
        KvEvent { event_id: wire.event.event_id, rank, tier: tier.unwrap_or_default(), data }
    }
}

impl From<&KvEvent> for WireEvent<'_> {
    fn from(event: &KvEvent) -> Self {
        let data = match &event.data {
            KvEventData::Stored { parent, blocks } => Data::Stored(Stored {
                parent_hash: *parent,
                start_position: (),
                blocks: blocks
                    .iter()
                    .map(|block| Block {
                        block_hash: block.engine,
                        tokens_hash: block.local,
                        mm_extra_info: (),
                    })
                    .collect(),
            }),
            KvEventData::Removed { blocks } => Data::Removed(Removed { block_hashes: blocks.clone() }),
            KvEventData::Cleared => Data::Cleared,
        };
        WireEvent {
            worker_id: event.rank.worker.0,
            storage_tier: Some(Cow::Borrowed(tier_name(event.tier))),
            residency_domain: Some(Cow::Borrowed("worker")),
            event: Inner { event_id: event.event_id, data, dp_rank: event.rank.dp_rank },
        }
    }
}

fn tier_named(name: Option<&str>) -> Option<Tier> {
    match name {
        None | Some("device") => Some(Tier::Device),
        Some("host_pinned") => Some(Tier::Host),
        Some("disk") => Some(Tier::Disk),
        Some("external") => Some(Tier::External),
        Some(_) => None,
    }
}

const fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host_pinned",
        Tier::Disk => "disk",
        Tier::External => "external",
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DataVisitor;
        impl<'de> Visitor<'de> for DataVisitor {
            type Value = Data;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a kind of event: a name or a map of one entry")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Data, E> {
                Ok(if name == "cleared" { Data::Cleared } else { Data::Unknown })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Data, A::Error> {
                let mut data = Data::Unknown;
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    match &*name {
                        "stored" => data = Data::Stored(map.next_value()?),
                        "removed" => data = Data::Removed(map.next_value()?),
                        "cleared" => {
                            map.next_value::<IgnoredAny>()?;
                            data = Data::Cleared;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(data)
            }
        }
        deserializer.deserialize_any(DataVisitor)
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Data::Stored(stored) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("stored", stored)?;
                map.end()
            }
            Data::Removed(removed) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("removed", removed)?;
                map.end()
            }
            Data::Cleared => serializer.serialize_str("cleared"),
            Data::Unknown => Err(serde::ser::Error::custom("an event of unknown kind is only ever read")),
        }
    }
}
