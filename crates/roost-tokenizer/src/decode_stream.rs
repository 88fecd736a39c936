//! Ids of one growing sequence to text.

use crate::detokenizer::InvalidBytes;
use crate::tokenizer::Tokenizer;

/// Decoder state of one generated sequence.
///
/// Text comes out only in whole characters: bytes that may still become a character wait for the next id.
/// A trailing U+FFFD waits as well, because until the next id it cannot be told from an unfinished
/// character. Call [`finish`](Self::finish) at the end to get what still waits.
#[derive(Debug)]
pub struct DecodeStream {
    tokenizer: Tokenizer,
    skip_special: bool,
    /// Bytes seen whose text is not decided.
    pending: Vec<u8>,
    /// Characters still to be dropped at the start of the text.
    strip_left: usize,
    /// No token was decoded yet and none precedes in the prompt.
    first: bool,
    /// In use when the model's decoder has no rule per token.
    window: Option<Window>,
}

/// Bytes kept back at most; reached only by a sequence that keeps producing invalid bytes.
const MAX_PENDING_BYTES: usize = 64;

/// Ids of the prompt that are looked at.
const PROMPT_IDS: usize = 5;

impl DecodeStream {
    pub(crate) fn new(tokenizer: Tokenizer, prompt: &[u32], skip_special: bool) -> Self {
        let tail = &prompt[prompt.len().saturating_sub(PROMPT_IDS)..];
        let detokenizer = &tokenizer.inner.detokenizer;
        let has_text =
            |id: &u32| detokenizer.bytes(*id).is_some() && !(skip_special && detokenizer.is_special(*id));
        let first = !tail.iter().any(has_text);
        let (strip_left, window) = match detokenizer.plan() {
            Some(plan) => (plan.strip_start.filter(|_| first).map_or(0, |(_, count)| count), None),
            None => {
                let ids = tail.iter().copied().filter(has_text).collect();
                (0, Some(Window { ids, ..Window::default() }))
            }
        };
        Self { tokenizer, skip_special, pending: Vec::new(), strip_left, first, window }
    }

    /// Takes the next id and appends the text it completes, if any, to `out`.
    pub fn push(&mut self, id: u32, out: &mut String) {
        if let Some(window) = &mut self.window {
            return window.push(&self.tokenizer, self.skip_special, id, out);
        }
        let inner = self.tokenizer.inner.clone();
        let Some(bytes) = inner.detokenizer.bytes(id) else { return };
        if self.skip_special && inner.detokenizer.is_special(id) {
            return;
        }
        let first_bytes;
        let bytes = if std::mem::take(&mut self.first)
            && let Some(plan) = inner.detokenizer.plan().filter(|plan| plan.first_differs)
        {
            let mut buffer = Vec::new();
            plan.bytes(&inner.encoder.id_to_token(id).unwrap_or_default(), true, &mut buffer);
            first_bytes = buffer;
            first_bytes.as_slice()
        } else {
            bytes
        };
        if self.pending.is_empty()
            && let Ok(text) = std::str::from_utf8(bytes)
            && !text.ends_with(char::REPLACEMENT_CHARACTER)
        {
            return self.emit(text, out);
        }
        self.pending.extend_from_slice(bytes);
        self.settle(out);
    }

    /// Takes several ids; see [`push`](Self::push).
    pub fn push_all(&mut self, ids: &[u32], out: &mut String) {
        for &id in ids {
            self.push(id, out);
        }
    }

    /// Ends the sequence: appends what was held back, invalid bytes as U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if let Some(window) = &mut self.window {
            return window.finish(&self.tokenizer, self.skip_special, out);
        }
        let pending = std::mem::take(&mut self.pending);
        self.emit_lossy(&pending, out);
    }

    /// Number of bytes held back.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Emits the pending bytes unless they end in something that is, or looks like, an unfinished character.
    fn settle(&mut self, out: &mut String) {
        let undecided = match self.pending.utf8_chunks().last() {
            Some(last) if !last.invalid().is_empty() => true,
            Some(last) => last.valid().ends_with(char::REPLACEMENT_CHARACTER),
            None => false,
        };
        if undecided && self.pending.len() <= MAX_PENDING_BYTES {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        let keep = if undecided { unfinished_suffix(&pending) } else { 0 };
        let cut = pending.len() - keep;
        self.emit_lossy(&pending[..cut], out);
        pending.drain(..cut);
        self.pending = pending;
    }

    fn emit_lossy(&mut self, bytes: &[u8], out: &mut String) {
        let invalid = self.tokenizer.inner.detokenizer.plan().map(|plan| plan.invalid);
        for chunk in bytes.utf8_chunks() {
            self.emit(chunk.valid(), out);
            let count = match invalid {
                Some(InvalidBytes::PerByte) => chunk.invalid().len(),
                _ => usize::from(!chunk.invalid().is_empty()),
            };
            for _ in 0..count {
                self.emit("\u{FFFD}", out);
            }
        }
    }

    fn emit(&mut self, mut text: &str, out: &mut String) {
        if self.strip_left > 0
            && let Some((content, _)) =
                self.tokenizer.inner.detokenizer.plan().and_then(|plan| plan.strip_start)
        {
            while self.strip_left > 0 && !text.is_empty() {
                match text.strip_prefix(content) {
                    Some(rest) => {
                        text = rest;
                        self.strip_left -= 1;
                    }
                    None => self.strip_left = 0,
                }
            }
        }
        out.push_str(text);
    }
}

/// Length of an incomplete but so far valid character at the end of `bytes`.
fn unfinished_suffix(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .rev()
        .find(|&len| {
            matches!(std::str::from_utf8(&bytes[bytes.len() - len..]), Err(e) if e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(0)
}

/// Decoding by comparing the text of a short run of ids with and without the newest one.
#[derive(Debug, Default)]
struct Window {
    ids: Vec<u32>,
    /// Text of the first `settled` ids.
    prefix: String,
    settled: usize,
}

/// Ids kept undecided at most; reached only by a sequence that keeps producing invalid bytes.
const MAX_WINDOW_IDS: usize = 256;

impl Window {
    fn push(&mut self, tokenizer: &Tokenizer, skip_special: bool, id: u32, out: &mut String) {
        // The library's decoders cannot all stand a sequence without any token.
        if !tokenizer.has_text(id, skip_special) {
            return;
        }
        let decode = |ids: &[u32]| tokenizer.inner.encoder.decode(ids, skip_special);
        if self.settled == 0 && !self.ids.is_empty() {
            self.prefix = decode(&self.ids);
            self.settled = self.ids.len();
        }
        self.ids.push(id);
        let text = decode(&self.ids);
        let undecided = text.len() <= self.prefix.len() || text.ends_with(char::REPLACEMENT_CHARACTER);
        if undecided && self.ids.len() < MAX_WINDOW_IDS {
            return;
        }
        out.push_str(added(&self.prefix, &text));
        self.ids.drain(..self.settled);
        self.prefix = decode(&self.ids);
        self.settled = self.ids.len();
    }

    fn finish(&mut self, tokenizer: &Tokenizer, skip_special: bool, out: &mut String) {
        let ids = std::mem::take(&mut self.ids);
        if ids.len() > self.settled {
            out.push_str(added(&self.prefix, &tokenizer.inner.encoder.decode(&ids, skip_special)));
        }
        *self = Self::default();
    }
}

/// What `text` has beyond the part it shares with `prefix`.
fn added<'a>(prefix: &str, text: &'a str) -> &'a str {
    let shared: usize =
        prefix.chars().zip(text.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    &text[shared..]
}

#[cfg(test)]
mod tests;
