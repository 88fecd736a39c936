//! Blocks that contain images, audio or other objects besides text.

use xxhash_rust::xxh3::xxh3_64;

use super::hash_tokens;
use crate::{BlockHash, TokenId};

/// First token id used to stand in for an object's position.
const PAD_BASE: u64 = 1_000_000;
/// Number of distinct pad values.
const PAD_MASK: u64 = (1 << 30) - 1;
/// Length of an identifier that is already a hash: SHA-256 in hexadecimal.
const HEX_IDENTIFIER: usize = 64;

/// Hashes complete blocks where block `i` contains the objects `block_objects[i]` (in any order).
///
/// Blocks beyond the end of `block_objects` contain none.
pub fn block_hashes(
    tokens: &[TokenId],
    block_size: u32,
    seed: u64,
    block_objects: &[Vec<u64>],
) -> Vec<BlockHash> {
    if block_size == 0 {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(block_size as usize * 4);
    let mut objects = Vec::new();
    let blocks = tokens.chunks_exact(block_size as usize).enumerate();
    let hash = blocks.map(|(index, block)| {
        objects.clear();
        objects.extend(block_objects.get(index).into_iter().flatten());
        objects.sort_unstable();
        hash_tokens(block, &objects, seed, &mut bytes)
    });
    hash.collect()
}

/// Returns the token id that stands for an object in a prompt's token sequence.
pub fn pad_value(object_hash: u64) -> TokenId {
    let value = PAD_BASE + (object_hash & PAD_MASK);
    TokenId::try_from(value).expect("a base of 10^6 plus 30 bits fits 32 bits")
}

/// Returns the hash of an object named by a client; an empty name has none.
///
/// A name of 64 hexadecimal digits is a hash already and its first 16 digits are used.
pub fn object_hash(identifier: &str) -> Option<u64> {
    if identifier.is_empty() {
        return None;
    }
    let is_hex = identifier.len() == HEX_IDENTIFIER && identifier.bytes().all(|b| b.is_ascii_hexdigit());
    let digits = is_hex.then(|| u64::from_str_radix(&identifier[..16], 16).ok()).flatten();
    Some(digits.unwrap_or_else(|| xxh3_64(identifier.as_bytes())))
}
