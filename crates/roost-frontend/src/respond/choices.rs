//! The sequences of one answer: items find theirs by index, counts are shared.

use std::time::Duration;

use roost_openai::{Finish, Piece, TokenLogprob, Usage};
use roost_wire::message::EngineOutput;

use super::choice::{Choice, End};
use crate::failure::Failure;

/// All choices of a request, at least one.
#[derive(Debug)]
pub(crate) struct Choices {
    list: Vec<Choice>,
    usage: Usage,
    /// Ids that counted since they were last taken, if somebody wants them.
    ids: Option<Vec<u32>>,
}

impl Choices {
    /// `counts_reasoning`: tokens of the reasoning are counted on their own.
    pub(crate) fn new(list: Vec<Choice>, prompt_tokens: u64, counts_reasoning: bool) -> Self {
        let reasoning_tokens = counts_reasoning.then_some(0);
        Choices { list, usage: Usage { prompt_tokens, reasoning_tokens, ..Usage::default() }, ids: None }
    }

    /// Keeps the ids that count, to be taken.
    pub(crate) fn keep_ids(&mut self) {
        self.ids = Some(Vec::new());
    }

    /// The ids that have counted since the last time, of all choices.
    pub(crate) fn take_ids(&mut self) -> Vec<u32> {
        self.ids.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Gives back ids that nothing has shown.
    pub(crate) fn return_ids(&mut self, ids: Vec<u32>) {
        if let Some(kept) = &mut self.ids {
            *kept = ids;
        }
    }

    /// The stop string that ended the first choice that one has ended.
    pub(crate) fn stop_string(&self) -> Option<&str> {
        self.list.iter().find_map(Choice::stop_string)
    }

    /// Why the first choice ended.
    pub(crate) fn finish(&self) -> Option<Finish> {
        self.list.first().and_then(Choice::finish)
    }

    /// Takes one engine item. Returns the number of tokens that counted.
    ///
    /// After a choice's finish, only usage is still read.
    pub(crate) fn push(&mut self, output: &EngineOutput) -> Result<u32, Failure> {
        if let Some(usage) = &output.completion_usage {
            if usage.prompt_tokens > 0 {
                self.usage.prompt_tokens = u64::from(usage.prompt_tokens);
            }
            if let Some(cached) = usage.prompt_tokens_details.and_then(|d| d.cached_tokens) {
                self.usage.cached_tokens = Some(u64::from(cached));
            }
        }
        let index = output.index.unwrap_or(0);
        let Some(choice) = self.list.get_mut(index as usize) else {
            tracing::debug!(index, choices = self.list.len(), "item of a choice that nobody asked for");
            return Ok(0);
        };
        let counted = choice.push(output, &mut self.usage)?;
        if let Some(ids) = &mut self.ids {
            ids.extend_from_slice(&output.token_ids[..(counted as usize).min(output.token_ids.len())]);
        }
        Ok(counted)
    }

    /// The worker's stream ended normally. A choice that has no reason to be finished is not passed off as whole; one
    /// that never began beside others that did is of a worker that gives fewer choices than asked, and is left out.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        if self.list.iter().any(Choice::has_begun) {
            let asked = self.list.len();
            let given = self.list.iter().rposition(Choice::has_begun).map_or(0, |last| last + 1);
            self.list.truncate(given);
            if given < asked {
                tracing::warn!(asked, given, "the worker gave fewer choices than asked for");
            }
        }
        self.list.iter_mut().try_for_each(Choice::end)
    }

    /// Gives everything new, in order per choice, and forgets it; the buffers stay. `give` takes the log
    /// probabilities it shows.
    pub(crate) fn take_pieces(
        &mut self,
        mut give: impl FnMut(u32, Piece<'_>, &mut Vec<TokenLogprob>, &Usage),
    ) {
        for (index, choice) in (0..).zip(&mut self.list) {
            choice.take_pieces(|piece, logprobs| give(index, piece, logprobs, &self.usage));
        }
    }

    /// Gives the end of each choice that has one, once.
    pub(crate) fn take_ends(&mut self, mut give: impl FnMut(u32, End<'_>, &Usage)) {
        for (index, choice) in (0..).zip(&mut self.list) {
            choice.take_end(|end| give(index, end, &self.usage));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Every choice has its reason.
    pub(crate) fn is_finished(&self) -> bool {
        self.list.iter().all(|choice| choice.finish().is_some())
    }

    /// Stop conditions of ours ended everything while the engine still generates: it must be told.
    pub(crate) fn engine_must_stop(&self) -> bool {
        self.is_finished() && self.list.iter().any(Choice::engine_must_stop)
    }

    /// Time spent on turning tokens into text.
    pub(crate) fn decoding(&self) -> Duration {
        self.list.iter().map(Choice::decoding).sum()
    }
}
