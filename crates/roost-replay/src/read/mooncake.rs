//! `{timestamp, input_length, output_length, hash_ids?, session_id?, delay?}`, one a line. Times are milliseconds.
//!
//! Mooncake's own traces name no sessions: each record is a whole prompt. In those with sessions, as AIPerf writes and
//! reads them, a further record of a session is what it adds to the prompt and the answer before; one whose ids begin as
//! the session did is a whole prompt nevertheless. Without ids the text is like no other.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashMap;
use roost_kv::BlockHash;
use serde_json::Value;

use super::{Groups, Raw, ReadError, milliseconds, number};
use crate::trace::scramble;
use crate::{Content, Start, Trace, Turn};

/// Blocks without ids have names of their own.
const FRESH: u64 = 0xF2E5_0000_0000_0000;

/// What a session has said so far.
#[derive(Debug, Default)]
struct Said {
    first: Option<u64>,
    blocks: Vec<BlockHash>,
    /// Tokens of the last prompt and its answer.
    tokens: u32,
}

pub(super) fn read(records: &[Value], block_size: u32) -> Result<Trace, ReadError> {
    let mut groups = Groups::default();
    let mut sessions: HashMap<String, Said> = HashMap::new();
    for (index, record) in records.iter().enumerate() {
        let Some(length) = number(record, "input_length") else { continue };
        let ids = record.get("hash_ids").and_then(Value::as_array);
        let ids: Option<Vec<u64>> = ids.map(|ids| ids.iter().filter_map(Value::as_u64).collect());
        let first = ids.as_ref().and_then(|ids| ids.first().copied());
        let session = session_of(record);
        let before = sessions.get(&session).filter(|said| first.is_none() || said.first != first);
        let prompt_tokens = length.saturating_add(before.map_or(0, |said| said.tokens));
        // The last id of a prompt may stand for an incomplete block.
        let complete = (prompt_tokens / block_size) as usize;
        let fresh = |at: usize| BlockHash(scramble(FRESH ^ scramble((index as u64) << 32 | at as u64)));
        let blocks: Vec<BlockHash> = match (before, ids) {
            (Some(said), _) => {
                // Where text goes on within a block, ids of what is added name no blocks of the whole.
                let kept = said.blocks.iter().copied();
                kept.chain((said.blocks.len()..complete).map(fresh)).collect()
            }
            (None, Some(ids)) => ids.into_iter().take(complete).map(BlockHash).collect(),
            (None, None) => (0..complete).map(fresh).collect(),
        };
        let output_tokens = number(record, "output_length").unwrap_or(1);
        if !session.is_empty() {
            let first = before.map_or(first, |said| said.first);
            let tokens = prompt_tokens.saturating_add(output_tokens);
            sessions.insert(session.clone(), Said { first, blocks: blocks.clone(), tokens });
        }
        let start = start_of(record);
        let turn = Turn { start, prompt_tokens, output_tokens, kept: 0, content: Content::Fresh(0) };
        groups.add(&session, Raw { turn, blocks });
    }
    let sessions = groups.sessions(&BTreeMap::new());
    match sessions.is_empty() {
        true => Err(ReadError::Empty("`input_length`")),
        false => Ok(Trace { block_size, sessions }),
    }
}

/// Name of the session; empty for a request of its own.
fn session_of(record: &Value) -> String {
    match record.get("session_id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => String::new(),
    }
}

fn start_of(record: &Value) -> Start {
    let time = |ms: f64| Duration::from_secs_f64((ms / 1e3).clamp(0.0, 1e9));
    match (milliseconds(record, "delay"), milliseconds(record, "timestamp")) {
        (Some(delay), _) => Start::After(time(delay)),
        (None, Some(at)) => Start::At(time(at)),
        (None, None) => Start::After(Duration::ZERO),
    }
}
