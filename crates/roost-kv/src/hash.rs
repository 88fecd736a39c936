//! Block and sequence hashes, equal to those of the workers' event publishers.
//!
//! A block is `block_size` consecutive tokens; the incomplete tail of a prompt has no hash.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{BlockHash, SequenceHash, TokenId};

pub mod multimodal;
#[cfg(test)]
mod tests;

/// Seed of a request without LoRA adapter and cache salt, and of every sequence hash.
pub const BASE_SEED: u64 = 1337;

/// Returns the seed of the block hashes of one namespace.
///
/// Requests of different adapters or tenants share no cache, so each gets its own seed. An empty name
/// counts as absent.
pub fn seed(lora_name: Option<&str>, cache_salt: Option<&str>) -> u64 {
    let part = |text: Option<&str>, kind: u64| match text {
        Some(text) if !text.is_empty() => xxh3_64_with_seed(text.as_bytes(), kind),
        _ => 0,
    };
    BASE_SEED.wrapping_add(part(lora_name, 0)).wrapping_add(part(cache_salt, 1))
}

/// Hashes every complete block of `tokens`. A block size of 0 yields no blocks.
pub fn block_hashes(tokens: &[TokenId], block_size: u32, seed: u64) -> Vec<BlockHash> {
    let mut hashes = Vec::with_capacity(tokens.len().checked_div(block_size as usize).unwrap_or(0));
    extend_block_hashes(&mut hashes, tokens, block_size, seed);
    hashes
}

/// Hashes blocks as EAGLE workers do: windows of `block_size + 1` tokens, one every `block_size`.
pub fn eagle_block_hashes(tokens: &[TokenId], block_size: u32, seed: u64) -> Vec<BlockHash> {
    let mut hashes = Vec::new();
    extend_eagle_block_hashes(&mut hashes, tokens, block_size, seed);
    hashes
}

/// Chains block hashes from the start of a prompt.
pub fn sequence_hashes(local: &[BlockHash]) -> Vec<SequenceHash> {
    let mut hashes = Vec::with_capacity(local.len());
    extend_sequence_hashes(&mut hashes, local);
    hashes
}

/// Hashes a piece of a prompt that is no complete block, as request traces do.
pub fn partial_hash(tokens: &[TokenId], seed: u64) -> BlockHash {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    BlockHash(xxh3_64_with_seed(&bytes, seed))
}

/// Returns the sequence hash of a block that follows `parent` (nothing before it: `None`).
#[inline]
pub fn next_sequence_hash(parent: Option<SequenceHash>, local: BlockHash) -> SequenceHash {
    let Some(parent) = parent else { return SequenceHash(local.0) };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&parent.0.to_le_bytes());
    bytes[8..].copy_from_slice(&local.0.to_le_bytes());
    SequenceHash(xxh3_64_with_seed(&bytes, BASE_SEED))
}

/// Appends the hashes of the complete blocks of `tokens` to `hashes`.
pub(crate) fn extend_block_hashes(
    hashes: &mut Vec<BlockHash>,
    tokens: &[TokenId],
    block_size: u32,
    seed: u64,
) {
    let size = block_size as usize;
    if size == 0 {
        return;
    }
    let mut bytes = Vec::with_capacity(size * 4);
    hashes.extend(tokens.chunks_exact(size).map(|block| hash_tokens(block, &[], seed, &mut bytes)));
}

/// Appends the hashes of the complete windows of `tokens` to `hashes`.
pub(crate) fn extend_eagle_block_hashes(
    hashes: &mut Vec<BlockHash>,
    tokens: &[TokenId],
    block_size: u32,
    seed: u64,
) {
    let size = block_size as usize;
    if size == 0 {
        return;
    }
    let mut bytes = Vec::with_capacity((size + 1) * 4);
    let windows = tokens.windows(size + 1).step_by(size);
    hashes.extend(windows.map(|window| hash_tokens(window, &[], seed, &mut bytes)));
}

/// Appends the sequence hashes of `local`, continuing after the last of `hashes`.
pub(crate) fn extend_sequence_hashes(hashes: &mut Vec<SequenceHash>, local: &[BlockHash]) {
    let mut parent = hashes.last().copied();
    for &block in local {
        let hash = next_sequence_hash(parent, block);
        hashes.push(hash);
        parent = Some(hash);
    }
}

/// Hashes the tokens as little-endian u32, then the `objects` as little-endian u64.
///
/// `bytes` is scratch space, kept by the caller so that a prompt allocates once.
fn hash_tokens(tokens: &[TokenId], objects: &[u64], seed: u64, bytes: &mut Vec<u8>) -> BlockHash {
    bytes.clear();
    for token in tokens {
        bytes.extend_from_slice(&token.to_le_bytes());
    }
    for object in objects {
        bytes.extend_from_slice(&object.to_le_bytes());
    }
    BlockHash(xxh3_64_with_seed(bytes, seed))
}
