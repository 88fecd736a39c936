//! Tool-call blocks: one machine per way of writing a call.

mod header;
mod json_calls;
mod named;
mod tagged;
mod value;

pub(crate) use header::{HeaderCalls, HeaderTags};
pub(crate) use json_calls::JsonCalls;
use named::NamedCall;
pub(crate) use tagged::{NameEnd, ParameterHeader, Tagged, Tags};

use crate::delta::Sink;
use crate::tools::ToolChoice;

/// What a block makes of a character.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It belongs to the block.
    More,
    /// The block ends with it.
    Close,
    /// The block ended before this text, which is not part of it.
    Leave(String),
    /// The block could not be read. This is its text since the last whole call.
    Fail(String),
}

/// A block in the making.
#[derive(Debug)]
pub(crate) enum Block {
    Tagged(Tagged),
    Json(JsonCalls),
    Header(HeaderCalls),
    Named(NamedCall),
}

impl Block {
    /// The JSON of constrained decoding: the arguments of a named function, or a list of calls.
    pub(crate) fn constrained(choice: Option<ToolChoice>, lead: String) -> Self {
        match choice {
            Some(ToolChoice::Named(name)) => Block::Named(NamedCall::new(&name, lead)),
            _ => Block::Json(JsonCalls::new(&[], lead)),
        }
    }

    pub(crate) fn step(&mut self, c: char, sink: &mut Sink) -> Flow {
        match self {
            Block::Tagged(block) => block.step(c, sink),
            Block::Json(block) => block.step(c, sink),
            Block::Header(block) => block.step(c, sink),
            Block::Named(block) => block.step(c, sink),
        }
    }

    /// The text ends here. Returns what was no call.
    ///
    /// `cut`: the engine ran into its length limit, so that what is missing was not left out by the model.
    pub(crate) fn finish(&mut self, cut: bool, sink: &mut Sink) -> Option<String> {
        match self {
            Block::Tagged(block) => block.finish(cut, sink),
            Block::Json(block) => block.finish(sink),
            Block::Header(block) => block.finish(sink),
            Block::Named(block) => block.finish(),
        }
    }
}

/// Longest name of a function or parameter, in bytes.
const MAX_NAME: usize = 256;

/// Whether text can be, or become, a function name: letters, digits and `_ - . / :`, with white space around it only.
fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.trim().chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'))
}
