//! The answer of constrained decoding for one function: its arguments and nothing else.

use super::Flow;
use crate::args::{Arguments, Progress};
use crate::delta::Sink;

/// A call whose name the request gave.
#[derive(Debug)]
pub(crate) struct NamedCall {
    name: String,
    arguments: Arguments,
    /// Text so far, until the call is announced.
    raw: String,
    started: bool,
}

impl NamedCall {
    pub(crate) fn new(name: &str, lead: String) -> Self {
        NamedCall { name: name.to_owned(), arguments: Arguments::new(), raw: lead, started: false }
    }

    pub(crate) fn step(&mut self, c: char, sink: &mut Sink) -> Flow {
        if !self.started {
            self.raw.push(c);
        }
        let progress = self.arguments.step(c);
        match progress {
            Progress::Undecided => return Flow::More,
            Progress::Refused | Progress::Broken if !self.started => {
                return Flow::Fail(std::mem::take(&mut self.raw));
            }
            _ => {}
        }
        if !self.started {
            sink.start(&self.name, None);
            self.started = true;
            self.raw.clear();
        }
        self.arguments.flush(sink);
        if progress == Progress::Done {
            sink.end();
            return Flow::Close;
        }
        Flow::More
    }

    pub(crate) fn finish(&mut self) -> Option<String> {
        (!self.started).then(|| std::mem::take(&mut self.raw))
    }
}
