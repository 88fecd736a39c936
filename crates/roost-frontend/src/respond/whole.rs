//! A whole answer in the form of the API it was asked by.

use bytes::BytesMut;
use roost_openai::{
    Answer, AnswerChoice, AnswerWriter, Finish, Flavor, MessageAnswer, Piece, ResponseAnswer, TokenLogprob,
    ToolCall, Usage,
};

use super::choice::End;
use crate::reply;

/// Collects one answer.
#[derive(Debug)]
pub(crate) enum WholeAnswer {
    /// Choices of a chat or text completion.
    Choices(Flavor, Vec<WholeChoice>),
    Message(MessageAnswer),
    Response(ResponseAnswer),
}

/// A whole choice.
#[derive(Debug, Default)]
pub(crate) struct WholeChoice {
    content: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    logprobs: Vec<TokenLogprob>,
    finish: Option<Finish>,
}

/// What the body of an answer says besides the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope<'a> {
    /// Id with its prefix.
    pub(crate) id: &'a str,
    pub(crate) model: &'a str,
    /// Unix seconds.
    pub(crate) created: u64,
    pub(crate) reasoning_field: &'static str,
    pub(crate) usage: &'a Usage,
    pub(crate) nvext: Option<&'a str>,
}

impl WholeAnswer {
    /// Takes a piece of a choice. Only completions have several choices.
    pub(crate) fn piece(&mut self, index: u32, piece: Piece<'_>, logprobs: &mut Vec<TokenLogprob>) {
        match self {
            WholeAnswer::Choices(_, choices) => choices[index as usize].add(piece, logprobs),
            WholeAnswer::Message(answer) => answer.piece(piece),
            WholeAnswer::Response(answer) => answer.piece(piece),
        }
    }

    /// Takes the end of a choice.
    pub(crate) fn finish(&mut self, index: u32, end: End<'_>) {
        match self {
            WholeAnswer::Choices(_, choices) => {
                let choice = &mut choices[index as usize];
                choice.logprobs.append(end.logprobs);
                choice.finish = Some(end.finish);
            }
            WholeAnswer::Message(answer) => answer.finish(end.finish, end.stop),
            WholeAnswer::Response(answer) => answer.finish(end.finish),
        }
    }

    /// Leaves out choices that were never given.
    pub(crate) fn truncate(&mut self, given: usize) {
        if let WholeAnswer::Choices(_, choices) = self {
            choices.truncate(given);
        }
    }

    /// Writes the body.
    pub(crate) fn write(&self, envelope: &Envelope<'_>) -> BytesMut {
        let Envelope { id, model, created, reasoning_field, usage, nvext } = *envelope;
        let mut out = BytesMut::with_capacity(1024);
        match self {
            WholeAnswer::Choices(flavor, choices) => {
                out.reserve(
                    choices.iter().map(|choice| choice.content.len() + choice.reasoning.len() + 512).sum(),
                );
                let shown: Vec<AnswerChoice<'_>> = choices.iter().map(WholeChoice::shown).collect();
                let answer = Answer { choices: &shown, reasoning_field, usage: *usage, nvext };
                AnswerWriter { flavor: *flavor, id, model, created }.write(&mut out, &answer);
            }
            WholeAnswer::Message(answer) => answer.write(&mut out, id, model, usage),
            WholeAnswer::Response(answer) => answer.write(&mut out, (created, reply::unix_now()), usage),
        }
        out
    }
}

impl WholeChoice {
    fn add(&mut self, piece: Piece<'_>, logprobs: &mut Vec<TokenLogprob>) {
        self.logprobs.append(logprobs);
        match piece {
            Piece::Content(text) => self.content.push_str(text),
            Piece::Reasoning(text) => self.reasoning.push_str(text),
            Piece::ToolStart { id, name, .. } => {
                self.calls.push(ToolCall {
                    id: id.to_owned(),
                    name: name.to_owned(),
                    arguments: String::new(),
                });
            }
            Piece::ToolArguments { fragment, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(fragment);
                }
            }
        }
    }

    fn shown(&self) -> AnswerChoice<'_> {
        AnswerChoice {
            text: &self.content,
            reasoning: &self.reasoning,
            tool_calls: &self.calls,
            finish: self.finish.unwrap_or(Finish::Stop),
            logprobs: &self.logprobs,
        }
    }
}
