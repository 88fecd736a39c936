//! A keyed hash of text whose collisions cannot be aimed at.
//!
//! Blocks are compressed by NH (sums of products of words and secret words) twice with shifted secrets, the results by
//! polynomials over a prime field at two secret points. Two different texts have the same fingerprint for one in about
//! 2^90 secrets, whatever the texts are; the secrets are drawn per cache and never show.

use std::hash::{BuildHasher, RandomState};

const BLOCK_BYTES: usize = 1024;
const BLOCK_WORDS: usize = BLOCK_BYTES / 8;
/// The second compression reads the same secret two words further on.
const SHIFT: usize = 2;
/// 2^61 - 1.
const PRIME: u64 = (1 << 61) - 1;
const LIMB: u32 = 60;

/// Tells whether two texts are the same without keeping either: by 122 bits that nobody can aim at.
#[derive(Clone)]
pub struct Fingerprinter {
    secret: Box<[u64; BLOCK_WORDS + SHIFT]>,
    points: [u64; 2],
}

impl Fingerprinter {
    /// With secrets of the operating system's randomness. Fingerprints of two such values cannot be compared.
    #[must_use]
    pub fn random() -> Self {
        let random = RandomState::new();
        Self::with_secrets(|n| random.hash_one(n))
    }

    fn with_secrets(secret: impl Fn(usize) -> u64) -> Self {
        Self {
            secret: Box::new(std::array::from_fn(&secret)),
            points: [0, 1].map(|n| secret(BLOCK_WORDS + SHIFT + n) % PRIME),
        }
    }

    /// The fingerprint of `text` in a name space of its own.
    #[must_use]
    pub fn of(&self, space: u64, text: &[u8]) -> u128 {
        let mut sums = [0; 2];
        self.absorb(&mut sums, [u128::from(space); 2]);
        self.absorb(&mut sums, [text.len() as u128; 2]);
        for block in text.chunks(BLOCK_BYTES) {
            self.absorb(&mut sums, self.compress(block));
        }
        u128::from(sums[0]) << 64 | u128::from(sums[1])
    }

    /// Both compressions of a block; a short one counts as filled up with zeros.
    fn compress(&self, block: &[u8]) -> [u128; 2] {
        let mut sums = [0u128; 2];
        let (pairs, rest) = block.as_chunks::<16>();
        let mut add = |pair: &[u8; 16], at: usize| {
            let pair = u128::from_le_bytes(*pair);
            let (low, high) = (pair as u64, (pair >> 64) as u64);
            for (sum, shift) in sums.iter_mut().zip([0, SHIFT]) {
                let left = low.wrapping_add(self.secret[at + shift]);
                let right = high.wrapping_add(self.secret[at + shift + 1]);
                *sum = sum.wrapping_add(u128::from(left) * u128::from(right));
            }
        };
        for (n, pair) in pairs.iter().enumerate() {
            add(pair, n * 2);
        }
        if !rest.is_empty() {
            let mut last = [0; 16];
            last[..rest.len()].copy_from_slice(rest);
            add(&last, pairs.len() * 2);
        }
        sums
    }

    fn absorb(&self, sums: &mut [u64; 2], values: [u128; 2]) {
        for ((sum, value), point) in sums.iter_mut().zip(values).zip(self.points) {
            for limb in [value, value >> LIMB, value >> (2 * LIMB)] {
                let limb = limb as u64 & ((1 << LIMB) - 1);
                *sum = modulo(u128::from(*sum + limb) * u128::from(point));
            }
        }
    }
}

/// The remainder by [`PRIME`] of a number below 2^124.
fn modulo(value: u128) -> u64 {
    let folded = (value as u64 & PRIME) + (value >> 61) as u64;
    let folded = (folded & PRIME) + (folded >> 61);
    if folded >= PRIME { folded - PRIME } else { folded }
}

impl std::fmt::Debug for Fingerprinter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secrets stay secret.
        f.write_str("Fingerprinter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_equals_division() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let value = random.u128(..) >> 4;
            assert_eq!(u128::from(modulo(value)), value % u128::from(PRIME));
        }
        for value in [0, u128::from(PRIME), u128::from(PRIME) * u128::from(PRIME), u128::MAX >> 4] {
            assert_eq!(u128::from(modulo(value)), value % u128::from(PRIME));
        }
    }

    #[test]
    fn every_bit_length_and_space_counts() {
        let hash = Fingerprinter::with_secrets(|n| fastrand::Rng::with_seed(n as u64).u64(..));
        let mut seen = std::collections::HashSet::new();
        for length in [0, 1, 15, 16, 17, 1023, 1024, 1025, 3000] {
            let mut text = vec![0; length];
            assert!(seen.insert(hash.of(0, &text)));
            assert!(seen.insert(hash.of(1, &text)));
            for at in [0, length / 2, length.saturating_sub(1)] {
                for bit in 0..8 {
                    let Some(byte) = text.get_mut(at) else { continue };
                    *byte ^= 1 << bit;
                    seen.insert(hash.of(0, &text));
                    assert_eq!(hash.of(0, &text), hash.of(0, &text.clone()));
                    text[at] ^= 1 << bit;
                }
            }
        }
        // Lengths 1 has one byte to change, not three.
        assert_eq!(seen.len(), 9 * 2 + (7 * 3 + 1) * 8);
    }

    #[test]
    fn both_halves_depend_on_the_order_of_blocks() {
        let hash = Fingerprinter::random();
        let (a, b) = ([1; 1024], [2; 1024]);
        let (ab, ba) = (hash.of(0, &[a, b].concat()), hash.of(0, &[b, a].concat()));
        assert_ne!(ab as u64, ba as u64);
        assert_ne!(ab >> 64, ba >> 64);
        assert_ne!(ab, Fingerprinter::random().of(0, &[a, b].concat()), "secrets differ");
    }
}
