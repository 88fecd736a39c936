//! The messages of a session, made from the blocks of its turns.

use std::sync::Arc;

use roost_replay::Turn;
use roost_replay::{Content, Prompts};

use crate::words;

/// One session's messages as they grow. A clone shares their text.
#[derive(Clone, Debug)]
pub struct Conversation {
    prompts: Prompts,
    messages: Vec<Message>,
    /// Keeps the text of one run apart from that of others.
    salt: u64,
    block_size: u32,
}

#[derive(Clone, Debug)]
struct Message {
    role: &'static str,
    /// Its first block.
    start: usize,
    /// Ends of its blocks in the text.
    ends: Arc<[usize]>,
    /// Escaped for JSON.
    text: Arc<str>,
}

impl Conversation {
    /// Starts session number `session` of a trace with nothing.
    pub fn new(session: usize, block_size: u32, salt: u64) -> Self {
        Self { prompts: Prompts::new(session), messages: Vec::new(), salt, block_size }
    }

    /// Starts session number `session` with the first `inherited` blocks of this one.
    pub fn fork(&self, session: usize, inherited: u32) -> Self {
        let prompts = self.prompts.fork(session, inherited);
        let mut fork = Self { prompts, messages: self.messages.clone(), ..*self };
        fork.truncate(inherited as usize);
        fork
    }

    /// Goes on to the next turn. Of its new blocks the first `system` are the system prompt, and then `answered` are the
    /// assistant's.
    pub fn next(&mut self, turn: &Turn, system: usize, answered: usize) {
        self.truncate(turn.kept as usize);
        self.prompts.next(turn);
        let end = self.prompts.content().len();
        let mut start = end - new_blocks(turn).min(end);
        if self.messages.is_empty() {
            start = self.add("system", start, (start + system).min(end));
        } else if start + answered < end {
            start = self.add("assistant", start, start + answered);
        }
        self.add("user", start, end);
    }

    fn add(&mut self, role: &'static str, start: usize, end: usize) -> usize {
        if start < end || role == "user" {
            let (mut text, mut ends) = (String::new(), Vec::with_capacity(end - start));
            for block in &self.prompts.content()[start..end] {
                words::write(&mut text, block.0 ^ self.salt, self.block_size);
                ends.push(text.len());
            }
            if text.is_empty() {
                text.push_str("Go on.");
            }
            self.messages.push(Message { role, start, ends: ends.into(), text: text.into() });
        }
        end
    }

    /// Drops what is not within the first `blocks`.
    fn truncate(&mut self, blocks: usize) {
        while let Some(last) = self.messages.last_mut() {
            if last.start >= blocks {
                self.messages.pop();
                continue;
            }
            let kept = blocks - last.start;
            if kept < last.ends.len() {
                last.text = last.text[..last.ends[kept - 1]].into();
                last.ends = last.ends[..kept].into();
            }
            break;
        }
    }

    /// Appends the list of messages as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        let size: usize = self.messages.iter().map(|message| message.text.len() + 40).sum();
        out.reserve(size);
        out.push(b'[');
        for (at, message) in self.messages.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            for part in ["{\"role\":\"", message.role, "\",\"content\":\"", &message.text, "\"}"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        out.push(b']');
    }
}

/// Blocks that a turn brings.
pub(crate) fn new_blocks(turn: &Turn) -> usize {
    match &turn.content {
        Content::Fresh(count) => *count as usize,
        Content::Given(blocks) => blocks.len(),
    }
}

#[cfg(test)]
mod tests;
