//! Server-sent events out of pieces of a body.

use bytes::{Bytes, BytesMut};
use memchr::memmem;

/// Largest event. A cumulative answer repeats all of its text and ids in each.
pub(super) const MAX_EVENT: usize = 64 << 20;

/// Splits a stream into the data of its events. Every byte is looked at once.
#[derive(Debug, Default)]
pub(super) struct Events {
    buffer: BytesMut,
    /// Up to here there is no end of an event.
    searched: usize,
}

impl Events {
    /// Takes more bytes. False: an event has grown too large.
    pub(super) fn push(&mut self, bytes: Bytes) -> bool {
        if self.buffer.is_empty() {
            // As a rule a piece is one whole event, which need not be copied.
            self.buffer = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            self.searched = 0;
        } else {
            self.buffer.extend_from_slice(&bytes);
        }
        self.buffer.len() <= MAX_EVENT
    }

    /// The data of the next whole event; several data lines are rare enough to be no case of SGLang's.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        loop {
            let from = self.searched.saturating_sub(3);
            let Some((end, gap)) = end_of_event(&self.buffer[from..]) else {
                self.searched = self.buffer.len();
                return None;
            };
            let event = self.buffer.split_to(from + end).freeze();
            let _gap = self.buffer.split_to(gap);
            self.searched = 0;
            for line in event.split(|&byte| byte == b'\n') {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                if let Some(data) = line.strip_prefix(b"data:") {
                    return Some(event.slice_ref(data.strip_prefix(b" ").unwrap_or(data)));
                }
            }
            // A comment.
        }
    }
}

/// Where an event ends, and the length of the empty line behind it.
fn end_of_event(bytes: &[u8]) -> Option<(usize, usize)> {
    let plain = memmem::find(bytes, b"\n\n").map(|at| (at, 2));
    let dressed = memmem::find(bytes, b"\r\n\r\n").map(|at| (at, 4));
    [plain, dressed].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&str]) -> Vec<String> {
        let mut events = Events::default();
        let mut found = Vec::new();
        for piece in pieces {
            assert!(events.push(Bytes::copy_from_slice(piece.as_bytes())));
            found.extend(
                std::iter::from_fn(|| events.next()).map(|e| String::from_utf8_lossy(&e).into_owned()),
            );
        }
        found
    }

    #[test]
    fn any_split_gives_the_same_events() {
        let text =
            ": hello\n\ndata: {\"a\":1}\n\ndata:{\"b\":\"x\"}\r\n\r\nevent: e\ndata: [DONE]\n\ndata: cut";
        let whole = all(&[text]);
        assert_eq!(whole, ["{\"a\":1}", "{\"b\":\"x\"}", "[DONE]"]);
        for step in 1..text.len() {
            let pieces: Vec<&str> =
                text.as_bytes().chunks(step).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            assert_eq!(all(&pieces), whole, "in steps of {step}");
        }
    }
}
