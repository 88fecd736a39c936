//! A streamed answer: engine items in, server-sent events out, polled by the connection itself.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use super::choices::Choices;
use super::events::EventWriter;
use crate::dispatch::{Answers, Dispatching, Item};
use crate::failure::Failure;
use crate::finish::Finisher;

/// Room for a usual event.
const EVENT_BYTES: usize = 1024;

/// What has come together goes out together, up to so many bytes: the server below takes 16 such pieces before it looks
/// whether the client takes any.
const BURST_BYTES: usize = 2 * 1024;

/// The body of a streamed answer.
///
/// It owns everything of the request: dropping it (the client went away) stops the worker, releases the booking
/// and ends the metrics.
pub(crate) struct AnswerBody {
    state: State,
    choices: Choices,
    writer: EventWriter,
    finisher: Finisher,
    /// A sign of life goes out after this much silence.
    keep_alive: Option<Duration>,
    out: BytesMut,
    /// Every choice has its reason. The last are shown when the worker's stream has ended as it should.
    finished: bool,
    /// Last sign of the worker.
    heard: Instant,
    /// Last bytes to the client.
    spoke: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

enum State {
    Dispatching(Dispatching),
    Streaming(Box<Answers>),
    Done,
}

impl AnswerBody {
    /// A body that still waits for the first item.
    pub(crate) fn waiting(
        dispatching: Dispatching,
        choices: Choices,
        writer: EventWriter,
        finisher: Finisher,
        keep_alive: Option<Duration>,
    ) -> Self {
        Self::new(State::Dispatching(dispatching), choices, writer, finisher, keep_alive)
    }

    /// A body whose worker has answered.
    pub(crate) fn started(
        answers: Answers,
        choices: Choices,
        writer: EventWriter,
        finisher: Finisher,
        keep_alive: Option<Duration>,
    ) -> Self {
        let mut body = Self::new(State::Done, choices, writer, finisher, keep_alive);
        body.begin(answers);
        body
    }

    fn new(
        state: State,
        choices: Choices,
        writer: EventWriter,
        finisher: Finisher,
        keep_alive: Option<Duration>,
    ) -> Self {
        let now = Instant::now();
        AnswerBody {
            state,
            choices,
            writer,
            finisher,
            keep_alive,
            out: BytesMut::with_capacity(EVENT_BYTES),
            finished: false,
            heard: now,
            spoke: now,
            timer: None,
        }
    }

    fn begin(&mut self, mut answers: Answers) {
        self.finisher.answered(&answers);
        self.finisher.extras().write_annotations(&mut self.out);
        if self.finisher.extras().wants_engine_data() {
            self.choices.keep_engine_data();
        }
        if self.finisher.extras().wants_ids() {
            self.choices.keep_ids();
        } else {
            // The same on every chunk but the last of each choice.
            self.writer.set_nvext(self.finisher.nvext(&[]));
        }
        self.writer.begin(&mut self.out, self.choices.usage());
        let first = answers.take_first();
        self.state = State::Streaming(Box::new(answers));
        if let Some(first) = first {
            self.item(&first);
        }
    }

    fn item(&mut self, item: &Item) {
        self.heard = Instant::now();
        let State::Streaming(answers) = &mut self.state else { return };
        let result = match &item.output {
            Some(output) => self.choices.push(item.prompt, output).map(|tokens| {
                self.finisher.tokens(tokens, &self.choices, answers);
                self.choices.engine_must_stop(item.prompt)
            }),
            None => self.choices.end(item.prompt).map(|()| true),
        };
        if let Ok(true) = result {
            answers.end(item.prompt);
        }
        let is_over = answers.is_over();
        match result {
            Err(failure) => self.fail(failure),
            Ok(_) => {
                self.write_progress();
                if is_over {
                    self.complete();
                }
            }
        }
    }

    /// What waits to go out.
    fn give(&mut self) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.spoke = Instant::now();
        Poll::Ready(Some(Ok(Frame::data(self.out.split().freeze()))))
    }

    /// Whether there is more that can go out with what waits to.
    fn has_more(&self) -> bool {
        match &self.state {
            State::Streaming(answers) => self.out.len() < BURST_BYTES && answers.has_received(),
            State::Dispatching(_) | State::Done => false,
        }
    }

