//! The machine that reads an answer.

use std::sync::Arc;

use crate::block::{Block, Flow};
use crate::channels::Channels;
use crate::delta::{Delta, Sink};
use crate::dialect::{Dialect, ReasoningTags};
use crate::scan::Scanner;
use crate::spec::{ParserSpec, PromptEnd, ToolContext};
use crate::tools::{ToolChoice, Tools};

/// Text that was no call is searched for calls again up to this length, longer text is passed on as it is: otherwise
/// hostile text could be read over and over.
const MAX_REREAD: usize = 1024;

/// Parses one choice of an answer, one piece of text at a time.
///
/// Holds back only text whose meaning is open. The work is linear in the length of the text.
#[derive(Debug)]
pub struct Parser {
    mode: Mode,
    /// Where a block returns to.
    behind_block: Place,
    scan: Scanner,
    /// Released by the scanner, reused.
    buf: String,
    marks: Marks,
    reasoning: Option<&'static ReasoningTags>,
    /// Call syntax; `None` when calls are not to be read.
    dialect: Option<&'static Dialect>,
    tools: Arc<Tools>,
    constrained: Option<ToolChoice>,
    /// White space that may turn out to be layout.
    gap: String,
    /// Text was seen since the beginning, or the last block of reasoning or calls.
    in_text: bool,
    /// Nothing but white space was seen in this reasoning.
    fresh: bool,
    sink: Sink,
}

#[derive(Debug)]
enum Mode {
    Text,
    Reasoning,
    Block(Block),
    Channels(Channels),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    Reasoning,
}

/// The marks to look for: reasoning marks first, then the texts that open a block.
#[derive(Debug, Default)]
struct Marks {
    text: Vec<&'static str>,
    reasoning: Vec<&'static str>,
    /// How many of `text` open reasoning.
    text_first_call: usize,
    /// How many of `reasoning` close it; then come those that open it, then those that open a block.
    reasoning_first_open: usize,
    reasoning_first_call: usize,
}

impl Parser {
    pub(crate) fn new(spec: &ParserSpec, context: &ToolContext) -> Self {
        let wanted = !context.tools.is_empty() && context.tool_choice != ToolChoice::None;
        let dialect = spec.dialect().filter(|_| wanted);
        let constrained = matches!(context.tool_choice, ToolChoice::Required | ToolChoice::Named(_))
            .then(|| context.tool_choice.clone())
            .filter(|_| wanted);
        let reasoning = spec.reasoning();
        let inside = match context.prompt_end {
            PromptEnd::Reasoning => true,
            PromptEnd::Answer => false,
            PromptEnd::Plain | PromptEnd::Channel(_) => reasoning.is_some_and(|tags| tags.forced),
        };
        let mode = if spec.is_channels() {
            let constrained = constrained.clone();
            Mode::Channels(Channels::new(
                dialect.is_some(),
                reasoning.is_some(),
                constrained,
                &context.prompt_end,
            ))
        } else if inside {
            Mode::Reasoning
        } else {
            Mode::Text
        };
        Parser {
            mode,
            behind_block: Place::Text,
            scan: Scanner::default(),
            buf: String::new(),
            marks: Marks::new(reasoning, dialect),
            reasoning,
            dialect,
            tools: Arc::clone(&context.tools),
            constrained,
            gap: String::new(),
            in_text: false,
            fresh: true,
            sink: Sink::new(context.single_call),
        }
    }

