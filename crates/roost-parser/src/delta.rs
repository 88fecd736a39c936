//! What a parser emits.

/// One piece of an answer, in the order the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text the model thought.
    Reasoning(String),
    /// Text for the user.
    Content(String),
    /// A tool call begins. Its arguments follow.
    ToolStart {
        /// Position of the call in the answer, from 0.
        index: u32,
        /// Name of the function, as the model wrote it: it need not be one of the request's.
        name: String,
        /// Identifier the model gave the call (`functions.get_weather:0`); `None` leaves it to the caller.
        id: Option<String>,
    },
    /// The next characters of a call's arguments. Joined, the fragments of one call are its JSON.
    ToolArguments {
        /// Position of the call.
        index: u32,
        /// Characters to append.
        fragment: String,
    },
    /// The arguments of a call are complete. A call that was cut off has no such end.
    ToolEnd {
        /// Position of the call.
        index: u32,
    },
}

/// Collects deltas, joins neighbours of a kind, and numbers the calls.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) deltas: Vec<Delta>,
    /// Keep the first call only (`parallel_tool_calls: false`).
    single: bool,
    calls: u32,
    muted: bool,
}

impl Sink {
    pub(crate) fn new(single: bool) -> Self {
        Sink { single, ..Sink::default() }
    }

    pub(crate) fn reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(Delta::Reasoning(last)) = self.deltas.last_mut() {
            last.push_str(text);
        } else {
            self.deltas.push(Delta::Reasoning(text.to_owned()));
        }
    }

    pub(crate) fn content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(Delta::Content(last)) = self.deltas.last_mut() {
            last.push_str(text);
        } else {
            self.deltas.push(Delta::Content(text.to_owned()));
        }
    }

    pub(crate) fn start(&mut self, name: &str, id: Option<String>) {
        self.muted = self.single && self.calls > 0;
        if !self.muted {
            self.deltas.push(Delta::ToolStart { index: self.calls, name: name.to_owned(), id });
            self.calls += 1;
        }
    }

    /// Appends to the arguments of the call started last.
    pub(crate) fn arguments(&mut self, text: &str) {
        if self.muted || text.is_empty() {
            return;
        }
        if let Some(Delta::ToolArguments { fragment, .. }) = self.deltas.last_mut() {
            fragment.push_str(text);
        } else {
            self.deltas.push(Delta::ToolArguments { index: self.current(), fragment: text.to_owned() });
        }
    }

    pub(crate) fn end(&mut self) {
        if !self.muted {
            let index = self.current();
            self.deltas.push(Delta::ToolEnd { index });
        }
    }

    /// Calls emitted so far.
    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    fn current(&self) -> u32 {
        self.calls.saturating_sub(1)
    }
}