    fn write_progress(&mut self) {
        let (writer, out, finisher) = (&mut self.writer, &mut self.out, &self.finisher);
        let wants_ids = finisher.extras().wants_ids();
        let mut ids = self.choices.take_ids();
        self.choices.take_pieces(|index, piece, logprobs, usage| {
            if wants_ids {
                writer.set_nvext(finisher.nvext(&ids));
                ids.clear();
            }
            writer.piece(out, index, piece, logprobs, usage);
            logprobs.clear();
        });
        self.choices.return_ids(ids);
        self.finished = self.choices.is_finished();
        if !self.finished {
            self.write_ends();
        }
    }

    fn write_ends(&mut self) {
        let (writer, out, finisher) = (&mut self.writer, &mut self.out, &self.finisher);
        let has_nvext = !finisher.extras().is_empty();
        let others_go_on = !self.finished;
        let mut ids = self.choices.take_ids();
        self.choices.take_ends(|index, end, usage| {
            if has_nvext {
                writer.set_nvext(finisher.last_nvext(&ids, end.finish, end.stop, end.engine_data));
                ids.clear();
            }
            writer.finish(out, index, &end, usage);
            if has_nvext && others_go_on {
                writer.set_nvext(finisher.nvext(&[]));
            }
            end.logprobs.clear();
        });
        self.choices.return_ids(ids);
    }

    fn complete(&mut self) {
        self.write_ends();
        self.writer.end(&mut self.out, self.choices.usage());
        self.finisher.succeed(&self.choices);
        if let State::Streaming(answers) = std::mem::replace(&mut self.state, State::Done) {
            answers.succeeded();
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.finished && failure.impatience {
            self.complete();
            return;
        }
        if let State::Streaming(answers) = std::mem::replace(&mut self.state, State::Done) {
            answers.failed(&failure);
        }
        let error = self.finisher.fail(&failure);
        self.writer.error(&mut self.out, &error);
    }

    /// Sleeps until the next thing that time alone decides; re-armed only when it fires.
    fn poll_timer(&mut self, cx: &mut Context<'_>) {
        loop {
            let now = Instant::now();
            // Only the end mark is missing, and perhaps usage: not worth a long wait.
            let silent_at = self.finished.then(|| self.heard + super::END_WAIT);
            let quiet_at = self.keep_alive.map(|limit| self.spoke + limit);
            if silent_at.is_some_and(|at| at <= now) && matches!(self.state, State::Streaming(_)) {
                self.complete();
                return;
            }
            if quiet_at.is_some_and(|at| at <= now) {
                self.writer.keep_alive(&mut self.out, self.choices.usage());
                return;
            }
            let Some(next) = silent_at.into_iter().chain(quiet_at).filter(|at| *at > now).min() else {
                return;
            };
            let timer = match &mut self.timer {
                Some(timer) => {
                    // An armed timer that fires early is cheaper than one moved on every item.
                    if timer.is_elapsed() || timer.deadline() > next {
                        timer.as_mut().reset(next);
                    }
                    timer
                }
                None => self.timer.insert(Box::pin(tokio::time::sleep_until(next))),
            };
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
        }
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        loop {
            if !this.out.is_empty() && !this.has_more() {
                return this.give();
            }
            let progress = match &mut this.state {
                State::Done => return Poll::Ready(None),
                State::Dispatching(dispatching) => match dispatching.as_mut().poll(cx) {
                    Poll::Pending => false,
                    Poll::Ready(Ok(answers)) => {
                        this.begin(answers);
                        true
                    }
                    Poll::Ready(Err(failure)) => {
                        this.fail(failure);
                        true
                    }
                },
                State::Streaming(answers) => match answers.poll_next(cx) {
                    Poll::Pending => false,
                    Poll::Ready(Some(Ok(item))) => {
                        this.item(&item);
                        true
                    }
                    Poll::Ready(Some(Err(failure))) => {
                        this.fail(failure);
                        true
                    }
                    Poll::Ready(None) => {
                        this.complete();
                        true
                    }
                },
            };
            if !progress {
                if !this.out.is_empty() {
                    return this.give();
                }
                this.poll_timer(cx);
                if this.out.is_empty() {
                    return Poll::Pending;
                }
            }
        }
    }
}

impl std::fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerBody").field("choices", &self.choices).finish_non_exhaustive()
    }
}
