//! Answers made of messages in channels (gpt-oss).
//!
//! `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`: reasoning, text for the user
//! and calls are messages of their own, and a call names its recipient in the header.

use crate::args::{Arguments, Progress};
use crate::block::{Block, Flow};
use crate::delta::Sink;
use crate::scan::Scanner;
use crate::spec::PromptEnd;
use crate::tools::ToolChoice;

const MARKS: &[&str] = &[START, CHANNEL, MESSAGE, END, CALL, RETURN];
const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const END: &str = "<|end|>";
const CALL: &str = "<|call|>";
const RETURN: &str = "<|return|>";

/// Longest header of a message, in bytes.
const MAX_HEADER: usize = 512;

#[derive(Debug)]
pub(crate) struct Channels {
    /// Calls are to be read.
    tools: bool,
    /// Reasoning is told apart from text.
    reasoning: bool,
    /// The answer is to be the JSON of constrained decoding.
    constrained: Option<ToolChoice>,
    state: State,
    scan: Scanner,
    buf: String,
    /// Header of the message at hand, marks included.
    header: String,
    /// White space between messages.
    gap: String,
    /// Text was seen outside of any message.
    plain: bool,
}

#[derive(Debug)]
enum State {
    /// Between messages.
    Outside,
    Header,
    Reasoning,
    Content,
    Call(Call),
    Constrained(Box<Block>),
}

#[derive(Debug)]
struct Call {
    name: String,
    arguments: Arguments,
    stage: Stage,
    /// Header and text, until the call is announced.
    raw: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Lead,
    Live,
    Done,
    /// No call: the text is content.
    Text,
}

impl Channels {
    pub(crate) fn new(
        tools: bool,
        reasoning: bool,
        constrained: Option<ToolChoice>,
        prompt: &PromptEnd,
    ) -> Self {
        let mut channels = Channels {
            tools,
            reasoning,
            constrained,
            state: State::Outside,
            scan: Scanner::default(),
            buf: String::new(),
            header: String::new(),
            gap: String::new(),
            plain: false,
        };
        if let PromptEnd::Channel(header) = prompt {
            let mut sink = Sink::default();
            header.chars().for_each(|c| channels.step(c, &mut sink));
        }
        channels
    }

    pub(crate) fn step(&mut self, c: char, sink: &mut Sink) {
        let hit = self.scan.step(c, MARKS, &mut self.buf);
        if !self.buf.is_empty() {
            let text = std::mem::take(&mut self.buf);
            self.text(&text, sink);
            self.buf = text;
            self.buf.clear();
        }
        if let Some(hit) = hit {
            self.mark(MARKS[hit], sink);
        }
    }

    pub(crate) fn finish(&mut self, sink: &mut Sink) {
        let held = self.scan.take();
        self.text(&held, sink);
        match &mut self.state {
            State::Header if is_bare_header(&self.header) => {}
            State::Header => sink.content(&self.header),
            State::Call(call) if call.stage == Stage::Lead => sink.content(&call.raw),
            State::Constrained(block) => {
                let rest = block.finish(true, sink).unwrap_or_default();
                sink.content(&rest);
            }
            State::Outside if self.plain => sink.content(&self.gap),
            _ => {}
        }
    }

    pub(crate) fn in_reasoning(&self) -> bool {
        self.reasoning && matches!(self.state, State::Reasoning)
    }

    fn text(&mut self, text: &str, sink: &mut Sink) {
        if self.constrained.is_some() && matches!(self.state, State::Outside | State::Content) {
            let start = text.len() - text.trim_start().len();
            self.gap.push_str(&text[..start]);
            let rest = &text[start..];
            if rest.is_empty() {
                return;
            }
            let choice = self.constrained.take();
            if rest.starts_with(['{', '[']) {
                self.state =
                    State::Constrained(Box::new(Block::constrained(choice, std::mem::take(&mut self.gap))));
            }
            return self.text(rest, sink);
        }
        match &mut self.state {
            State::Outside => {
                for c in text.chars() {
                    if c.is_whitespace() {
                        self.gap.push(c);
                    } else {
                        sink.content(&self.gap);
                        self.gap.clear();
                        self.plain = true;
                        sink.content(c.encode_utf8(&mut [0; 4]));
                    }
                }
            }
            State::Constrained(block) => {
                for (at, c) in text.char_indices() {
                    let behind = match block.step(c, sink) {
                        Flow::More => continue,
                        Flow::Close => String::new(),
                        Flow::Leave(text) | Flow::Fail(text) => text,
                    };
                    self.state = State::Outside;
                    self.text(&behind, sink);
                    return self.text(&text[at + c.len_utf8()..], sink);
                }
            }
            State::Header => {
                self.header.push_str(text);
                if self.header.len() > MAX_HEADER {
                    sink.content(&self.header);
                    self.state = State::Outside;
                }
            }
            State::Reasoning if self.reasoning => sink.reasoning(text),
            State::Reasoning | State::Content => {
                sink.content(&std::mem::take(&mut self.gap));
                sink.content(text);
            }
            State::Call(call) => text.chars().for_each(|c| call.step(c, sink)),
        }
    }

