//! Calls written as tags: one tag per function, one per parameter, values as text.

use std::sync::Arc;

use super::value::Value;
use super::{Flow, MAX_NAME, is_name};
use crate::delta::Sink;
use crate::json::escape;
use crate::scan::Scanner;
use crate::schema::{Parameters, Types};
use crate::tools::Tools;

/// The tags of one syntax.
#[derive(Debug)]
pub(crate) struct Tags {
    /// Ends the block.
    pub(crate) close: &'static str,
    /// Begins a call; the name follows.
    pub(crate) call: &'static str,
    pub(crate) name_end: NameEnd,
    pub(crate) call_close: &'static str,
    /// Begins a parameter; its header follows.
    pub(crate) parameter: &'static str,
    pub(crate) header: ParameterHeader,
    /// Ends a value. With several, the longer ones swallow layout before the tag.
    pub(crate) value_close: &'static [&'static str],
    /// A line break directly behind the opening tag is layout.
    pub(crate) skip_newline: bool,
    /// Type of a value about which the schema says nothing.
    pub(crate) untyped: Types,
}

/// What ends the name of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameEnd {
    /// This text.
    Text(&'static str),
    /// The first parameter or the end of the call; the block is the call.
    Child,
}

/// What stands between the beginning of a parameter and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterHeader {
    /// `name>`
    Bare,
    /// `name">`, or `name" string="true">` where the model states the kind.
    Quoted,
    /// `name</arg_key><arg_value>`
    Pair,
}

impl ParameterHeader {
    fn end(self) -> &'static str {
        match self {
            ParameterHeader::Bare | ParameterHeader::Quoted => ">",
            ParameterHeader::Pair => "<arg_value>",
        }
    }

    /// Whether the text can be a header or become one. What cannot is text, not lost.
    fn plausible(self, text: &str) -> bool {
        if text.len() > MAX_NAME {
            return false;
        }
        match self {
            ParameterHeader::Bare => !text.contains(['<', '\n']),
            ParameterHeader::Quoted => match text.split_once('"') {
                None => !text.contains(['<', '\n']),
                Some((_, attributes)) => {
                    let attributes = attributes.trim_start();
                    [">", "string=\"true\">", "string=\"false\">"]
                        .iter()
                        .any(|all| all.starts_with(attributes))
                }
            },
            ParameterHeader::Pair => {
                let tags = &text[text.find('<').unwrap_or(text.len())..];
                match tags.strip_prefix("</arg_key>") {
                    None => "</arg_key>".starts_with(tags),
                    Some(rest) => "<arg_value>".starts_with(rest.trim_start()),
                }
            }
        }
    }

    /// Name of the parameter, and whether the model calls it a string.
    fn read(self, header: &str) -> (&str, Option<bool>) {
        match self {
            ParameterHeader::Bare => (header.trim(), None),
            ParameterHeader::Pair => {
                (header.split_once("</arg_key>").map_or(header, |pair| pair.0).trim(), None)
            }
            ParameterHeader::Quoted => {
                let (name, attributes) = header.split_once('"').unwrap_or((header, ""));
                let string = attributes.split_once("string=\"").map(|(_, flag)| flag.starts_with("true"));
                (name, string)
            }
        }
    }
}

#[derive(Debug)]
enum State {
    /// Between calls.
    Block,
    Name,
    /// Behind the name, before the first parameter: nothing has been announced.
    Named,
    /// Between parameters.
    Call,
    Header,
    Value(Value),
}

/// A block of tagged calls.
#[derive(Debug)]
pub(crate) struct Tagged {
    tags: &'static Tags,
    tools: Arc<Tools>,
    state: State,
    scan: Scanner,
    /// Text of the current state.
    buf: String,
    /// Text since the last whole call, to be given back when it is none.
    raw: String,
    name: String,
    parameters: Parameters,
    /// Parameters of the call so far.
    count: usize,
    /// A line break in front of the value has yet to be looked for.
    at_value: bool,
    called: bool,
}

impl Tagged {
    /// Begins a block behind its opening text `lead`, which may already be the beginning of a call.
    pub(crate) fn new(tags: &'static Tags, tools: Arc<Tools>, lead: String, in_call: bool) -> Self {
        Tagged {
            tags,
            tools,
            state: if in_call { State::Name } else { State::Block },
            scan: Scanner::default(),
            buf: String::new(),
            raw: lead,
            name: String::new(),
            parameters: Parameters::default(),
            count: 0,
            at_value: false,
            called: false,
        }
    }

