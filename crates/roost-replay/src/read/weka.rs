//! Weka's (kv-cache-tester's) traces: a session a value, sub-agents nested among its requests. Times are seconds.

use std::time::Duration;

use roost_kv::BlockHash;
use serde_json::Value;

use super::{Raw, ReadError, differences, number};
use crate::trace::scramble;
use crate::{Content, Origin, Session, Start, Trace, Turn};

/// Blocks of tools and system prompt get names of their own.
const COMMON: u64 = 0x5EED_0000_0000_0000;

struct File {
    block_size: u32,
    /// Distinguishes the ids of this session from those of others.
    scope: u64,
    sessions: Vec<Session>,
}

pub(super) fn read(records: &[Value], number_of_file: usize) -> Result<Trace, ReadError> {
    let mut whole = Trace::default();
    for (index, record) in records.iter().enumerate() {
        let block_size = number(record, "block_size").filter(|size| *size > 0).unwrap_or(64);
        if whole.sessions.is_empty() {
            whole.block_size = block_size;
        } else if whole.block_size != block_size {
            return Err(ReadError::BlockSizes(whole.block_size, block_size));
        }
        let id = record.get("id").and_then(Value::as_str).map(str::to_owned);
        let id = id.unwrap_or_else(|| format!("{number_of_file}.{index}"));
        let is_global = record.get("hash_id_scope").and_then(Value::as_str) == Some("global");
        let scope = match is_global {
            true => 0,
            false => scramble((number_of_file as u64) << 32 | (index as u64 + 1)),
        };
        let mut file = File { block_size, scope, sessions: Vec::new() };
        file.add(record, id, None);
        let before = whole.sessions.len();
        whole.sessions.extend(file.sessions.into_iter().map(|mut session| {
            if let Some(origin) = &mut session.origin {
                origin.session += before;
            }
            session
        }));
    }
    match whole.sessions.iter().all(|session| session.turns.is_empty()) {
        true => Err(ReadError::Empty("`in` and `hash_ids`")),
        false => Ok(whole),
    }
}

impl File {
    /// Adds a session and those of its sub-agents.
    fn add(&mut self, record: &Value, id: String, origin: Option<Origin>) {
        let at = self.sessions.len();
        let parent = origin.map(|origin| self.sessions[origin.session].id.clone());
        self.sessions.push(Session { id: id.clone(), parent, origin, turns: Vec::new() });
        let tools = number(record, "tool_tokens").unwrap_or(0);
        let system = number(record, "system_tokens").unwrap_or(0);
        let common = (tools.saturating_add(system)) / self.block_size;
        let common_scope = scramble(COMMON ^ u64::from(tools) << 32 ^ u64::from(system));
        let mut requests = Vec::new();
        let list = record.get("requests").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut last_end = None;
        for (index, request) in list.iter().enumerate() {
            if request.get("type").and_then(Value::as_str) == Some("subagent") {
                // Before the first request there is no answer to start from.
                if let Some(turn) = requests.len().checked_sub(1) {
                    let agent = request.get("agent_id").and_then(Value::as_str).unwrap_or("agent");
                    let origin = Origin { session: at, turn, inherited: 0 };
                    self.add(request, format!("{id}.{index}.{agent}"), Some(origin));
                }
                continue;
            }
            let Some(prompt_tokens) = number(request, "in") else { continue };
            let seconds = |field| request.get(field).and_then(Value::as_f64).filter(|time| *time >= 0.0);
            let began = seconds("t");
            let gap = began.zip(last_end).map(|(began, end): (f64, f64)| (began - end).max(0.0));
            let think = seconds("think_time").or(gap).unwrap_or(0.0);
            last_end = began.map(|began| began + seconds("api_time").unwrap_or(0.0));
            let ids = request.get("hash_ids").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let complete = (prompt_tokens / self.block_size) as usize;
            let blocks = ids.iter().take(complete).enumerate().filter_map(|(position, id)| {
                let scope = if (position as u32) < common { common_scope } else { self.scope };
                let id = if (position as u32) < common { position as u64 } else { id.as_u64()? };
                Some(BlockHash(scramble(scope ^ id)))
            });
            let turn = Turn {
                start: Start::After(Duration::from_secs_f64(think.min(1e9))),
                prompt_tokens,
                output_tokens: number(request, "out").unwrap_or(1),
                kept: 0,
                content: Content::Fresh(0),
            };
            requests.push(Raw { turn, blocks: blocks.collect() });
        }
        self.sessions[at].turns = differences(requests);
    }
}
