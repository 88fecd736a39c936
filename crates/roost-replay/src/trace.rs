//! What a trace is: sessions of turns, each turn a prompt of blocks that begins like the one before it.

use std::time::Duration;

use roost_kv::hash::next_sequence_hash;
use roost_kv::{BlockHash, SequenceHash};

/// Conversations with an inference service, without their text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Tokens per block, at least 1.
    pub block_size: u32,
    /// The sessions. A sub-agent's session comes after its parent's.
    pub sessions: Vec<Session>,
}

/// One conversation. Its turns follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// The session's name; empty for a request that belongs to none.
    pub id: String,
    /// Name of the session that a sub-agent works for.
    pub parent: Option<String>,
    /// The turn that starts it, where it is known.
    pub origin: Option<Origin>,
    /// The requests, in order.
    pub turns: Vec<Turn>,
}

/// The turn that started a sub-agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Position of the parent in [`Trace::sessions`].
    pub session: usize,
    /// The parent's turn after whose answer the sub-agent starts. The parent's next turn waits for its end.
    pub turn: usize,
    /// Leading blocks of that turn's prompt that the sub-agent's first prompt begins with.
    pub inherited: u32,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// When it is sent.
    pub start: Start,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Answer length, tokens.
    pub output_tokens: u32,
    /// Leading blocks taken over from the session's previous prompt.
    pub kept: u32,
    /// The complete blocks after those.
    pub content: Content,
}

/// When a turn is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time of the trace.
    At(Duration),
    /// So long after the end of the session's previous answer; for the first turn of a sub-agent, of the answer that
    /// started it; for the first turn of another session, after it gets its turn.
    After(Duration),
}

/// New blocks of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// So many blocks that occur nowhere else.
    Fresh(u32),
    /// Blocks by what they contain: equal hashes after equal beginnings are equal prompts.
    Given(Box<[BlockHash]>),
}

impl Trace {
    /// Returns the number of requests.
    pub fn requests(&self) -> usize {
        self.sessions.iter().map(|session| session.turns.len()).sum()
    }
}

/// Builds the prompts of one session, turn by turn.
#[derive(Clone, Debug)]
pub struct Prompts {
    seed: u64,
    turn: u64,
    content: Vec<BlockHash>,
    blocks: Vec<SequenceHash>,
}

impl Prompts {
    /// Starts session number `session` with nothing.
    pub fn new(session: usize) -> Self {
        Self { seed: scramble(session as u64), turn: 0, content: Vec::new(), blocks: Vec::new() }
    }

    /// Starts session number `session` with the first `inherited` blocks of this session's last prompt.
    pub fn fork(&self, session: usize, inherited: u32) -> Self {
        let end = self.blocks.len().min(inherited as usize);
        Self {
            content: self.content[..end].to_vec(),
            blocks: self.blocks[..end].to_vec(),
            ..Self::new(session)
        }
    }

    /// Goes on to the next turn and returns the hashes of its prompt's complete blocks.
    pub fn next(&mut self, turn: &Turn) -> &[SequenceHash] {
        self.content.truncate(turn.kept as usize);
        self.blocks.truncate(turn.kept as usize);
        match &turn.content {
            Content::Fresh(count) => {
                let seed = scramble(self.seed ^ self.turn);
                let fresh = (0..u64::from(*count)).map(|block| BlockHash(scramble(seed.wrapping_add(block))));
                self.content.extend(fresh);
            }
            Content::Given(given) => self.content.extend_from_slice(given),
        }
        let mut before = self.blocks.last().copied();
        for &block in &self.content[self.blocks.len()..] {
            let hash = next_sequence_hash(before, block);
            self.blocks.push(hash);
            before = Some(hash);
        }
        self.turn += 1;
        &self.blocks
    }

    /// Returns what the last prompt's blocks contain, each by itself.
    pub fn content(&self) -> &[BlockHash] {
        &self.content
    }

    /// Returns the hashes of the last prompt's blocks.
    pub fn blocks(&self) -> &[SequenceHash] {
        &self.blocks
    }
}

/// Spreads a number over 64 bits, so that numbers made from different ones do not meet.
pub(crate) fn scramble(value: u64) -> u64 {
    let mut x = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
