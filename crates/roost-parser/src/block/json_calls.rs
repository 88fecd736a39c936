//! Calls written as JSON objects with a name and arguments, alone or in a list.

use super::Flow;
use crate::args::{Arguments, Progress};
use crate::delta::Sink;
use crate::json::{JsonScan, Step};
use crate::scan::Scanner;

#[derive(Debug)]
enum State {
    /// Before the first object or between two.
    Between,
    /// A key, or the end of the object.
    Member,
    /// Inside a key.
    Key,
    Colon,
    /// Inside the value of `name`.
    Name,
    /// The value of `arguments` or `parameters`.
    Arguments,
    /// Arguments written as a JSON string that contains JSON.
    Quoted,
    /// The value of a member that means nothing here.
    Other(JsonScan),
    /// Behind a value.
    After,
    /// Arguments that are no JSON any more: they end with the block.
    Broken,
}

/// A block of calls in JSON.
#[derive(Debug)]
pub(crate) struct JsonCalls {
    /// End the block; without any, it ends with its list or object.
    close: &'static [&'static str],
    state: State,
    scan: Scanner,
    buf: String,
    /// Text since the last whole call, to be given back when it is none.
    raw: String,
    /// Checks keys and names.
    text: JsonScan,
    key: String,
    name: Option<String>,
    arguments: Option<Arguments>,
    /// Arguments that came in quotes, unquoted.
    unquoted: Option<String>,
    /// The call at hand has been announced.
    started: bool,
    ended: bool,
    called: bool,
    in_list: bool,
}

