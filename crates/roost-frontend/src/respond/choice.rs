//! One generated sequence on its way from token ids to text, reasoning and calls.

use roost_openai::{Finish, Piece, Usage};
use roost_parser::{Delta, Parser};
use roost_tokenizer::{DecodeStream, StopIds, StopKind, StopScanner};
use roost_wire::message::{EngineOutput, FinishReason};

use crate::failure::Failure;

/// Decoder, stop conditions, parser and counts of one choice.
///
/// What is new collects until [`Choice::take_pieces`] empties it; the buffers are reused.
#[derive(Debug)]
pub(crate) struct Choice {
    decode: DecodeStream,
    stops: StopScanner,
    stop_ids: StopIds,
    max_tokens: Option<u32>,
    /// Text of the current token.
    piece: String,
    /// Text that passed the stop strings, not yet parsed or taken.
    text: String,
    parser: Option<Parser>,
    deltas: Vec<Delta>,
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
    /// Reads reasoning and calls; without one the text is content.
    pub(crate) parser: Option<Parser>,
    /// Reasoning tokens are counted.
    pub(crate) counts_reasoning: bool,
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
            parser: ending.parser,
            deltas: Vec::new(),
            usage: Usage {
                prompt_tokens: ending.prompt_tokens,
                reasoning_tokens: ending.counts_reasoning.then_some(0),
                ..Usage::default()
            },
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
            self.complete(Finish::Length);
            return Ok(());
        }
        Err(Failure::no_finish())
    }

    /// Gives everything new, in order, and forgets it; the buffers stay.
    pub(crate) fn take_pieces(&mut self, mut give: impl FnMut(Piece<'_>, &Usage)) {
        if !self.text.is_empty() {
            give(Piece::Content(&self.text), &self.usage);
            self.text.clear();
        }
        for delta in self.deltas.drain(..) {
            match &delta {
                Delta::Content(text) => give(Piece::Content(text), &self.usage),
                Delta::Reasoning(text) => give(Piece::Reasoning(text), &self.usage),
                Delta::ToolStart { index, name, id } => {
                    let made;
                    let id = match id {
                        Some(id) => id,
                        None => {
                            made = format!("call-{}", uuid::Uuid::new_v4());
                            &made
                        }
                    };
                    give(Piece::ToolStart { index: *index, id, name }, &self.usage);
                }
                Delta::ToolArguments { index, fragment } => {
                    give(Piece::ToolArguments { index: *index, fragment }, &self.usage);
                }
                Delta::ToolEnd { .. } => {}
            }
        }
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Why the choice ended; a stop after tool calls is their doing.
    pub(crate) fn finish(&self) -> Option<Finish> {
        match (self.finish, &self.parser) {
            (Some(Finish::Stop), Some(parser)) if parser.calls() > 0 => Some(Finish::ToolCalls),
            (finish, _) => finish,
        }
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
            let mut ended = stop.is_some();
            if stop != Some(StopKind::Hidden) {
                self.decode.push(id, &mut self.piece);
                ended |= self.pass_piece(before);
            }
            if ended {
                return self.complete(Finish::Stop);
            }
            self.parse();
        }
    }

    fn generated(&self) -> u32 {
        u32::try_from(self.usage.completion_tokens).unwrap_or(u32::MAX)
    }

    /// Moves decoded text on, through the stop strings when there are any; tells whether one was found. `before`
    /// tokens were generated before.
    fn pass_piece(&mut self, before: u32) -> bool {
        let found = if self.stops.is_empty() {
            self.text.push_str(&self.piece);
            false
        } else if self.stop_ids.armed(before) {
            self.stops.push(&self.piece, &mut self.text).is_some()
        } else {
            self.stops.pass(&self.piece, &mut self.text);
            false
        };
        self.piece.clear();
        found
    }

    /// Hands the text of a token to the parser, and counts the token as reasoning if it stands there.
    fn parse(&mut self) {
        let Some(parser) = &mut self.parser else { return };
        parser.push(&self.text, &mut self.deltas);
        self.text.clear();
        if let Some(count) = &mut self.usage.reasoning_tokens
            && parser.in_reasoning()
        {
            *count += 1;
        }
    }

    fn engine_finish(&mut self, reason: &FinishReason) {
        self.engine_finished = true;
        if self.finish.is_some() {
            return;
        }
        self.complete(match reason {
            FinishReason::Length => Finish::Length,
            FinishReason::ContentFilter => Finish::ContentFilter,
            FinishReason::Eos | FinishReason::Stop | FinishReason::Cancelled | FinishReason::Error(_) => {
                Finish::Stop
            }
        });
    }

    /// Ends the choice: what was held back (half characters, beginnings of stop strings and of markup) is let out.
    fn complete(&mut self, finish: Finish) {
        if self.finish.is_some() {
            return;
        }
        self.decode.finish(&mut self.piece);
        let stopped = self.pass_piece(self.generated());
        self.stops.finish(&mut self.text);
        let finish = if stopped { Finish::Stop } else { finish };
        self.finish = Some(finish);
        if let Some(parser) = &mut self.parser {
            parser.push(&self.text, &mut self.deltas);
            self.text.clear();
            parser.finish(finish == Finish::Length, &mut self.deltas);
        }
    }
}
