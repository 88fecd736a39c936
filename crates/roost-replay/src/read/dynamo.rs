//! Dynamo's request trace: `request_end` records with their replay hashes, one a line.

use std::collections::BTreeMap;
use std::time::Duration;

use roost_kv::BlockHash;
use serde_json::Value;

use super::{Groups, Raw, ReadError, milliseconds, number};
use crate::{Content, Start, Trace, Turn};

/// A request as recorded.
struct Record<'a> {
    session: &'a str,
    parent: &'a str,
    received: f64,
    /// When its answer ended, if that was recorded.
    ended: Option<f64>,
    block_size: u32,
    prompt_tokens: u32,
    output_tokens: u32,
    blocks: Vec<BlockHash>,
}

/// The first request of a session is sent at its recorded time, a further one as long after the answer before it as
/// then. Requests that overlapped are sent one after the other.
pub(super) fn read(records: &[Value]) -> Result<Trace, ReadError> {
    let mut list: Vec<Record<'_>> = records.iter().filter_map(parse).collect();
    let block_size = list.first().ok_or(ReadError::Empty("`request.replay`"))?.block_size;
    if let Some(other) = list.iter().find(|record| record.block_size != block_size) {
        return Err(ReadError::BlockSizes(block_size, other.block_size));
    }
    list.sort_by(|a, b| a.received.total_cmp(&b.received));
    let begin = list.first().map_or(0.0, |record| record.received);
    let (mut groups, mut parents) = (Groups::default(), BTreeMap::new());
    let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
    for record in list {
        let time = |ms: f64| Duration::from_secs_f64((ms / 1e3).clamp(0.0, 1e9));
        let start = match ends.get(record.session).filter(|_| !record.session.is_empty()) {
            Some(end) => Start::After(time(record.received - end)),
            None => Start::At(time(record.received - begin)),
        };
        ends.insert(record.session, record.ended.unwrap_or(record.received));
        if !record.parent.is_empty() && record.parent != record.session {
            parents.insert(record.session.to_owned(), record.parent.to_owned());
        }
        let Record { prompt_tokens, output_tokens, blocks, .. } = record;
        let turn = Turn { start, prompt_tokens, output_tokens, kept: 0, content: Content::Fresh(0) };
        groups.add(record.session, Raw { turn, blocks });
    }
    Ok(Trace { block_size, sessions: groups.sessions(&parents) })
}

fn parse(record: &Value) -> Option<Record<'_>> {
    let request = record.get("request")?;
    let replay = request.get("replay").filter(|replay| !replay.is_null())?;
    let block_size = number(replay, "trace_block_size").filter(|size| *size > 0)?;
    let prompt_tokens = number(replay, "input_length")?;
    let hashes = replay.get("input_sequence_hashes")?.as_array()?;
    // The last hash may be that of an incomplete block. A sequence hash stands for all before it as well, which is
    // no worse a name for the content of its block.
    let complete = (prompt_tokens / block_size) as usize;
    let blocks = hashes.iter().take(complete).filter_map(Value::as_u64).map(BlockHash).collect();
    let context = record.get("agent_context").unwrap_or(&Value::Null);
    let name = |field| context.get(field).and_then(Value::as_str).unwrap_or_default();
    let ended = milliseconds(record, "event_time_unix_ms");
    let took = milliseconds(request, "total_time_ms");
    let received =
        milliseconds(request, "request_received_ms").or_else(|| Some(ended? - took.unwrap_or(0.0)))?;
    Some(Record {
        session: name("session_id"),
        parent: name("parent_session_id"),
        received,
        ended: took.map(|took| received + took).or(ended),
        block_size,
        prompt_tokens,
        output_tokens: number(request, "output_tokens").unwrap_or(1),
        blocks,
    })
}
