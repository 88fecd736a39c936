//! One generated sequence on its way from token ids to text.

use roost_openai::{Finish, Usage};
use roost_tokenizer::{DecodeStream, StopIds, StopKind, StopScanner};
use roost_wire::message::{EngineOutput, FinishReason};

use crate::failure::Failure;

/// Decoder, stop conditions and counts of one choice.
///
/// New text collects in [`Choice::text`] until [`Choice::take`] empties it; the buffer is reused.
#[derive(Debug)]
pub(crate) struct Choice {
    decode: DecodeStream,
    stops: StopScanner,
    stop_ids: StopIds,
    max_tokens: Option<u32>,
    piece: String,
    text: String,
    usage: Usage,
    finish: Option<Finish>,
    engine_finished: bool,
}

/// What ends a choice.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) decode: DecodeStream,
    pub(crate) stops: StopScanner,
    pub(crate) stop_ids: StopIds,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) prompt_tokens: u64,
}

impl Choice {
    pub(crate) fn new(ending: Ending) -> Self {
        Choice {
            decode: ending.decode,
            stops: ending.stops,
            stop_ids: ending.stop_ids,
            max_tokens: ending.max_tokens,
            piece: String::new(),
            text: String::new(),
            usage: Usage { prompt_tokens: ending.prompt_tokens, ..Usage::default() },
            finish: None,
            engine_finished: false,
        }
    }

    /// Takes one engine item. Returns the number of tokens that counted.
    ///
    /// After the finish, only usage is still read.
    pub(crate) fn push(&mut self, output: &EngineOutput) -> Result<u32, Failure> {
        if let Some(usage) = &output.completion_usage {
            if usage.prompt_tokens > 0 {
                self.usage.prompt_tokens = u64::from(usage.prompt_tokens);
            }
            if let Some(cached) = usage.prompt_tokens_details.and_then(|d| d.cached_tokens) {
                self.usage.cached_tokens = Some(u64::from(cached));
            }
        }
        let before = self.usage.completion_tokens;
        if self.finish.is_none() {
            self.tokens(&output.token_ids);
        }
        match &output.finish_reason {
            None => {}
            Some(FinishReason::Error(text)) => return Err(Failure::engine(text)),
            Some(reason) => self.engine_finish(reason),
        }
        Ok(u32::try_from(self.usage.completion_tokens - before).unwrap_or(u32::MAX))
    }

    /// The worker's stream ended normally. A choice that has no reason to be finished is not passed off as whole.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        if self.finish.is_some() {
            return Ok(());
        }
        if self.max_tokens.is_some_and(|max| self.usage.completion_tokens >= u64::from(max)) {
            self.flush();
            self.finish = Some(Finish::Length);
            return Ok(());
        }
        Err(Failure::no_finish())
    }

    /// Whether new text waits.
    pub(crate) fn has_text(&self) -> bool {
        !self.text.is_empty()
    }

    /// New text since the last [`Choice::take`].
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Empties the text; its buffer stays.
    pub(crate) fn clear_text(&mut self) {
        self.text.clear();
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(crate) fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// A stop condition of ours was met while the engine still generates: it must be told.
    pub(crate) fn engine_must_stop(&self) -> bool {
        self.finish.is_some() && !self.engine_finished
    }

    fn tokens(&mut self, ids: &[u32]) {
        for &id in ids {
            let before = self.generated();
            self.usage.completion_tokens += 1;
            let stop = self.stop_ids.check(id, before);
            if stop != Some(StopKind::Hidden) {
                self.decode.push(id, &mut self.piece);
                self.pass_piece(before);
            }
            if self.finish.is_none() && stop.is_some() {
                self.flush();
                self.finish = Some(Finish::Stop);
            }
            if self.finish.is_some() {
                return;
            }
        }
    }

    fn generated(&self) -> u32 {
        u32::try_from(self.usage.completion_tokens).unwrap_or(u32::MAX)
    }

    /// Moves decoded text on, through the stop strings when there are any. `before` tokens were generated before.
    fn pass_piece(&mut self, before: u32) {
        if self.stops.is_empty() {
            self.text.push_str(&self.piece);
        } else if !self.stop_ids.armed(before) {
            self.stops.pass(&self.piece, &mut self.text);
        } else if self.stops.push(&self.piece, &mut self.text).is_some() {
            self.finish = Some(Finish::Stop);
        }
        self.piece.clear();
    }

    fn engine_finish(&mut self, reason: &FinishReason) {
        self.engine_finished = true;
        if self.finish.is_some() {
            return;
        }
        self.flush();
        self.finish.get_or_insert(match reason {
            FinishReason::Length => Finish::Length,
            FinishReason::ContentFilter => Finish::ContentFilter,
            FinishReason::Eos | FinishReason::Stop | FinishReason::Cancelled | FinishReason::Error(_) => {
                Finish::Stop
            }
        });
    }

    /// Lets out what was held back: half characters, beginnings of stop strings.
    fn flush(&mut self) {
        self.decode.finish(&mut self.piece);
        self.pass_piece(self.generated());
        self.stops.finish(&mut self.text);
    }
}
