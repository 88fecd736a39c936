//! The sequences of one answer: items find theirs by prompt and index, counts are summed.

use std::time::Duration;

use roost_openai::{Finish, Piece, TokenLogprob, Usage};
use roost_wire::message::EngineOutput;

use super::choice::{Choice, End};
use super::tiers::CachedTiers;
use crate::failure::Failure;

/// All choices of a request, at least one: those of the first prompt, then those of the second, and so on.
#[derive(Debug)]
pub(crate) struct Choices {
    list: Vec<Choice>,
    /// Choices of each prompt.
    each: usize,
    prompts: Vec<PromptUsage>,
    usage: Usage,
    /// Ids that counted since they were last taken, if somebody wants them.
    ids: Option<Vec<u32>>,
    /// Somebody wants to know what the engine tells about itself.
    keeps_engine_data: bool,
}

/// What a prompt cost.
#[derive(Debug, Clone, Copy)]
struct PromptUsage {
    tokens: u64,
    cached: Option<u64>,
    tiers: Option<CachedTiers>,
}

impl Choices {
    /// `prompt_tokens` of each prompt; all have as many choices. `counts_reasoning`: tokens of the reasoning are counted
    /// on their own.
    pub(crate) fn new(list: Vec<Choice>, prompt_tokens: &[u64], counts_reasoning: bool) -> Self {
        let reasoning_tokens = counts_reasoning.then_some(0);
        let prompts: Vec<_> = prompt_tokens
            .iter()
            .map(|tokens| PromptUsage { tokens: *tokens, cached: None, tiers: None })
            .collect();
        let each = list.len().checked_div(prompts.len()).unwrap_or(0);
        let usage = Usage { reasoning_tokens, ..Usage::default() };
        let mut choices = Choices { list, each, prompts, usage, ids: None, keeps_engine_data: false };
        choices.add_up();
        choices
    }

    /// Keeps the ids that count, to be taken.
    pub(crate) fn keep_ids(&mut self) {
        self.ids = Some(Vec::new());
    }

    /// Keeps what the engine tells about itself, for the ends of choices.
    pub(crate) fn keep_engine_data(&mut self) {
        self.keeps_engine_data = true;
    }

    /// What the engine told about itself at the end of the last choice of which it told.
    pub(crate) fn engine_data(&self) -> Option<&serde_json::Value> {
        self.list.iter().rev().find_map(Choice::engine_data)
    }

    /// Where the cached tokens of all prompts were found, as far as the engines tell.
    pub(crate) fn cached_tiers(&self) -> Option<CachedTiers> {
        self.prompts.iter().filter_map(|prompt| prompt.tiers).reduce(CachedTiers::plus)
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

    /// Takes one engine item of a prompt's answer. Returns the number of tokens that counted.
    ///
    /// After a choice's finish, only usage is still read.
    pub(crate) fn push(&mut self, prompt: usize, output: &EngineOutput) -> Result<u32, Failure> {
        if let Some(usage) = &output.completion_usage {
            let known = &mut self.prompts[prompt];
            if usage.prompt_tokens > 0 {
                known.tokens = u64::from(usage.prompt_tokens);
            }
            if let Some(cached) = usage.prompt_tokens_details.and_then(|d| d.cached_tokens) {
                known.cached = Some(u64::from(cached));
            }
            self.add_up();
        }
        if let Some(tiers) = CachedTiers::told_by(output) {
            self.prompts[prompt].tiers = Some(tiers);
        }
        let index = output.index.unwrap_or(0);
        let of_prompt = prompt * self.each..(prompt + 1) * self.each;
        let Some(choice) = self.list[of_prompt].get_mut(index as usize) else {
            tracing::debug!(index, choices = self.each, "item of a choice that nobody asked for");
            return Ok(0);
        };
        if self.keeps_engine_data {
            choice.keep_engine_data(output);
        }
        let counted = choice.push(output, &mut self.usage)?;
        if let Some(ids) = &mut self.ids {
            ids.extend_from_slice(&output.token_ids[..(counted as usize).min(output.token_ids.len())]);
        }
        Ok(counted)
    }

    fn add_up(&mut self) {
        self.usage.prompt_tokens = self.prompts.iter().map(|prompt| prompt.tokens).sum();
        let mut cached = self.prompts.iter().filter_map(|prompt| prompt.cached).peekable();
        self.usage.cached_tokens = cached.peek().is_some().then(|| cached.sum());
    }

    /// The worker's stream for a prompt ended normally. A choice that has no reason to be finished is not passed off as
    /// whole; one of a single prompt that never began beside others that did is of a worker that gives fewer choices
    /// than asked, and is left out.
    pub(crate) fn end(&mut self, prompt: usize) -> Result<(), Failure> {
        if self.prompts.len() > 1 {
            let of_prompt = prompt * self.each..(prompt + 1) * self.each;
            return self.list[of_prompt].iter_mut().try_for_each(Choice::end);
        }
        if self.list.iter().any(Choice::has_begun) {
            let asked = self.list.len();
            let given = self.list.iter().rposition(Choice::has_begun).map_or(0, |last| last + 1);
            self.list.truncate(given);
            self.each = given;
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

    /// Stop conditions of ours ended all choices of a prompt while the engine still generates: it must be told.
    pub(crate) fn engine_must_stop(&self, prompt: usize) -> bool {
        let of_prompt = &self.list[prompt * self.each..(prompt + 1) * self.each];
        of_prompt.iter().all(|choice| choice.finish().is_some())
            && of_prompt.iter().any(Choice::engine_must_stop)
    }

    /// Time spent on turning tokens into text.
    pub(crate) fn decoding(&self) -> Duration {
        self.list.iter().map(Choice::decoding).sum()
    }
}
