//! Where a generated sequence ends: stop ids and stop strings.

mod automaton;
mod ids;

use std::sync::Arc;

use automaton::Automaton;
pub use ids::{StopIds, StopKind};

/// Looks for stop strings in streamed text.
///
/// Text that may be the beginning of a stop string is held back; everything else passes at once. The outcome
/// does not depend on how the text is cut into pieces, and the work is linear in the length of the text,
/// whatever the number of stop strings. The stop string that ends first wins; of those that end together, the
/// longest.
///
/// A clone shares what is looked for, so that several sequences of one request cost no more.
#[derive(Clone, Debug)]
pub struct StopScanner {
    automaton: Arc<Automaton>,
    stops: Arc<[String]>,
    include: bool,
    /// Text not yet passed on: the longest suffix that begins a stop string.
    held: String,
    state: u32,
    matched: Option<usize>,
}

impl StopScanner {
    /// A scanner for `stops`; empty strings never match. `include`: the stop string itself is passed on, too.
    pub fn new<S: Into<String>>(stops: impl IntoIterator<Item = S>, include: bool) -> Self {
        let stops: Arc<[String]> = stops.into_iter().map(Into::into).collect();
        let automaton = Arc::new(Automaton::new(stops.iter().map(String::as_bytes)));
        Self { automaton, stops, include, held: String::new(), state: Automaton::ROOT, matched: None }
    }

    /// True when there is nothing to look for, so text may bypass the scanner.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.automaton.is_empty()
    }

    /// Takes the next piece and appends to `out` what is free to be shown. Returns the stop string when one is
    /// complete; from then on nothing more is passed.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<&str> {
        if self.matched.is_none() {
            self.scan(text, out);
        }
        self.matched()
    }

    /// Passes a piece that must not be searched, because too few tokens were generated so far. What was held
    /// back passes first; a stop string that began in this text or before it is not found later.
    pub fn pass(&mut self, text: &str, out: &mut String) {
        if self.matched.is_none() {
            self.finish(out);
            out.push_str(text);
        }
    }

    /// Ends the text: what was held back can no longer become a stop string.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.state = Automaton::ROOT;
    }

    /// The stop string that was found.
    #[must_use]
    pub fn matched(&self) -> Option<&str> {
        self.matched.map(|index| self.stops[index].as_str())
    }

    /// Length in bytes of the text held back; always less than the longest stop string.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    fn scan(&mut self, text: &str, out: &mut String) {
        for (at, &byte) in text.as_bytes().iter().enumerate() {
            self.state = self.automaton.step(self.state, byte);
            if let Some(index) = self.automaton.matched(self.state) {
                let end = self.held.len() + at + 1;
                let shown = if self.include { end } else { end - self.stops[index].len() };
                self.matched = Some(index);
                self.release(text, shown, out);
                self.held.clear();
                return;
            }
        }
        let free = self.held.len() + text.len() - self.automaton.depth(self.state);
        self.release(text, free, out);
    }

    /// Moves the first `count` bytes of held text plus `text` to `out` and holds the rest.
    fn release(&mut self, text: &str, count: usize, out: &mut String) {
        match count.checked_sub(self.held.len()) {
            Some(of_text) => {
                out.push_str(&self.held);
                out.push_str(&text[..of_text]);
                self.held.clear();
                self.held.push_str(&text[of_text..]);
            }
            None => {
                out.push_str(&self.held[..count]);
                self.held.drain(..count);
                self.held.push_str(text);
            }
        }
    }
}

#[cfg(test)]
mod tests;
