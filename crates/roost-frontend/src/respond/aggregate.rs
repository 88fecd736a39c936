//! A unary answer: the same items, folded.

use std::future::poll_fn;

use super::choices::Choices;
use super::whole::WholeAnswer;
use crate::dispatch::Active;
use crate::failure::Failure;
use crate::finish::Finisher;

/// Folds a worker's stream into `answer`.
pub(crate) async fn collect(
    mut active: Active,
    choices: &mut Choices,
    finisher: &mut Finisher,
    answer: &mut WholeAnswer,
) -> Result<(), Failure> {
    finisher.answered(&active);
    let result = fold(&mut active, choices, finisher, answer).await;
    take(choices, answer);
    answer.truncate(choices.len());
    choices.take_ends(|index, end, _| answer.finish(index, end));
    match &result {
        Ok(()) => active.succeeded(),
        Err(failure) => active.failed(failure),
    }
    result
}

fn take(choices: &mut Choices, answer: &mut WholeAnswer) {
    choices.take_pieces(|index, piece, logprobs, _| answer.piece(index, piece, logprobs));
}

async fn fold(
    active: &mut Active,
    choices: &mut Choices,
    finisher: &mut Finisher,
    answer: &mut WholeAnswer,
) -> Result<(), Failure> {
    let mut next = active.take_first();
    loop {
        if let Some(output) = next.take() {
            let tokens = choices.push(&output)?;
            finisher.tokens(tokens, choices, active);
            take(choices, answer);
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
