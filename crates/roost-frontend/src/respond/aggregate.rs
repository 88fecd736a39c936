//! A unary answer: the same items, folded.

use std::future::poll_fn;

use super::choices::Choices;
use super::whole::WholeAnswer;
use crate::dispatch::{Answers, Item};
use crate::failure::Failure;
use crate::finish::Finisher;

/// Folds the workers' streams into `answer`.
pub(crate) async fn collect(
    mut answers: Answers,
    choices: &mut Choices,
    finisher: &mut Finisher,
    answer: &mut WholeAnswer,
) -> Result<(), Failure> {
    finisher.answered(&answers);
    let result = fold(&mut answers, choices, finisher, answer).await;
    take(choices, answer);
    answer.truncate(choices.len());
    choices.take_ends(|index, end, _| answer.finish(index, end));
    match &result {
        Ok(()) => answers.succeeded(),
        Err(failure) => answers.failed(failure),
    }
    result
}

fn take(choices: &mut Choices, answer: &mut WholeAnswer) {
    choices.take_pieces(|index, piece, logprobs, _| answer.piece(index, piece, logprobs));
}

async fn fold(
    answers: &mut Answers,
    choices: &mut Choices,
    finisher: &mut Finisher,
    answer: &mut WholeAnswer,
) -> Result<(), Failure> {
    let mut next = answers.take_first();
    loop {
        match next.take() {
            None => {}
            Some(Item { prompt, output: Some(output) }) => {
                let tokens = choices.push(prompt, &output)?;
                finisher.tokens(tokens, choices, answers);
                take(choices, answer);
                if choices.engine_must_stop(prompt) {
                    answers.end(prompt);
                }
            }
            Some(Item { prompt, output: None }) => {
                choices.end(prompt)?;
                answers.end(prompt);
            }
        }
        let item = poll_fn(|cx| answers.poll_next(cx));
        let item = match choices.is_finished() {
            false => item.await,
            // Only the end mark is missing, and perhaps usage: not worth a long wait.
            true => match tokio::time::timeout(super::END_WAIT, item).await {
                Ok(item) => item,
                Err(_) => return Ok(()),
            },
        };
        match item {
            None => return Ok(()),
            Some(Ok(item)) => next = Some(item),
            Some(Err(failure)) if choices.is_finished() && failure.impatience => return Ok(()),
            Some(Err(failure)) => return Err(failure),
        }
    }
}