    pub(crate) fn step(&mut self, c: char, sink: &mut Sink) -> Flow {
        let tags = self.tags;
        match &mut self.state {
            State::Block => {
                self.raw.push(c);
                match self.scan.step(c, &[tags.call, tags.close], &mut self.buf) {
                    Some(0) => self.enter(State::Name),
                    Some(_) if self.called => return Flow::Close,
                    Some(_) => return Flow::Fail(self.give_back()),
                    None if is_blank(&self.buf) => self.buf.clear(),
                    None if self.called => return Flow::Leave(self.give_back()),
                    None => return Flow::Fail(self.give_back()),
                }
            }
            State::Name => {
                self.raw.push(c);
                return self.name(c, sink);
            }
            State::Named => {
                self.raw.push(c);
                match self.scan.step(c, &[tags.parameter, tags.call_close], &mut self.buf) {
                    Some(hit) => return self.begin(hit, sink),
                    None if is_blank(&self.buf) => self.buf.clear(),
                    None => return Flow::Fail(self.give_back()),
                }
            }
            State::Call => {
                let hit = self.scan.step(c, &[tags.parameter, tags.call_close], &mut self.buf);
                if !is_blank(&self.buf) {
                    // Text between the parameters has no place in a call, and is not dropped.
                    sink.content(&self.buf);
                    self.buf.clear();
                }
                match hit {
                    Some(0) => self.enter(State::Header),
                    Some(_) => return self.end(sink),
                    None => {}
                }
            }
            State::Header => {
                self.buf.push(c);
                if self.buf.ends_with(tags.header.end()) {
                    self.begin_value(sink);
                } else if !tags.header.plausible(&self.buf) {
                    sink.content(tags.parameter);
                    sink.content(&self.buf);
                    self.enter(State::Call);
                }
            }
            State::Value(value) => {
                if std::mem::take(&mut self.at_value) && tags.skip_newline && c == '\n' {
                    return Flow::More;
                }
                let hit = self.scan.step(c, tags.value_close, &mut self.buf);
                if !self.buf.is_empty() {
                    value.push(&self.buf, sink);
                    self.buf.clear();
                }
                if hit.is_some() {
                    value.finish(sink);
                    self.enter(State::Call);
                }
            }
        }
        Flow::More
    }

    pub(crate) fn finish(&mut self, cut: bool, sink: &mut Sink) -> Option<String> {
        match &mut self.state {
            State::Block if self.called && self.tags.close.starts_with(self.raw.trim()) => None,
            State::Block | State::Name | State::Named => Some(self.give_back()),
            State::Call => {
                // The model stopped without closing its tags: the call is whole.
                if !cut {
                    self.end(sink);
                }
                None
            }
            State::Header => {
                let header = std::mem::take(&mut self.buf);
                self.key(self.tags.header.read(&header).0, sink);
                None
            }
            State::Value(value) => {
                value.push(&self.scan.take(), sink);
                value.cut(sink);
                None
            }
        }
    }

    fn name(&mut self, c: char, sink: &mut Sink) -> Flow {
        match self.tags.name_end {
            NameEnd::Text(end) => {
                self.buf.push(c);
                if let Some(name) = self.buf.strip_suffix(end) {
                    if name.trim().is_empty() {
                        return Flow::Fail(self.give_back());
                    }
                    self.name = name.trim().to_owned();
                    self.enter(State::Named);
                } else if !is_name(self.buf.trim_end_matches('"')) {
                    return Flow::Fail(self.give_back());
                }
                Flow::More
            }
            NameEnd::Child => {
                let hit = self.scan.step(c, &[self.tags.parameter, self.tags.call_close], &mut self.buf);
                if !is_name(&self.buf) || (hit.is_some() && is_blank(&self.buf)) {
                    return Flow::Fail(self.give_back());
                }
                let Some(hit) = hit else { return Flow::More };
                self.name = self.buf.trim().to_owned();
                self.begin(hit, sink)
            }
        }
    }

    /// Announces the call at its first parameter (`hit` 0) or its end.
    fn begin(&mut self, hit: usize, sink: &mut Sink) -> Flow {
        sink.start(&self.name, None);
        sink.arguments("{");
        let schema = self.tools.get(&self.name).and_then(|tool| tool.parameters.as_deref());
        self.parameters = Parameters::parse(schema);
        self.raw.clear();
        self.called = true;
        self.count = 0;
        if hit == 0 {
            self.enter(State::Header);
            return Flow::More;
        }
        self.end(sink)
    }

    fn end(&mut self, sink: &mut Sink) -> Flow {
        sink.arguments("}");
        sink.end();
        self.enter(State::Block);
        if self.tags.name_end == NameEnd::Child { Flow::Close } else { Flow::More }
    }

    fn begin_value(&mut self, sink: &mut Sink) {
        let header = self.buf.strip_suffix(self.tags.header.end()).unwrap_or(&self.buf);
        let (name, string) = self.tags.header.read(header);
        let types = match string {
            Some(true) => Types { string: true, ..Types::default() },
            Some(false) => Types::ANY,
            None => self.parameters.types(name).unwrap_or(self.tags.untyped),
        };
        let name = name.to_owned();
        self.key(&name, sink);
        sink.arguments("\":");
        self.count += 1;
        let value = Value::new(types, sink);
        self.at_value = true;
        self.enter(State::Value(value));
    }

    /// Writes the name of a parameter, without its closing quote.
    fn key(&self, name: &str, sink: &mut Sink) {
        let mut key = String::from(if self.count == 0 { "\"" } else { ",\"" });
        escape(name, &mut key);
        sink.arguments(&key);
    }

    fn enter(&mut self, state: State) {
        self.buf.clear();
        self.state = state;
    }

    /// The text since the last whole call.
    fn give_back(&mut self) -> String {
        std::mem::take(&mut self.raw)
    }
}

fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}
