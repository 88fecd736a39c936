//! Calls written as special tokens around a name and a JSON object.

use super::{Flow, is_name};
use crate::args::{Arguments, Progress};
use crate::delta::Sink;
use crate::scan::Scanner;

/// The tokens of one syntax.
#[derive(Debug)]
pub(crate) struct HeaderTags {
    /// What may come between calls: first the text that begins one, with its header behind it, then those that end the
    /// block.
    pub(crate) between: &'static [&'static str],
    /// Ends the header.
    pub(crate) separator: &'static str,
    /// Between a header that is no name and the arguments: the name stands before this text.
    pub(crate) name_end: Option<&'static str>,
    pub(crate) call_close: &'static str,
    /// The header is an identifier `functions.NAME:N`, which the model expects to see again.
    pub(crate) identifier: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between calls.
    Block,
    Header,
    /// The name behind a header.
    Name,
    /// Looking at the arguments; nothing has been announced.
    Lead,
    /// Behind the name without arguments: only the end of the call may follow.
    Bare,
    Live,
    /// Arguments that are no JSON any more end at the token only.
    Broken,
    /// Behind the arguments.
    Tail,
}

/// A block of such calls.
#[derive(Debug)]
pub(crate) struct HeaderCalls {
    tags: &'static HeaderTags,
    state: State,
    scan: Scanner,
    buf: String,
    /// Text since the last whole call, to be given back when it is none.
    raw: String,
    name: String,
    id: Option<String>,
    arguments: Arguments,
    called: bool,
}

impl HeaderCalls {
    /// Begins a block behind its opening text `lead`, which may already be the beginning of a call.
    pub(crate) fn new(tags: &'static HeaderTags, lead: String, in_call: bool) -> Self {
        HeaderCalls {
            tags,
            state: if in_call { State::Header } else { State::Block },
            scan: Scanner::default(),
            buf: String::new(),
            raw: lead,
            name: String::new(),
            id: None,
            arguments: Arguments::new(),
            called: false,
        }
    }

    pub(crate) fn step(&mut self, c: char, sink: &mut Sink) -> Flow {
        let tags = self.tags;
        if !matches!(self.state, State::Live | State::Broken | State::Tail) {
            self.raw.push(c);
        }
        match self.state {
            State::Block => match self.scan.step(c, tags.between, &mut self.buf) {
                Some(0) => self.enter(State::Header),
                Some(_) if self.called => return Flow::Close,
                Some(_) => return Flow::Fail(self.give_back()),
                None if self.buf.trim().is_empty() => self.buf.clear(),
                None if self.called => return Flow::Leave(self.give_back()),
                None => return Flow::Fail(self.give_back()),
            },
            State::Header => return self.header(c),
            State::Name => {
                let end = tags.name_end.unwrap_or_default();
                let hit = self.scan.step(c, &[end], &mut self.buf);
                if !is_name(&self.buf) {
                    return Flow::Fail(self.give_back());
                }
                if hit.is_some() {
                    self.name = self.buf.trim().to_owned();
                    self.enter(State::Lead);
                }
            }
            State::Lead => return self.lead(c, sink),
            State::Bare => {
                let hit = self.scan.step(c, &[tags.call_close], &mut self.buf);
                if !self.buf.is_empty() {
                    return Flow::Fail(self.give_back());
                }
                if hit.is_some() {
                    self.announce(sink);
                    sink.arguments("{}");
                    sink.end();
                    self.enter(State::Block);
                }
            }
            State::Live => {
                let progress = self.arguments.step(c);
                if progress == Progress::Broken {
                    // The character that broke it may begin the end of the call.
                    self.arguments = Arguments::new();
                    self.enter(State::Broken);
                    self.broken(c, sink);
                } else {
                    self.arguments.flush(sink);
                }
                if progress == Progress::Done {
                    sink.end();
                    self.enter(State::Tail);
                }
            }
            State::Broken => self.broken(c, sink),
            State::Tail => {
                let hit = self.scan.step(c, &[tags.call_close], &mut self.buf);
                if hit.is_some() {
                    self.enter(State::Block);
                } else if self.buf.chars().any(|c| !c.is_whitespace() && c != '`') {
                    sink.content(&self.buf);
                    self.buf.clear();
                }
            }
        }
        Flow::More
    }

    pub(crate) fn finish(&mut self, sink: &mut Sink) -> Option<String> {
        match self.state {
            State::Block if self.called && self.is_rest_of_block() => None,
            State::Block | State::Header | State::Name | State::Lead | State::Bare => Some(self.give_back()),
            State::Live => None,
            State::Broken => {
                sink.arguments(&self.scan.take());
                None
            }
            State::Tail => None,
        }
    }

    fn header(&mut self, c: char) -> Flow {
        let hit = self.scan.step(c, &[self.tags.separator], &mut self.buf);
        if !is_name(&self.buf) || (hit.is_some() && self.buf.trim().is_empty()) {
            return Flow::Fail(self.give_back());
        }
        if hit.is_none() {
            return Flow::More;
        }
        let header = self.buf.trim().to_owned();
        if self.tags.identifier {
            let numbered = header.rsplit_once(':').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
            let name = numbered.map_or(header.as_str(), |(name, _)| name);
            self.name = name.strip_prefix("functions.").unwrap_or(name).to_owned();
            self.id = numbered.is_some().then_some(header);
        } else {
            self.name = header;
        }
        self.enter(if self.tags.name_end.is_some() { State::Name } else { State::Lead });
        Flow::More
    }

    fn lead(&mut self, c: char, sink: &mut Sink) -> Flow {
        if self.arguments.is_blank() && self.tags.call_close.starts_with(c) {
            self.enter(State::Bare);
            self.scan.step(c, &[self.tags.call_close], &mut self.buf);
            return Flow::More;
        }
        match self.arguments.step(c) {
            Progress::Undecided => {}
            Progress::Refused | Progress::Broken => return Flow::Fail(self.give_back()),
            progress @ (Progress::Live | Progress::Done) => {
                self.announce(sink);
                self.arguments.flush(sink);
                self.enter(State::Live);
                if progress == Progress::Done {
                    sink.end();
                    self.enter(State::Tail);
                }
            }
        }
        Flow::More
    }

    fn broken(&mut self, c: char, sink: &mut Sink) {
        let hit = self.scan.step(c, &[self.tags.call_close], &mut self.buf);
        sink.arguments(&self.buf);
        self.buf.clear();
        if hit.is_some() {
            sink.end();
            self.enter(State::Block);
        }
    }

    fn announce(&mut self, sink: &mut Sink) {
        sink.start(&self.name, self.id.take());
        self.raw.clear();
        self.called = true;
    }

    fn enter(&mut self, state: State) {
        self.buf.clear();
        if state == State::Block || state == State::Header {
            self.arguments = Arguments::new();
        }
        self.state = state;
    }

    /// Whether the text behind the last call can only be the beginning of the block's end.
    fn is_rest_of_block(&self) -> bool {
        let rest = self.raw.trim();
        self.tags.between.iter().any(|mark| mark.starts_with(rest))
    }

    /// The text since the last whole call.
    fn give_back(&mut self) -> String {
        std::mem::take(&mut self.raw)
    }
}
