//! `{timestamp, input_length, output_length, hash_ids, session_id?, delay?}`, one a line. Times are milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use roost_kv::BlockHash;
use serde_json::Value;

use super::{Groups, Raw, ReadError, milliseconds, number};
use crate::{Content, Start, Trace, Turn};

pub(super) fn read(records: &[Value], block_size: u32) -> Result<Trace, ReadError> {
    let mut groups = Groups::default();
    for record in records {
        let Some(prompt_tokens) = number(record, "input_length") else { continue };
        let Some(ids) = record.get("hash_ids").and_then(Value::as_array) else { continue };
        let delay = milliseconds(record, "delay");
        let at = milliseconds(record, "timestamp");
        let time = |ms: f64| Duration::from_secs_f64((ms / 1e3).clamp(0.0, 1e9));
        let start = match (delay, at) {
            (Some(delay), _) => Start::After(time(delay)),
            (None, Some(at)) => Start::At(time(at)),
            (None, None) => Start::After(Duration::ZERO),
        };
        // The last id of a prompt may stand for an incomplete block.
        let complete = (prompt_tokens / block_size) as usize;
        let blocks = ids.iter().take(complete).filter_map(Value::as_u64).map(BlockHash).collect();
        let output_tokens = number(record, "output_length").unwrap_or(1);
        let turn = Turn { start, prompt_tokens, output_tokens, kept: 0, content: Content::Fresh(0) };
        let session = match record.get("session_id") {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => String::new(),
        };
        groups.add(&session, Raw { turn, blocks });
    }
    let sessions = groups.sessions(&BTreeMap::new());
    match sessions.is_empty() {
        true => Err(ReadError::Empty("`input_length` and `hash_ids`")),
        false => Ok(Trace { block_size, sessions }),
    }
}
