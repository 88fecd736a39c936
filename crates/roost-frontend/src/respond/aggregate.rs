//! A unary answer: the same items, folded.

use std::future::poll_fn;
use std::time::Duration;

use roost_openai::{Piece, ToolCall};

use super::choice::Choice;
use crate::dispatch::Active;
use crate::failure::Failure;
use crate::finish::Finisher;

/// A whole answer.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
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

/// Folds a worker's stream. `silence` bounds the pause between two items.
pub(crate) async fn collect(
    mut active: Active,
    choice: &mut Choice,
    finisher: &mut Finisher,
    silence: Option<Duration>,
) -> Result<Whole, Failure> {
    finisher.answered(&active);
    let mut whole = Whole::default();
    let result = fold(&mut active, choice, finisher, silence, &mut whole).await;
    choice.take_pieces(|piece, _| whole.add(piece));
    match &result {
        Ok(()) => active.succeeded(),
        Err(failure) => active.failed(failure),
    }
    result.map(|()| whole)
}

async fn fold(
    active: &mut Active,
    choice: &mut Choice,
    finisher: &mut Finisher,
    silence: Option<Duration>,
    whole: &mut Whole,
) -> Result<(), Failure> {
    let mut next = active.take_first();
    loop {
        if let Some(output) = next.take() {
            let tokens = choice.push(&output)?;
            finisher.tokens(tokens, choice, active);
            choice.take_pieces(|piece, _| whole.add(piece));
            if choice.engine_must_stop() {
                return Ok(());
            }
        }
        let limit = super::patience(choice.finish().is_some(), silence);
        let item = match limit {
            None => poll_fn(|cx| active.poll_next(cx)).await,
            Some(limit) => match tokio::time::timeout(limit, poll_fn(|cx| active.poll_next(cx))).await {
                Ok(item) => item,
                Err(_) if choice.finish().is_some() => return Ok(()),
                Err(_) => return Err(Failure::silence()),
            },
        };
        match item {
            None => return choice.end(),
            Some(Ok(output)) => next = Some(output),
            // The answer is whole: what went wrong afterwards costs at most the worker's usage numbers.
            Some(Err(_)) if choice.finish().is_some() => return Ok(()),
            Some(Err(failure)) => return Err(failure),
        }
    }
}
