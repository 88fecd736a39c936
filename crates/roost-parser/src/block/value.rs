//! One parameter value written as text.

use crate::delta::Sink;
use crate::json::{JsonScan, Step, escape};
use crate::schema::Types;

/// A value that may turn out to be no JSON is held back up to this many bytes, longer ones are passed on as they come.
const WINDOW: usize = 1024;

/// Longest Python spelling of a scalar (`False`); text that is no JSON is held back at least this long.
const LONGEST_WORD: usize = 5;

/// Turns the text of one value into JSON while it arrives.
#[derive(Debug)]
pub(crate) struct Value {
    state: State,
    types: Types,
    scan: JsonScan,
    is_json: bool,
    held: String,
    /// Bytes of white space that `held` begins with.
    lead: usize,
    escaped: String,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// A JSON string is being written.
    Text,
    /// The kind of the value is open.
    Held,
    /// A list or an object, long enough to be believed, is passed on.
    Raw,
}

impl Value {
    /// Begins a value: writes the opening quote when it can only be text.
    pub(crate) fn new(types: Types, sink: &mut Sink) -> Self {
        let text = types.only_string();
        if text {
            sink.arguments("\"");
        }
        Value {
            state: if text { State::Text } else { State::Held },
            types,
            scan: JsonScan::new(),
            is_json: true,
            held: String::new(),
            lead: 0,
            escaped: String::new(),
        }
    }

    pub(crate) fn push(&mut self, text: &str, sink: &mut Sink) {
        match self.state {
            State::Text => self.write(text, sink),
            State::Raw => sink.arguments(text),
            State::Held => self.hold(text, sink),
        }
    }

    /// The value is complete.
    pub(crate) fn finish(&mut self, sink: &mut Sink) {
        match self.state {
            State::Raw => {}
            State::Text => sink.arguments("\""),
            State::Held => {
                let is_json = self.is_json && self.scan.complete();
                if let Some(json) = self.types.coerce(&self.held, is_json) {
                    sink.arguments(&json);
                } else {
                    self.become_text(sink);
                    sink.arguments("\"");
                }
            }
        }
    }

    /// The answer ends inside the value: what was held back goes out, no end is made up.
    pub(crate) fn cut(&mut self, sink: &mut Sink) {
        if self.state == State::Held {
            if self.is_json {
                sink.arguments(&self.held);
            } else {
                self.become_text(sink);
            }
        }
    }

    fn hold(&mut self, text: &str, sink: &mut Sink) {
        for (at, c) in text.char_indices() {
            if c.is_whitespace() && self.lead == self.held.len() {
                self.lead += c.len_utf8();
            }
            self.held.push(c);
            self.is_json &= !matches!(self.scan.step(c), Step::Invalid | Step::Escape);
            let rest = &text[at + c.len_utf8()..];
            if !self.is_json && self.held.len() - self.lead > LONGEST_WORD {
                self.become_text(sink);
                return self.write(rest, sink);
            }
            if self.is_json
                && self.held.len() > WINDOW
                && self.held[self.lead..].starts_with(|c| self.types.may_open(c))
            {
                self.state = State::Raw;
                sink.arguments(&self.held[self.lead..]);
                return sink.arguments(rest);
            }
        }
    }

    fn become_text(&mut self, sink: &mut Sink) {
        self.state = State::Text;
        sink.arguments("\"");
        let held = std::mem::take(&mut self.held);
        self.write(&held, sink);
    }

    fn write(&mut self, text: &str, sink: &mut Sink) {
        self.escaped.clear();
        escape(text, &mut self.escaped);
        sink.arguments(&self.escaped);
    }
}
