//! Arguments that the model writes as JSON.

use crate::delta::Sink;
use crate::json::{JsonScan, Step, escape};

/// Passes a JSON object on while it is being written.
///
/// The first two significant characters are held back: text that does not begin like an object (`{"` or `{}`) is
/// refused before a call has been announced. What turns out to be broken later is passed on as it is.
#[derive(Debug)]
pub(crate) struct Arguments {
    scan: JsonScan,
    state: State,
    /// Characters that wait: the beginning, or everything while the name is unknown.
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Lead,
    Live,
    Broken,
    Done,
}

/// Where the arguments stand after a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It may still turn out to be no object.
    Undecided,
    /// An object is being written.
    Live,
    /// The object is complete.
    Done,
    /// It began like an object and is no JSON any more.
    Broken,
    /// It is no object.
    Refused,
}

impl Arguments {
    pub(crate) fn new() -> Self {
        Arguments { scan: JsonScan::new(), state: State::Lead, held: String::new() }
    }

    /// Takes one character; it waits in here until [`Arguments::flush`].
    pub(crate) fn step(&mut self, c: char) -> Progress {
        if self.state == State::Lead && self.held.is_empty() && c.is_whitespace() {
            return Progress::Undecided;
        }
        if self.state == State::Broken {
            self.held.push(c);
            return Progress::Broken;
        }
        let step = self.scan.step(c);
        if step == Step::Escape {
            escape(c.encode_utf8(&mut [0; 4]), &mut self.held);
        } else {
            self.held.push(c);
        }
        match (self.state, step) {
            (_, Step::Done) if self.held.starts_with('{') || self.state == State::Live => {
                self.state = State::Done;
                Progress::Done
            }
            (State::Lead, Step::Invalid | Step::Done) => Progress::Refused,
            (State::Lead, _) if self.held.len() == 1 => {
                if c == '{' {
                    Progress::Undecided
                } else {
                    Progress::Refused
                }
            }
            (State::Lead, _) if c.is_whitespace() => Progress::Undecided,
            (_, Step::Invalid) => {
                self.state = State::Broken;
                Progress::Broken
            }
            _ => {
                self.state = State::Live;
                Progress::Live
            }
        }
    }

    /// Emits what waits.
    pub(crate) fn flush(&mut self, sink: &mut Sink) {
        sink.arguments(&self.held);
        self.held.clear();
    }

    /// Whether nothing but white space has been seen.
    pub(crate) fn is_blank(&self) -> bool {
        self.state == State::Lead && self.held.is_empty()
    }
}
