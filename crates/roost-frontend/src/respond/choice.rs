//! One generated sequence on its way from token ids to text, reasoning and calls.

use std::time::{Duration, Instant};

use roost_openai::{Finish, Piece, TokenLogprob, Usage};
use roost_parser::{Delta, Parser};
use roost_tokenizer::{DecodeStream, StopIds, StopKind, StopScanner};
use roost_wire::message::{EngineOutput, FinishReason};

use super::logprobs::Logprobs;
use crate::failure::Failure;

/// Decoder, stop conditions and parser of one choice.
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
    logprobs: Option<Logprobs>,
    /// Tokens that counted.
    generated: u32,
    decoding: Duration,
    finish: Option<Finish>,
    /// What the engine told last about itself, where somebody wants it.
    engine_data: Option<Box<serde_json::Value>>,
    /// The finish has been given out.
    end_taken: bool,
    engine_finished: bool,
}

/// How a choice ended.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub(crate) finish: Finish,
    /// The stop string that was met.
    pub(crate) stop: Option<&'a str>,
    /// What the engine told about itself.
    pub(crate) engine_data: Option<&'a serde_json::Value>,
    /// Log probabilities that no piece has shown.
    pub(crate) logprobs: &'a mut Vec<TokenLogprob>,
}

/// What ends a choice.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) decode: DecodeStream,
    pub(crate) stops: StopScanner,
    pub(crate) stop_ids: StopIds,
    pub(crate) max_tokens: Option<u32>,
    /// Reads reasoning and calls; without one the text is content.
    pub(crate) parser: Option<Parser>,
    /// Log probabilities are wanted.
    pub(crate) logprobs: Option<Logprobs>,
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
            logprobs: ending.logprobs,
            generated: 0,
            decoding: Duration::ZERO,
            finish: None,
            engine_data: None,
            end_taken: false,
            engine_finished: false,
        }
    }

    /// Takes one engine item of this choice. Returns the number of tokens that counted, here and in `usage`.
    pub(crate) fn push(&mut self, output: &EngineOutput, usage: &mut Usage) -> Result<u32, Failure> {
        let before = self.generated;
        if self.finish.is_none() && !output.token_ids.is_empty() {
            let started = Instant::now();
            self.tokens(output, usage);
            self.decoding += started.elapsed();
        }
        let counted = self.generated - before;
        usage.completion_tokens += u64::from(counted);
        match &output.finish_reason {
            None => {}
            Some(FinishReason::Error(text)) => return Err(Failure::engine(text)),
            Some(reason) => self.engine_finish(reason),
        }
        Ok(counted)
    }

    /// Whether the engine has said anything about this choice.
    pub(crate) fn has_begun(&self) -> bool {
        self.generated > 0 || self.finish.is_some()
    }

    /// The worker's stream ended normally. A choice that has no reason to be finished is not passed off as whole.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        if self.finish.is_some() {
            return Ok(());
        }
        if self.max_tokens.is_some_and(|max| self.generated >= max) {
            self.complete(Finish::Length);
            return Ok(());
        }
        Err(Failure::no_finish())
    }

    /// Gives everything new, in order, and forgets it; the buffers stay. `give` takes the log probabilities it shows.
    pub(crate) fn take_pieces(&mut self, mut give: impl FnMut(Piece<'_>, &mut Vec<TokenLogprob>)) {
        let mut none = Vec::new();
        let logprobs = self.logprobs.as_mut().map_or(&mut none, Logprobs::ready);
        if !self.text.is_empty() {
            give(Piece::Content(&self.text), logprobs);
            self.text.clear();
        }
        for delta in self.deltas.drain(..) {
            match &delta {
                Delta::Content(text) => give(Piece::Content(text), logprobs),
                Delta::Reasoning(text) => give(Piece::Reasoning(text), logprobs),
                Delta::ToolStart { index, name, id } => {
                    let made;
                    let id = match id {
                        Some(id) => id,
                        None => {
                            made = format!("call-{}", uuid::Uuid::new_v4());
                            &made
                        }
                    };
                    give(Piece::ToolStart { index: *index, id, name }, logprobs);
                }
                Delta::ToolArguments { index, fragment } => {
                    give(Piece::ToolArguments { index: *index, fragment }, logprobs);
                }
                Delta::ToolEnd { .. } => {}
            }
        }
    }

    /// Gives the end, if there is one and it has not been given.
    pub(crate) fn take_end(&mut self, give: impl FnOnce(End<'_>)) {
        if let Some(finish) = self.finish()
            && !std::mem::replace(&mut self.end_taken, true)
        {
            let mut none = Vec::new();
            let logprobs = self.logprobs.as_mut().map_or(&mut none, Logprobs::ready);
            let engine_data = self.engine_data.as_deref();
            give(End { finish, stop: self.stops.matched(), engine_data, logprobs });
        }
    }

    /// Time spent on turning tokens into text.
    pub(crate) fn decoding(&self) -> Duration {
        self.decoding
    }

    /// Why the choice ended; a stop after tool calls is their doing.
    pub(crate) fn finish(&self) -> Option<Finish> {
        match (self.finish, &self.parser) {
            (Some(Finish::Stop), Some(parser)) if parser.calls() > 0 => Some(Finish::ToolCalls),
            (finish, _) => finish,
        }
    }

    /// Keeps what an item tells about the engine, to be given with the end: the last word counts.
    pub(crate) fn keep_engine_data(&mut self, output: &EngineOutput) {
        if output.engine_data.is_some() {
            self.engine_data.clone_from(&output.engine_data);
        }
    }

    /// What the engine told about itself, as far as it was kept.
    pub(crate) fn engine_data(&self) -> Option<&serde_json::Value> {
        self.engine_data.as_deref()
    }

    /// The stop string that ended it.
    pub(crate) fn stop_string(&self) -> Option<&str> {
        self.stops.matched()
    }

    /// A stop condition of ours was met while the engine still generates: it must be told.
    pub(crate) fn engine_must_stop(&self) -> bool {
        self.finish.is_some() && !self.engine_finished
    }

    fn tokens(&mut self, output: &EngineOutput, usage: &mut Usage) {
        for (at, &id) in output.token_ids.iter().enumerate() {
            let before = self.generated;
            self.generated = before.saturating_add(1);
            let stop = self.stop_ids.check(id, before);
            let mut ended = stop.is_some();
            if stop != Some(StopKind::Hidden) {
                self.decode.push(id, &mut self.piece);
                if let Some(logprobs) = &mut self.logprobs {
                    logprobs.token(output, at, self.piece.len());
                }
                ended |= self.pass_piece(before);
            }
            if ended {
                return self.complete(Finish::Stop);
            }
            self.parse(usage);
        }
    }

    /// Moves decoded text on, through the stop strings when there are any; tells whether one was found. `before`
    /// tokens were generated before.
    fn pass_piece(&mut self, before: u32) -> bool {
        let shown = self.text.len();
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
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.passed(self.text.len() - shown);
        }
        found
    }

    /// Hands the text of a token to the parser, and counts the token as reasoning if it stands there.
    fn parse(&mut self, usage: &mut Usage) {
        let Some(parser) = &mut self.parser else { return };
        parser.push(&self.text, &mut self.deltas);
        self.text.clear();
        if let Some(count) = &mut usage.reasoning_tokens
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
        let stopped = self.pass_piece(self.generated);
        self.stops.finish(&mut self.text);
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.finish(self.stops.matched().is_some());
        }
        let finish = if stopped { Finish::Stop } else { finish };
        self.finish = Some(finish);
        if let Some(parser) = &mut self.parser {
            parser.push(&self.text, &mut self.deltas);
            self.text.clear();
            parser.finish(finish == Finish::Length, &mut self.deltas);
        }
    }
}
