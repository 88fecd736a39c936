//! Raw bytes of every token, computed once per model.

mod file;
mod plan;

use std::path::Path;

use crate::backend::Encoder;
use crate::error::Error;
use file::File;
pub(crate) use plan::{InvalidBytes, Plan, spelled};

/// Decoder tables of one model: the bytes of token `id` are `arena[offsets[id]..offsets[id + 1]]`.
#[derive(Debug)]
pub(crate) struct Detokenizer {
    arena: Vec<u8>,
    offsets: Vec<u32>,
    flags: Vec<u8>,
    /// How the file's decoder works per token; `None` when it cannot be told per token and the
    /// library's own decoder must be asked for whole sequences.
    plan: Option<Plan>,
}

/// Largest vocabulary that is taken for one; real ones have some hundred thousand ids.
const MAX_IDS: usize = 1 << 24;

const KNOWN: u8 = 1;
const SPECIAL: u8 = 2;

impl Detokenizer {
    pub(crate) fn build(path: &Path, encoder: &Encoder) -> Result<Self, Error> {
        let file = File::read(path)?;
        let plan = file.decoder.as_ref().and_then(Plan::from_json);
        Self::with_plan(path, encoder, plan, file.id_bound())
    }

    /// The tables of a model whose own ids are below `id_bound`.
    pub(crate) fn with_plan(
        path: &Path,
        encoder: &Encoder,
        plan: Option<Plan>,
        id_bound: usize,
    ) -> Result<Self, Error> {
        let added = encoder.added_tokens();
        let added_bound = added.iter().map(|token| token.id as usize + 1).max().unwrap_or(0);
        let size = id_bound.max(added_bound);
        if size > MAX_IDS {
            return Err(Error::Load {
                path: path.to_owned(),
                reason: format!("token id {} is too large", size - 1),
            });
        }
        let mut table = Self {
            arena: Vec::with_capacity(size * 8),
            offsets: Vec::with_capacity(size + 1),
            flags: vec![0; size],
            plan,
        };
        table.offsets.push(0);
        for id in 0..size as u32 {
            if let Some(token) = encoder.id_to_token(id) {
                match &table.plan {
                    Some(plan) => plan.bytes(&token, false, &mut table.arena),
                    None if token.is_empty() => {}
                    None => table.arena.extend_from_slice(encoder.decode(&[id], false).as_bytes()),
                }
                table.flags[id as usize] |= KNOWN;
            }
            table.offsets.push(table.arena.len() as u32);
        }
        for token in added {
            if token.special {
                table.flags[token.id as usize] |= SPECIAL;
            }
        }
        Ok(table)
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let at = id as usize;
        if self.flags.get(at)? & KNOWN == 0 {
            return None;
        }
        Some(&self.arena[self.offsets[at] as usize..self.offsets[at + 1] as usize])
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.flags.get(id as usize).is_some_and(|flags| flags & SPECIAL != 0)
    }

    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }
}

#[cfg(test)]
mod tests;