impl JsonCalls {
    /// Begins a block behind its opening text `lead`.
    pub(crate) fn new(close: &'static [&'static str], lead: String) -> Self {
        JsonCalls {
            close,
            state: State::Between,
            scan: Scanner::default(),
            buf: String::new(),
            raw: lead,
            text: JsonScan::new(),
            key: String::new(),
            name: None,
            arguments: None,
            unquoted: None,
            started: false,
            ended: false,
            called: false,
            in_list: false,
        }
    }

    pub(crate) fn step(&mut self, c: char, sink: &mut Sink) -> Flow {
        if !self.started {
            self.raw.push(c);
        }
        match &mut self.state {
            State::Between => return self.between(c),
            State::Member => match c {
                '"' => self.begin_text(State::Key),
                '}' => return self.end_object(sink),
                _ if c.is_whitespace() || c == ',' => {}
                _ => return self.fail(c, sink),
            },
            State::Key => match self.string(c) {
                Some(Ok(key)) => {
                    self.key = key;
                    self.state = State::Colon;
                }
                Some(Err(())) => return self.fail(c, sink),
                None => {}
            },
            State::Colon if c == ':' => {
                self.state = match self.key.as_str() {
                    "name" if self.name.is_none() => State::Name,
                    "arguments" | "parameters" if self.arguments.is_none() && self.unquoted.is_none() => {
                        self.arguments = Some(Arguments::new());
                        State::Arguments
                    }
                    _ => State::Other(JsonScan::new()),
                };
                self.buf.clear();
            }
            State::Colon if c.is_whitespace() => {}
            State::Colon => return self.fail(c, sink),
            State::Name => return self.name(c, sink),
            State::Arguments => return self.arguments(c, sink),
            State::Quoted => match self.string(c) {
                Some(Ok(text)) if text.trim_start().starts_with('{') => {
                    self.unquoted = Some(text);
                    self.state = State::After;
                    self.announce(sink);
                }
                Some(_) => return self.fail(c, sink),
                None => {}
            },
            State::Other(scan) => {
                // A number or a word ends only with the character behind it.
                let complete = scan.complete();
                if complete && matches!(c, ',' | '}') {
                    self.state = State::After;
                    return self.after(c, sink);
                }
                match scan.step(c) {
                    Step::Done => self.state = State::After,
                    Step::Invalid => return self.fail(c, sink),
                    Step::More | Step::Escape => {}
                }
            }
            State::After => return self.after(c, sink),
            State::Broken => return self.broken(c, sink),
        }
        Flow::More
    }

    pub(crate) fn finish(&mut self, sink: &mut Sink) -> Option<String> {
        if self.started {
            if matches!(self.state, State::Broken) {
                sink.arguments(&self.scan.take());
            }
            return None;
        }
        let rest = self.raw.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == ']');
        if self.called && (rest.is_empty() || self.close.iter().any(|close| close.starts_with(rest))) {
            return None;
        }
        Some(self.give_back())
    }

    fn between(&mut self, c: char) -> Flow {
        let hit = self.scan.step(c, self.close, &mut self.buf);
        if hit.is_some() {
            // An empty block is no call.
            return if self.called { Flow::Close } else { Flow::Fail(self.give_back()) };
        }
        let mut released = self.buf.chars().filter(|c| !c.is_whitespace());
        let (first, more) = (released.next(), released.next());
        match first {
            None => {}
            Some('{') if more.is_none() => {
                self.name = None;
                self.arguments = None;
                self.unquoted = None;
                self.ended = false;
                self.state = State::Member;
            }
            Some('[') if more.is_none() && !self.called && !self.in_list => self.in_list = true,
            Some(']') if more.is_none() && self.in_list => {
                self.in_list = false;
                if self.close.is_empty() {
                    return Flow::Close;
                }
            }
            Some(',') if more.is_none() && self.called => {}
            Some('}') if more.is_none() && self.called => {}
            _ if self.called => return Flow::Leave(self.give_back()),
            _ => return Flow::Fail(self.give_back()),
        }
        self.buf.clear();
        Flow::More
    }

    fn name(&mut self, c: char, sink: &mut Sink) -> Flow {
        if self.buf.is_empty() {
            match c {
                '"' => self.begin_text(State::Name),
                _ if c.is_whitespace() => {}
                _ => return self.fail(c, sink),
            }
            return Flow::More;
        }
        match self.string(c) {
            Some(Ok(name)) if !name.is_empty() => {
                self.name = Some(name);
                self.state = State::After;
            }
            Some(_) => return self.fail(c, sink),
            None => {}
        }
        Flow::More
    }

    fn arguments(&mut self, c: char, sink: &mut Sink) -> Flow {
        let Some(arguments) = self.arguments.as_mut() else { return Flow::More };
        if arguments.is_blank() && !c.is_whitespace() && c != '{' {
            self.arguments = None;
            match c {
                '"' => self.begin_text(State::Quoted),
                'n' => {
                    // `null`: a call without arguments.
                    let mut scan = JsonScan::new();
                    scan.step(c);
                    self.state = State::Other(scan);
                }
                _ => return self.fail(c, sink),
            }
            return Flow::More;
        }
        match arguments.step(c) {
            Progress::Undecided => {}
            Progress::Refused => return self.fail(c, sink),
            Progress::Live => self.announce(sink),
            Progress::Done => {
                self.state = State::After;
                self.announce(sink);
            }
            Progress::Broken if self.name.is_some() && self.started => {
                self.arguments = None;
                self.buf.clear();
                self.state = State::Broken;
                return self.broken(c, sink);
            }
            Progress::Broken => return Flow::Fail(self.give_back()),
        }
        Flow::More
    }

    fn after(&mut self, c: char, sink: &mut Sink) -> Flow {
        // The name may have come last.
        self.announce(sink);
        match c {
            ',' => self.state = State::Member,
            '}' => return self.end_object(sink),
            _ if c.is_whitespace() => {}
            _ => return self.fail(c, sink),
        }
        Flow::More
    }

    /// Announces the call once its name and the beginning of its arguments are known, and passes on what waits.
    fn announce(&mut self, sink: &mut Sink) {
        let Some(name) = &self.name else { return };
        if self.arguments.is_none() && self.unquoted.is_none() {
            return;
        }
        if !self.started && !self.ended {
            sink.start(name, None);
            self.started = true;
            self.raw.clear();
        }
        if let Some(arguments) = &mut self.arguments {
            arguments.flush(sink);
        }
        if let Some(text) = &mut self.unquoted {
            sink.arguments(text);
            text.clear();
        }
        if matches!(self.state, State::After | State::Member) {
            self.end_call(sink);
        }
    }

    fn end_call(&mut self, sink: &mut Sink) {
        if self.started {
            sink.end();
            self.started = false;
            self.ended = true;
            self.called = true;
        }
    }

    fn end_object(&mut self, sink: &mut Sink) -> Flow {
        if !self.ended {
            let Some(name) = &self.name else { return Flow::Fail(self.give_back()) };
            sink.start(name, None);
            sink.arguments("{}");
            self.started = true;
            self.end_call(sink);
        }
        self.raw.clear();
        self.buf.clear();
        self.state = State::Between;
        if self.close.is_empty() && !self.in_list { Flow::Close } else { Flow::More }
    }

    /// The text is no call after all, or goes on behind one.
    fn fail(&mut self, c: char, sink: &mut Sink) -> Flow {
        if self.started {
            self.state = State::Broken;
            return self.broken(c, sink);
        }
        if self.ended {
            // Behind whole arguments, where the object was never closed.
            self.buf.clear();
            self.state = State::Between;
            return self.between(c);
        }
        Flow::Fail(self.give_back())
    }

    fn broken(&mut self, c: char, sink: &mut Sink) -> Flow {
        let hit = self.scan.step(c, self.close, &mut self.buf);
        sink.arguments(&self.buf);
        self.buf.clear();
        if hit.is_none() {
            return Flow::More;
        }
        self.end_call(sink);
        Flow::Close
    }

    fn begin_text(&mut self, state: State) {
        self.text = JsonScan::new();
        self.text.step('"');
        self.buf.clear();
        self.buf.push('"');
        self.state = state;
    }

    /// Takes a character of a JSON string; returns its value once it is complete.
    fn string(&mut self, c: char) -> Option<Result<String, ()>> {
        self.buf.push(c);
        match self.text.step(c) {
            Step::More => None,
            Step::Done => Some(serde_json::from_str(&self.buf).map_err(|_| ())),
            Step::Escape | Step::Invalid => Some(Err(())),
        }
    }

    /// The text since the last whole call.
    fn give_back(&mut self) -> String {
        std::mem::take(&mut self.raw)
    }
}
