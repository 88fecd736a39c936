//! The figures by which traces are compared.

use crate::Trace;

/// Distributions over the requests of a trace, sub-agents' included, and over its sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Sessions that no other session started.
    pub sessions: usize,
    /// Sessions that another one started.
    pub subagents: usize,
    /// Requests.
    pub requests: usize,
    prompt: Vec<u32>,
    output: Vec<u32>,
    new: Vec<u32>,
    turns: Vec<u32>,
}

impl Shape {
    /// Measures a trace; with `main_only`, without the sub-agents' requests.
    pub fn of(trace: &Trace, main_only: bool) -> Self {
        let mut shape = Self::default();
        for session in &trace.sessions {
            shape.sessions += usize::from(session.origin.is_none());
            shape.subagents += usize::from(session.origin.is_some());
            if main_only && session.origin.is_some() {
                continue;
            }
            shape.turns.push(u32::try_from(session.turns.len()).unwrap_or(u32::MAX));
            for turn in &session.turns {
                let kept = turn.kept.saturating_mul(trace.block_size);
                shape.prompt.push(turn.prompt_tokens);
                shape.output.push(turn.output_tokens);
                shape.new.push(turn.prompt_tokens.saturating_sub(kept));
            }
        }
        shape.requests = shape.prompt.len();
        for list in [&mut shape.prompt, &mut shape.output, &mut shape.new, &mut shape.turns] {
            list.sort_unstable();
        }
        shape
    }

    /// Prompt tokens of the request at this share of all, 0 to 1.
    pub fn prompt_tokens(&self, share: f64) -> u32 {
        at(&self.prompt, share)
    }

    /// Answer tokens.
    pub fn output_tokens(&self, share: f64) -> u32 {
        at(&self.output, share)
    }

    /// Prompt tokens that the session's previous prompt does not begin with.
    pub fn new_tokens(&self, share: f64) -> u32 {
        at(&self.new, share)
    }

    /// Turns of a session.
    pub fn turns(&self, share: f64) -> u32 {
        at(&self.turns, share)
    }

    /// Share of all prompt tokens that the session's previous prompt begins with.
    pub fn seen_in_session(&self) -> f64 {
        let sum = |list: &[u32]| list.iter().map(|tokens| f64::from(*tokens)).sum::<f64>();
        1.0 - sum(&self.new) / sum(&self.prompt).max(1.0)
    }
}

fn at(sorted: &[u32], share: f64) -> u32 {
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0)
}