    fn mark(&mut self, mark: &str, sink: &mut Sink) {
        match (&mut self.state, mark) {
            (State::Header, MESSAGE) => self.open(sink),
            // The channel comes behind the role, or behind nothing when the prompt named the role.
            (State::Header, CHANNEL) if !self.header.contains(CHANNEL) => self.header.push_str(mark),
            (State::Header, _) => {
                let header = std::mem::take(&mut self.header);
                sink.content(&header);
                self.begin(mark);
            }
            (State::Content | State::Reasoning | State::Call(_) | State::Constrained(_), MESSAGE) => {
                self.text(mark, sink)
            }
            (State::Outside, MESSAGE | END | CALL | RETURN) => {}
            (state, _) => {
                match state {
                    State::Call(call) => call.end(sink),
                    State::Constrained(block) => {
                        let rest = block.finish(true, sink).unwrap_or_default();
                        sink.content(&rest);
                    }
                    _ => {}
                }
                self.begin(mark);
            }
        }
    }

    /// Behind a mark that ends a message or begins the next one.
    fn begin(&mut self, mark: &str) {
        self.gap.clear();
        self.plain = false;
        self.header.clear();
        self.state = State::Outside;
        if matches!(mark, START | CHANNEL) {
            self.header.push_str(mark);
            self.state = State::Header;
        }
    }

    /// The header is complete: opens the message.
    fn open(&mut self, sink: &mut Sink) {
        let header = std::mem::take(&mut self.header);
        let channel = header.split_once(CHANNEL).map_or("", |(_, rest)| word(rest));
        let recipient = header.split_once("to=").map(|(_, rest)| word(rest)).filter(|name| !name.is_empty());
        self.state = match (channel, recipient) {
            _ if !words(&header).all(is_header_word) => {
                sink.content(&header);
                sink.content(MESSAGE);
                State::Content
            }
            ("analysis", None) => State::Reasoning,
            ("analysis", Some(name)) if !name.starts_with("functions.") => State::Reasoning,
            (_, Some(name)) if self.tools => {
                let name = name.strip_prefix("functions.").unwrap_or(name).to_owned();
                let raw = header + MESSAGE;
                State::Call(Call { name, arguments: Arguments::new(), stage: Stage::Lead, raw })
            }
            ("final" | "commentary" | "", None) => State::Content,
            _ => {
                sink.content(&header);
                sink.content(MESSAGE);
                State::Content
            }
        };
    }
}

impl Call {
    fn step(&mut self, c: char, sink: &mut Sink) {
        match self.stage {
            Stage::Text => sink.content(c.encode_utf8(&mut [0; 4])),
            Stage::Done if c.is_whitespace() => {}
            Stage::Done => sink.content(c.encode_utf8(&mut [0; 4])),
            Stage::Lead => {
                self.raw.push(c);
                match self.arguments.step(c) {
                    Progress::Undecided => {}
                    Progress::Refused | Progress::Broken => {
                        sink.content(&self.raw);
                        self.stage = Stage::Text;
                    }
                    progress @ (Progress::Live | Progress::Done) => {
                        sink.start(&self.name, None);
                        self.live(progress, sink);
                    }
                }
            }
            Stage::Live => {
                let progress = self.arguments.step(c);
                self.live(progress, sink);
            }
        }
    }

    fn live(&mut self, progress: Progress, sink: &mut Sink) {
        self.stage = Stage::Live;
        self.arguments.flush(sink);
        if progress == Progress::Done {
            sink.end();
            self.stage = Stage::Done;
        }
    }

    /// The message ends.
    fn end(&mut self, sink: &mut Sink) {
        match self.stage {
            Stage::Lead if self.arguments.is_blank() => {
                sink.start(&self.name, None);
                sink.arguments("{}");
                sink.end();
            }
            Stage::Lead => sink.content(&self.raw),
            Stage::Live => sink.end(),
            Stage::Done | Stage::Text => {}
        }
    }
}

/// Whether an unfinished header holds nothing but marks, the role and the beginning of a channel's name: nothing that
/// would mean anything to a user.
fn is_bare_header(header: &str) -> bool {
    words(header).all(|word| {
        ["assistant", "analysis", "commentary", "final"].iter().any(|known| known.starts_with(word))
    })
}

/// The words of a header, without its marks.
fn words(header: &str) -> impl Iterator<Item = &str> {
    [START, CHANNEL, "<|constrain|>"]
        .into_iter()
        .fold(vec![header], |parts, mark| parts.into_iter().flat_map(|part| part.split(mark)).collect())
        .into_iter()
        .flat_map(str::split_whitespace)
}

/// Whether a header may contain the word: the role, a channel, a recipient or the kind of the text.
fn is_header_word(word: &str) -> bool {
    matches!(word, "assistant" | "analysis" | "commentary" | "final" | "json" | "code" | "text")
        || word.strip_prefix("to=").is_some_and(|name| !name.contains('<'))
}

/// The first word of a header's rest.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(text.len());
    &text[..end]
}