    /// Takes the next piece of text and appends what it means to `out`.
    ///
    /// Pieces may be cut anywhere. Neighbouring deltas of a kind are joined, also with what is in `out` already.
    pub fn push(&mut self, text: &str, out: &mut Vec<Delta>) {
        std::mem::swap(out, &mut self.sink.deltas);
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let plain = self.plain_prefix(rest);
            if plain > 0 {
                let (run, more) = rest.split_at(plain);
                if matches!(self.mode, Mode::Reasoning) {
                    self.sink.reasoning(run)
                } else {
                    self.sink.content(run)
                }
                rest = more;
            } else {
                self.step(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        std::mem::swap(out, &mut self.sink.deltas);
    }

    /// The text ends: appends what was held back to `out`.
    ///
    /// `cut`: the engine stopped at its length limit (finish reason `length`). Otherwise tags that the model left open
    /// around a whole call count as closed.
    pub fn finish(&mut self, cut: bool, out: &mut Vec<Delta>) {
        std::mem::swap(out, &mut self.sink.deltas);
        let held = self.scan.take();
        match &mut self.mode {
            Mode::Reasoning => self.sink.reasoning(&held),
            Mode::Text => self.text(&held),
            Mode::Channels(channels) => channels.finish(&mut self.sink),
            Mode::Block(block) => {
                let rest = block.finish(cut, &mut self.sink).unwrap_or_default();
                match self.behind_block {
                    Place::Text => self.text(&rest),
                    Place::Reasoning => self.sink.reasoning(&rest),
                }
            }
        }
        let gap = std::mem::take(&mut self.gap);
        if self.in_text || self.sink.calls() == 0 {
            self.sink.content(&gap);
        }
        std::mem::swap(out, &mut self.sink.deltas);
    }

    /// Number of tool calls so far. With any, the finish reason `stop` becomes `tool_calls`.
    pub fn calls(&self) -> u32 {
        self.sink.calls()
    }

    /// Whether the text stands inside the reasoning: what decides if a token counts as a reasoning token.
    pub fn in_reasoning(&self) -> bool {
        match &self.mode {
            Mode::Reasoning => true,
            Mode::Channels(channels) => channels.in_reasoning(),
            Mode::Text | Mode::Block(_) => false,
        }
    }

    /// Length of the beginning of `text` that can be passed on without looking at its characters one by one.
    fn plain_prefix(&self, text: &str) -> usize {
        if !self.scan.is_empty() || !self.gap.is_empty() {
            return 0;
        }
        let marks = match self.mode {
            Mode::Text if self.in_text => &self.marks.text,
            Mode::Reasoning if !self.fresh => &self.marks.reasoning,
            _ => return 0,
        };
        let line_breaks = self.dialect.is_some() && matches!(self.mode, Mode::Text);
        let special = |b: u8| (line_breaks && b == b'\n') || marks.iter().any(|mark| mark.as_bytes()[0] == b);
        let end = text.bytes().position(special).unwrap_or(text.len());
        // The first byte of a mark may be the first byte of another character, never the middle of one.
        debug_assert!(text.is_char_boundary(end));
        end
    }

    fn step(&mut self, c: char) {
        match &mut self.mode {
            Mode::Text => self.step_text(c),
            Mode::Reasoning => self.step_reasoning(c),
            Mode::Channels(channels) => channels.step(c, &mut self.sink),
            Mode::Block(block) => {
                let flow = block.step(c, &mut self.sink);
                self.follow(flow);
            }
        }
    }

    fn step_text(&mut self, c: char) {
        if self.opens_constrained(c) {
            return;
        }
        let hit = self.scan.step(c, &self.marks.text, &mut self.buf);
        if !self.buf.is_empty() {
            let text = std::mem::take(&mut self.buf);
            self.text(&text);
            self.buf = text;
            self.buf.clear();
        }
        let Some(hit) = hit else { return };
        let mark = self.marks.text[hit];
        if hit >= self.marks.text_first_call {
            self.open_block(hit - self.marks.text_first_call, mark, Place::Text);
        } else if self.in_text {
            self.text(mark);
        } else {
            self.gap.clear();
            self.fresh = true;
            self.mode = Mode::Reasoning;
        }
    }

    fn step_reasoning(&mut self, c: char) {
        let hit = self.scan.step(c, &self.marks.reasoning, &mut self.buf);
        self.fresh &= self.buf.trim().is_empty();
        self.sink.reasoning(&self.buf);
        self.buf.clear();
        let Some(hit) = hit else { return };
        let mark = self.marks.reasoning[hit];
        if hit >= self.marks.reasoning_first_call {
            self.open_block(hit - self.marks.reasoning_first_call, mark, Place::Reasoning);
        } else if hit < self.marks.reasoning_first_open {
            self.in_text = false;
            self.mode = Mode::Text;
        } else if !self.fresh {
            self.sink.reasoning(mark);
        }
    }

    /// Begins the JSON of constrained decoding at the first character of an answer that can be JSON.
    fn opens_constrained(&mut self, c: char) -> bool {
        if self.in_text || !self.scan.is_empty() {
            return false;
        }
        let bare = self.dialect.is_some_and(|dialect| dialect.bare) && self.sink.calls() == 0;
        if !matches!(c, '{' | '[') || !(bare || self.constrained.is_some()) {
            return false;
        }
        let lead = std::mem::take(&mut self.gap);
        let mut block = Block::constrained(self.constrained.take(), lead);
        let flow = block.step(c, &mut self.sink);
        self.behind_block = Place::Text;
        self.mode = Mode::Block(block);
        self.follow(flow);
        true
    }

    fn open_block(&mut self, open: usize, mark: &str, place: Place) {
        let Some(dialect) = self.dialect else { return };
        let mut lead = std::mem::take(&mut self.gap);
        lead.push_str(mark);
        self.behind_block = place;
        self.mode = Mode::Block(dialect.block(open, lead, &self.tools));
    }

    fn follow(&mut self, flow: Flow) {
        let (text, failed) = match flow {
            Flow::More => return,
            Flow::Close => (String::new(), false),
            Flow::Leave(text) => (text, false),
            Flow::Fail(text) => (text, true),
        };
        self.mode = match self.behind_block {
            Place::Text => Mode::Text,
            Place::Reasoning => Mode::Reasoning,
        };
        if !failed && self.behind_block == Place::Text {
            self.in_text = false;
        }
        self.reread(&text, failed);
    }

    /// Reads text that a block gave back. Text that failed as a block loses its first character to plain text, so that
    /// it cannot open the same block again.
    fn reread(&mut self, text: &str, failed: bool) {
        let start = text.len() - text.trim_start().len();
        let first = text[start..].chars().next().filter(|_| failed).map_or(0, char::len_utf8);
        let plain = if text.len() > MAX_REREAD { text.len() } else { start + first };
        match self.behind_block {
            Place::Text => self.text(&text[..plain]),
            Place::Reasoning => self.sink.reasoning(&text[..plain]),
        }
        for c in text[plain..].chars() {
            self.step(c);
        }
    }

    /// Passes text on, except white space that may turn out to be the layout of a block.
    fn text(&mut self, text: &str) {
        let structured = self.dialect.is_some() || self.reasoning.is_some();
        let layout = structured || self.constrained.is_some() || self.sink.calls() > 0;
        for c in text.chars() {
            let line_break = self.dialect.is_some() && (c == '\n' || !self.gap.is_empty());
            if c.is_whitespace() && ((!self.in_text && layout) || line_break) {
                self.gap.push(c);
                continue;
            }
            if !self.gap.is_empty() {
                self.sink.content(&self.gap);
                self.gap.clear();
            }
            self.in_text = true;
            self.sink.content(c.encode_utf8(&mut [0; 4]));
        }
    }
}

impl Marks {
    fn new(reasoning: Option<&'static ReasoningTags>, dialect: Option<&'static Dialect>) -> Self {
        let mut marks = Marks::default();
        if let Some(tags) = reasoning {
            marks.text.extend_from_slice(tags.opens);
            marks.reasoning.extend_from_slice(tags.closes);
            marks.reasoning_first_open = marks.reasoning.len();
            marks.reasoning.extend_from_slice(tags.opens);
        }
        marks.text_first_call = marks.text.len();
        marks.reasoning_first_call = marks.reasoning.len();
        for (open, _) in dialect.into_iter().flat_map(|dialect| dialect.opens) {
            marks.text.push(open);
            if reasoning.is_some_and(|tags| tags.calls_inside) {
                marks.reasoning.push(open);
            }
        }
        marks
    }
}
