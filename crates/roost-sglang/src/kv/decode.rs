//! The payload of an engine's events, in its two layouts. Pure.

mod wire;

use roost_kv::{Blocks, Cut, EngineHash, KvEventData, StoredBlock, Tier, hash};
use roost_worker::KvChange;

use wire::{Batch, Event, Medium, Stored};

/// Reads a batch of events in order. What says nothing about prompts here is left out: other tiers than are known, blocks
/// of another size, of adapters without a name.
///
/// # Errors
/// It is no batch.
pub(super) fn batch(payload: &[u8], cut: Cut) -> Result<Vec<KvChange>, rmp_serde::decode::Error> {
    let batch: Batch = rmp_serde::from_slice(payload)?;
    Ok(batch.events.into_iter().filter_map(|event| change(event, cut)).collect())
}

fn change(event: Event, cut: Cut) -> Option<KvChange> {
    match event {
        Event::Stored(stored) => {
            let tier = tier(stored.medium.as_ref())?;
            Some(KvChange { tier, data: stored_data(stored, cut)? })
        }
        Event::Removed { hashes, medium } => {
            Some(KvChange { tier: tier(medium.as_ref())?, data: KvEventData::Removed { blocks: hashes } })
        }
        Event::Cleared => Some(KvChange::CLEARED),
        Event::Unknown => None,
    }
}

/// Blocks by their content: the engine's hashes are names only, and differ between engines and versions.
fn stored_data(stored: Stored, cut: Cut) -> Option<KvEventData> {
    let names = stored.hashes;
    let mut tokens = stored.tokens.ids;
    let of_adapter = stored.lora_id.is_some_and(|id| id != 0) && stored.lora_name.is_none();
    let is_whole = tokens.len() == names.len() * cut.block_size as usize;
    if stored.block_size != cut.block_size || !is_whole || of_adapter {
        return None;
    }
    if cut.eagle {
        tokens.extend(stored.tokens.behind);
    }
    let seed = hash::seed(stored.lora_name.as_deref(), stored.cache_salt.as_deref());
    let contents = Blocks::compute(&tokens, cut, seed);
    let blocks = names.into_iter().zip(&*contents.local);
    let blocks = blocks.map(|(engine, &local)| StoredBlock { engine, local }).collect();
    Some(KvEventData::Stored { parent: stored.parent, blocks })
}

fn tier(medium: Option<&Medium>) -> Option<Tier> {
    match medium {
        None => Some(Tier::Device),
        Some(Medium(name)) => Some(match name.as_str() {
            "GPU" | "DEVICE" => Tier::Device,
            "CPU" | "CPU_PINNED" | "CPU_TIER1" => Tier::Host,
            "CPU_TIER2" | "DISK" | "NVME" | "STORAGE" => Tier::Disk,
            "EXTERNAL" | "NETWORK" | "REMOTE" | "SHARED" => Tier::External,
            _ => return None,
        }),
    }
}

/// An engine's name for a block, whatever it is written as.
fn engine_hash(bytes: &[u8]) -> EngineHash {
    match bytes.first_chunk::<8>() {
        Some(first) => EngineHash(u64::from_be_bytes(*first)),
        None => EngineHash(bytes.iter().fold(0, |name, &byte| name << 8 | u64::from(byte))),
    }
}

#[cfg(test)]
mod tests;
