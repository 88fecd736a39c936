//! The hashed form of a prompt, shared by routing, the wire and a retry.

use std::sync::Arc;

use crate::hash::{extend_block_hashes, extend_sequence_hashes};
use crate::{BlockHash, SequenceHash, TokenId};

#[cfg(test)]
mod tests;

/// Block and sequence hashes of one prompt. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Tokens per block.
    pub block_size: u32,
    /// Seed of the block hashes: the request's namespace (see [`crate::hash::seed`]).
    pub seed: u64,
    /// Hash of each complete block alone.
    pub local: Arc<[BlockHash]>,
    /// Chained hash of each complete block.
    pub sequence: Arc<[SequenceHash]>,
}

impl Blocks {
    /// Hashes `tokens` in blocks of `block_size`. A block size of 0 yields no blocks.
    pub fn compute(tokens: &[TokenId], block_size: u32, seed: u64) -> Self {
        Self::empty(block_size, seed).grown(tokens, 0)
    }

    /// Hashes `tokens`, reusing the blocks of `prev`, a prompt that `tokens` starts with.
    ///
    /// `shared_tokens` is the length of the common beginning as the caller knows it, usually the length
    /// of the previous prompt; only blocks that lie wholly inside it are taken over, all others are
    /// hashed. The result equals [`Blocks::compute`] if the first `shared_tokens` tokens are the same.
    pub fn extend_shared(prev: &Self, tokens: &[TokenId], shared_tokens: usize) -> Self {
        let shared = shared_tokens.min(tokens.len()).checked_div(prev.block_size as usize).unwrap_or(0);
        let shared = shared.min(prev.local.len());
        prev.grown(&tokens[shared * prev.block_size as usize..], shared)
    }

    /// Keeps the first `blocks` blocks and hashes `rest`, the tokens that follow these.
    ///
    /// # Panics
    /// Where there are fewer blocks.
    pub fn extend_behind(prev: &Self, blocks: usize, rest: &[TokenId]) -> Self {
        prev.grown(rest, blocks)
    }

    /// Hashes `tokens`, which start with every complete block of `prev`; only the new ones are hashed.
    pub fn extend(prev: &Self, tokens: &[TokenId]) -> Self {
        Self::extend_shared(prev, tokens, usize::MAX)
    }

    /// Returns the number of complete blocks.
    pub fn len(&self) -> usize {
        self.sequence.len()
    }

    /// Tells whether the prompt is shorter than one block.
    pub fn is_empty(&self) -> bool {
        self.sequence.is_empty()
    }

    fn empty(block_size: u32, seed: u64) -> Self {
        Self { block_size, seed, local: Arc::from([]), sequence: Arc::from([]) }
    }

    /// Keeps the first `shared` blocks and hashes the tokens behind them.
    fn grown(&self, rest: &[TokenId], shared: usize) -> Self {
        let more = rest.len().checked_div(self.block_size as usize).unwrap_or(0);
        if more == 0 && shared == self.local.len() {
            return self.clone();
        }
        let mut local = Vec::with_capacity(shared + more);
        local.extend_from_slice(&self.local[..shared]);
        extend_block_hashes(&mut local, rest, self.block_size, self.seed);
        let mut sequence = Vec::with_capacity(shared + more);
        sequence.extend_from_slice(&self.sequence[..shared]);
        extend_sequence_hashes(&mut sequence, &local[shared..]);
        Self { block_size: self.block_size, seed: self.seed, local: local.into(), sequence: sequence.into() }
    }
}
