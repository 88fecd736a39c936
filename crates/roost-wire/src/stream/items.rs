use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{self, Sleep};

use super::StreamError;
use crate::{
    Codec,
    line::{Line, LineError},
    message::{ControlSignal, Envelope},
};

/// How long a worker that has completed an answer may take to say that nothing follows or to close.
const END_GRACE: Duration = Duration::from_secs(1);

/// The rules by which frames after the prologue become items and an end.
#[derive(Debug)]
pub(super) struct Items {
    /// Gone once the answer has ended.
    line: Option<Line>,
    codec: Codec,
    /// Running once the answer is complete.
    grace: Option<Pin<Box<Sleep>>>,
}

/// What one frame amounts to.
enum Step<T> {
    Item(T),
    /// The answer is complete; the sentinel should follow.
    Complete,
    End,
}

impl Items {
    pub(super) fn new(line: Line, codec: Codec) -> Self {
        Self { line: Some(line), codec, grace: None }
    }

    /// Yields the next item as decoded by `decode`.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        decode: impl Fn(Codec, &[u8]) -> Result<T, StreamError>,
    ) -> Poll<Option<Result<T, StreamError>>> {
        loop {
            let Some(line) = &mut self.line else { return Poll::Ready(None) };
            let frame = match line.poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    let Some(grace) = &mut self.grace else { return Poll::Pending };
                    ready!(grace.as_mut().poll(cx));
                    self.end();
                    return Poll::Ready(None);
                }
            };
            let step = match frame {
                Ok(len) => self.take(len, &decode),
                Err(error) => self.broken(error),
            };
            if let Some(outcome) = self.advance(step) {
                return Poll::Ready(outcome);
            }
        }
    }

    /// Yields the next item if its frame has been read already.
    pub(super) fn next_received<T>(
        &mut self,
        decode: impl Fn(Codec, &[u8]) -> Result<T, StreamError>,
    ) -> Option<Result<T, StreamError>> {
        loop {
            let step = match self.line.as_ref()?.buffered() {
                Ok(len) => self.take(len?, &decode),
                Err(error) => self.broken(error),
            };
            if let Some(outcome) = self.advance(step) {
                return outcome;
            }
        }
    }

    pub(super) fn has_received(&self) -> bool {
        self.line.as_ref().is_some_and(|line| matches!(line.buffered(), Ok(Some(_)) | Err(_)))
    }

    pub(super) fn signal(&mut self, signal: ControlSignal) {
        if let Some(line) = &mut self.line {
            line.signal(signal);
        }
    }

    /// Moves to the state after a step; `None` when there is nothing to yield yet.
    fn advance<T>(&mut self, step: Result<Step<T>, StreamError>) -> Option<Option<Result<T, StreamError>>> {
        match step {
            Ok(Step::Item(item)) => Some(Some(Ok(item))),
            Ok(Step::Complete) => {
                self.grace = Some(Box::pin(time::sleep(END_GRACE)));
                None
            }
            Ok(Step::End) => {
                self.end();
                Some(None)
            }
            Err(error) => {
                // Dropping the line tells the worker, in case it is still at it.
                self.line = None;
                Some(Some(Err(error)))
            }
        }
    }

    /// Takes the frame at the front, which has this length.
    fn take<T>(
        &mut self,
        len: usize,
        decode: impl Fn(Codec, &[u8]) -> Result<T, StreamError>,
    ) -> Result<Step<T>, StreamError> {
        let complete = self.grace.is_some();
        let line = self.line.as_mut().expect("a frame was just read from it");
        let frame = line.frame(len);
        let step = if !frame.header.is_empty() {
            control(frame.header, complete)
        } else if complete {
            Err(StreamError::AfterEnd)
        } else {
            data(self.codec, frame.body, decode)
        };
        line.consume(len);
        step
    }

    fn broken<T>(&self, error: LineError) -> Result<Step<T>, StreamError> {
        match error {
            LineError::Frame(error) => Err(StreamError::Frame(error)),
            // After completion a close is as good as a sentinel, in whatever way it comes.
            _ if self.grace.is_some() => Ok(Step::End),
            LineError::Closed => Err(StreamError::Incomplete),
            LineError::Broken(error) => Err(StreamError::Broken(error)),
        }
    }

    fn end(&mut self) {
        if let Some(mut line) = self.line.take() {
            line.finish();
        }
    }
}

fn control<T>(header: &[u8], complete: bool) -> Result<Step<T>, StreamError> {
    match serde_json::from_slice(header) {
        Ok(ControlSignal::Sentinel) if complete => Ok(Step::End),
        Ok(ControlSignal::Sentinel) => Err(StreamError::Incomplete),
        Ok(ControlSignal::Stop) => Err(StreamError::Killed("stop".to_owned())),
        Ok(ControlSignal::Kill) => Err(StreamError::Killed("kill".to_owned())),
        Err(_) => {
            let shown = &header[..header.len().min(64)];
            Err(StreamError::Killed(String::from_utf8_lossy(shown).into_owned()))
        }
    }
}

fn data<T>(
    codec: Codec,
    body: &[u8],
    decode: impl Fn(Codec, &[u8]) -> Result<T, StreamError>,
) -> Result<Step<T>, StreamError> {
    let envelope = Envelope::decode(codec, body).map_err(StreamError::Undecodable)?;
    match envelope {
        Envelope { complete_final: true, .. } => Ok(Step::Complete),
        Envelope { data: Some(item), .. } => decode(codec, item).map(Step::Item),
        Envelope { data: None, .. } => Err(StreamError::Protocol("neither item nor end in a data frame")),
    }
}
