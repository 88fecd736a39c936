//! The hashed form of a prompt, shared by routing, the wire and a retry.

use std::sync::Arc;

use crate::hash::{extend_block_hashes, extend_eagle_block_hashes, extend_sequence_hashes};
use crate::{BlockHash, SequenceHash, TokenId};

#[cfg(test)]
mod tests;

/// How workers cut prompts into blocks. A number is the size of plain blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Tokens from the start of a block to that of the next.
    pub block_size: u32,
    /// A block is hashed together with the first token of the next, and is complete only with it: workers whose
    /// draft model sees pairs of tokens (EAGLE).
    pub eagle: bool,
}

impl Cut {
    /// Complete blocks in `tokens` tokens.
    pub fn blocks(self, tokens: usize) -> usize {
        tokens.saturating_sub(usize::from(self.eagle)).checked_div(self.block_size as usize).unwrap_or(0)
    }
}

impl From<u32> for Cut {
    fn from(block_size: u32) -> Self {
        Self { block_size, eagle: false }
    }
}

/// Block and sequence hashes of one prompt. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// How the prompt is cut.
    pub cut: Cut,
    /// Seed of the block hashes: the request's namespace (see [`crate::hash::seed`]).
    pub seed: u64,
    /// Hash of each complete block alone.
    pub local: Arc<[BlockHash]>,
    /// Chained hash of each complete block.
    pub sequence: Arc<[SequenceHash]>,
}

impl Blocks {
    /// Hashes `tokens`, cut as said. A block size of 0 yields no blocks.
    pub fn compute(tokens: &[TokenId], cut: impl Into<Cut>, seed: u64) -> Self {
        Self::empty(cut.into(), seed).grown(tokens, 0)
    }

    /// Hashes `tokens`, reusing the blocks of `prev`, a prompt that `tokens` starts with.
    ///
    /// `shared_tokens` is the length of the common beginning as the caller knows it, usually the length
    /// of the previous prompt; only blocks that lie wholly inside it are taken over, all others are
    /// hashed. The result equals [`Blocks::compute`] if the first `shared_tokens` tokens are the same.
    pub fn extend_shared(prev: &Self, tokens: &[TokenId], shared_tokens: usize) -> Self {
        let shared = prev.cut.blocks(shared_tokens.min(tokens.len())).min(prev.local.len());
        prev.grown(&tokens[shared * prev.cut.block_size as usize..], shared)
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

    fn empty(cut: Cut, seed: u64) -> Self {
        Self { cut, seed, local: Arc::from([]), sequence: Arc::from([]) }
    }

    /// Keeps the first `shared` blocks and hashes the tokens behind them.
    fn grown(&self, rest: &[TokenId], shared: usize) -> Self {
        let more = self.cut.blocks(rest.len());
        if more == 0 && shared == self.local.len() {
            return self.clone();
        }
        let mut local = Vec::with_capacity(shared + more);
        local.extend_from_slice(&self.local[..shared]);
        if self.cut.eagle {
            extend_eagle_block_hashes(&mut local, rest, self.cut.block_size, self.seed);
        } else {
            extend_block_hashes(&mut local, rest, self.cut.block_size, self.seed);
        }
        let mut sequence = Vec::with_capacity(shared + more);
        sequence.extend_from_slice(&self.sequence[..shared]);
        extend_sequence_hashes(&mut sequence, &local[shared..]);
        Self { cut: self.cut, seed: self.seed, local: local.into(), sequence: sequence.into() }
    }
}
