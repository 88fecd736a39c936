//! The next turn of a session that is remembered, from body bytes to wire bytes.

use std::path::Path;
use std::sync::Arc;

use roost_frontend::{MemoryConfig, PromptMemory};

use super::{Runner, measured};
use crate::route::{Route, load_template, load_tokenizer};
use crate::{Conversation, Size};

/// Bytes of message text that are about 100,000 tokens.
const CONTEXT: usize = 300_000;

pub(super) fn warm(model: &Path, run: Runner<'_>) -> anyhow::Result<()> {
    turns(model, CONTEXT, run)
}

pub(super) fn warm_long(model: &Path, run: Runner<'_>) -> anyhow::Result<()> {
    turns(model, 2 * CONTEXT, run)
}

fn turns(model: &Path, context: usize, run: Runner<'_>) -> anyhow::Result<()> {
    let mut conversation = Conversation::new("m", 1, Size { context, turn: 2400, tools: 12 });
    let body = conversation.body();
    conversation.grow();
    let next = conversation.body();
    let template = &load_template(model)?;
    let memory = &PromptMemory::new(MemoryConfig::default());
    let tokenizer = &load_tokenizer(model)?.with_cache(Arc::clone(memory.segments()));
    let route = Route { template, tokenizer, memory };
    run(Box::new(move || {
        route.turn(&body)?;
        measured(|| route.turn(&next)).map(drop)
    }))
}
