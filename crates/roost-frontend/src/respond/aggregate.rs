//! A unary answer: the same items, folded.

use std::future::poll_fn;

use roost_openai::{Finish, Piece, TokenLogprob, ToolCall};

use super::choices::Choices;
use crate::dispatch::Active;
use crate::failure::Failure;
use crate::finish::Finisher;

/// A whole choice.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) finish: Option<Finish>,
}

impl Whole {
    fn add(&mut self, piece: Piece<'_>) {
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
}

/// Folds a worker's stream.
pub(crate) async fn collect(
    mut active: Active,
    choices: &mut Choices,
    finisher: &mut Finisher,
) -> Result<Vec<Whole>, Failure> {
    finisher.answered(&active);
    let mut wholes: Vec<Whole> = (0..choices.len()).map(|_| Whole::default()).collect();
    let result = fold(&mut active, choices, finisher, &mut wholes).await;
    take(choices, &mut wholes);
    wholes.truncate(choices.len());
    choices.take_ends(|index, finish, logprobs, _| {
        let whole = &mut wholes[index as usize];
        whole.logprobs.append(logprobs);
        whole.finish = Some(finish);
    });
    match &result {
        Ok(()) => active.succeeded(),
        Err(failure) => active.failed(failure),
    }
    result.map(|()| wholes)
}

fn take(choices: &mut Choices, wholes: &mut [Whole]) {
    choices.take_pieces(|index, piece, logprobs, _| {
        let whole = &mut wholes[index as usize];
        whole.add(piece);
        whole.logprobs.append(logprobs);
    });
}

async fn fold(
    active: &mut Active,
    choices: &mut Choices,
    finisher: &mut Finisher,
    wholes: &mut [Whole],
) -> Result<(), Failure> {
    let mut next = active.take_first();
    loop {
        if let Some(output) = next.take() {
            let tokens = choices.push(&output)?;
            finisher.tokens(tokens, choices, active);
            take(choices, wholes);
            if choices.engine_must_stop() {
                return Ok(());
            }
        }
        let item = poll_fn(|cx| active.poll_next(cx));
        let item = match choices.is_finished() {
            false => item.await,
            // Only the end mark is missing, and perhaps usage: not worth a long wait.
            true => match tokio::time::timeout(super::END_WAIT, item).await {
                Ok(item) => item,
                Err(_) => return Ok(()),
            },
        };
        match item {
            None => return choices.end(),
            Some(Ok(output)) => next = Some(output),
            // The answer is whole: what went wrong afterwards costs at most the worker's usage numbers.
            Some(Err(_)) if choices.is_finished() => return Ok(()),
            Some(Err(failure)) => return Err(failure),
        }
    }
}
