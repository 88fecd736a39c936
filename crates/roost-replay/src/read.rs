//! Recorded traces: Dynamo's request trace, Mooncake's JSONL, Weka's JSON, told apart by their first record.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use roost_kv::BlockHash;
use serde_json::Value;

use crate::{Content, Session, Trace, Turn};

mod dynamo;
mod mooncake;
#[cfg(test)]
mod tests;
mod weka;

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A line or the whole is not JSON.
    #[error("line {line}: {source}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// What the reader says.
        source: serde_json::Error,
    },
    /// The first record is of no known kind.
    #[error("neither a request trace (`schema`), nor Mooncake's (`input_length`), nor Weka's (`requests`)")]
    Unknown,
    /// No record can be replayed.
    #[error("no request with {0}")]
    Empty(&'static str),
    /// Two files, or two records, have blocks of different sizes.
    #[error("blocks of {0} and of {1} tokens in one trace")]
    BlockSizes(u32, u32),
}

/// Reads a trace from the contents of its files: one JSON value or one a line each.
///
/// `mooncake_block` is the tokens per block of Mooncake records, which do not say it (512 in the published ones).
/// Hash ids of a Weka file mean something within that file only, but for tools and system prompt: files in which
/// these have equal lengths are taken to begin alike.
pub fn read<'a>(files: impl IntoIterator<Item = &'a str>, mooncake_block: u32) -> Result<Trace, ReadError> {
    let mut whole = Trace::default();
    for (number, file) in files.into_iter().enumerate() {
        let trace = read_file(file, number, mooncake_block)?;
        if whole.sessions.is_empty() {
            whole.block_size = trace.block_size;
        }
        if whole.block_size != trace.block_size {
            return Err(ReadError::BlockSizes(whole.block_size, trace.block_size));
        }
        let before = whole.sessions.len();
        whole.sessions.extend(trace.sessions.into_iter().map(|mut session| {
            if let Some(origin) = &mut session.origin {
                origin.session += before;
            }
            session
        }));
    }
    Ok(whole)
}

fn read_file(text: &str, number: usize, mooncake_block: u32) -> Result<Trace, ReadError> {
    let records: Vec<Value> = records(text)?.into_iter().map(unwrapped).collect();
    let first = records.first().ok_or(ReadError::Unknown)?;
    if first.get("schema").is_some() {
        dynamo::read(&records)
    } else if first.get("input_length").is_some() {
        mooncake::read(&records, mooncake_block.max(1))
    } else if first.get("requests").is_some() {
        weka::read(&records, number)
    } else {
        Err(ReadError::Unknown)
    }
}

/// What a recorder of Dynamo puts around each record it writes: `{"timestamp", "event"}`.
fn unwrapped(mut record: Value) -> Value {
    match record.get_mut("event") {
        Some(event) if event.get("schema").is_some() => event.take(),
        _ => record,
    }
}

/// One value, a list of values, or a value a line.
fn records(text: &str) -> Result<Vec<Value>, ReadError> {
    match serde_json::from_str(text) {
        Ok(Value::Array(list)) => return Ok(list),
        Ok(value) => return Ok(vec![value]),
        Err(_) => {}
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|source| ReadError::Json { line: index + 1, source })
        })
        .collect()
}

fn number(value: &Value, field: &str) -> Option<u32> {
    value.get(field)?.as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Milliseconds, of which a record may have fractions.
fn milliseconds(value: &Value, field: &str) -> Option<f64> {
    value.get(field)?.as_f64().filter(|time| time.is_finite())
}

/// A request with all its blocks, before it is known what it has in common with the one before.
struct Raw {
    turn: Turn,
    blocks: Vec<BlockHash>,
}

/// Turns full prompts into what each keeps of the one before and what it adds.
fn differences(requests: Vec<Raw>) -> Vec<Turn> {
    let mut before: Vec<BlockHash> = Vec::new();
    let turns = requests.into_iter().map(|Raw { mut turn, blocks }| {
        let kept = before.iter().zip(&blocks).take_while(|(a, b)| a == b).count();
        turn.kept = u32::try_from(kept).unwrap_or(u32::MAX);
        turn.content = Content::Given(blocks[kept..].into());
        before = blocks;
        turn
    });
    turns.collect()
}

/// Requests grouped by session name, in order of appearance; those without a name are sessions of their own.
#[derive(Default)]
struct Groups {
    by_name: HashMap<String, usize>,
    groups: Vec<(String, Vec<Raw>)>,
}

impl Groups {
    fn add(&mut self, session: &str, request: Raw) {
        if session.is_empty() {
            self.groups.push((String::new(), vec![request]));
            return;
        }
        let next = self.groups.len();
        let at = *self.by_name.entry(session.to_owned()).or_insert(next);
        if at == next {
            self.groups.push((session.to_owned(), Vec::new()));
        }
        self.groups[at].1.push(request);
    }

    /// Sessions in order of appearance; `parents` names the parent of some.
    fn sessions(self, parents: &BTreeMap<String, String>) -> Vec<Session> {
        let session = |(id, requests): (String, Vec<Raw>)| {
            let parent = parents.get(&id).cloned();
            Session { id, parent, origin: None, turns: differences(requests) }
        };
        self.groups.into_iter().map(session).collect()
    }
}
