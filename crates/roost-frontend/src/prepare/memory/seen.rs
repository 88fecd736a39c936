//! The messages of a request as slices of its body, and which of them the turn before had too.

use std::ops::Range;

use serde_json::value::RawValue;

/// Where the messages of a JSON list end, and what they are, without their bytes.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Offset in the list behind each message.
    ends: Vec<u32>,
    /// Fingerprint of each message with what stands between it and the one before.
    fingerprints: Vec<u128>,
}

/// A list cut into its messages.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) seen: Seen,
    /// Messages at the start that are those of the turn before.
    pub(super) unchanged: usize,
}

impl Seen {
    /// How many of the first messages stand at the start of `bytes` too, and where the last of these ends.
    pub(super) fn shared(&self, bytes: &[u8], fingerprint: impl Fn(&[u8]) -> u128) -> (usize, usize) {
        let mut at = 0;
        let shared = self.ends.iter().zip(&self.fingerprints).take_while(|(end, known)| {
            let same = bytes.get(at..**end as usize).is_some_and(|piece| fingerprint(piece) == **known);
            if same {
                at = **end as usize;
            }
            same
        });
        (shared.count(), at)
    }

    /// Cuts a JSON list. The first `unchanged` messages are those of the earlier list, as [`shared`](Self::shared)
    /// tells, and are cut where they were; only the rest is parsed. `None` when it is no list of values or larger than
    /// 4 GiB.
    pub(super) fn split(
        raw: &str,
        (before, unchanged): (Option<&Self>, usize),
        fingerprint: impl Fn(&[u8]) -> u128,
    ) -> Option<Split> {
        u32::try_from(raw.len()).ok()?;
        let bytes = raw.as_bytes();
        let mut seen = before.map_or_else(Self::default, |before| before.first(unchanged));
        let mut at = seen.ends.last().map_or(0, |end| *end as usize);
        // After a message there is a comma or the end of the list.
        let rest = raw.get(at..)?.trim_start();
        let opening = if unchanged == 0 { '[' } else { ',' };
        if let Some(rest) = rest.strip_prefix(opening) {
            let offset = raw.len() - rest.len();
            let list = ["[", rest].concat();
            let messages: Vec<&RawValue> = serde_json::from_str(&list).ok()?;
            for message in messages {
                let message = message.get();
                let end = message.as_ptr() as usize - list.as_ptr() as usize + message.len() - 1 + offset;
                seen.push(end as u32, fingerprint(&bytes[at..end]));
                at = end;
            }
        } else if rest != "]" {
            return None;
        }
        Some(Split { seen, unchanged })
    }

    pub(super) fn bytes(&self) -> usize {
        self.ends.capacity() * size_of::<u32>() + self.fingerprints.capacity() * size_of::<u128>()
    }

    fn first(&self, count: usize) -> Self {
        // A turn adds a few messages to those before.
        let mut first =
            Self { ends: Vec::with_capacity(count + 8), fingerprints: Vec::with_capacity(count + 8) };
        first.ends.extend_from_slice(&self.ends[..count]);
        first.fingerprints.extend_from_slice(&self.fingerprints[..count]);
        first
    }

    fn push(&mut self, end: u32, fingerprint: u128) {
        self.ends.push(end);
        self.fingerprints.push(fingerprint);
    }
}

impl Split {
    /// Where the messages stand in `raw`, the list that was cut.
    pub(super) fn messages<'a>(&'a self, raw: &'a str) -> impl Iterator<Item = Range<u32>> + 'a {
        let starts = std::iter::once(0).chain(self.seen.ends.iter().copied());
        starts.zip(&self.seen.ends).map(|(start, end)| {
            let piece = &raw.as_bytes()[start as usize..*end as usize];
            // A message is no list: a bracket before it is that of the list around it.
            let before =
                piece.iter().take_while(|byte| matches!(byte, b'[' | b',') || byte.is_ascii_whitespace());
            start + before.count() as u32..*end
        })
    }
}

/// The beginning of a list of messages up to the end of the second one: what tells conversations apart that have no
/// session.
pub(super) fn opening(raw: &str) -> Option<&str> {
    let mut at = 0;
    for mark in ['[', ','] {
        let rest = raw[at..].trim_start();
        let Some(rest) = rest.strip_prefix(mark) else { break };
        let start = raw.len() - rest.len();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        values.next()?.ok()?;
        at = start + values.byte_offset();
    }
    Some(&raw[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stands for a fingerprint: the length and all bytes, small enough for these texts.
    fn fingerprint(bytes: &[u8]) -> u128 {
        bytes
            .iter()
            .fold(bytes.len() as u128, |sum, byte| sum.wrapping_mul(257).wrapping_add(u128::from(*byte)))
    }

    fn cut(raw: &str, before: Option<&Seen>) -> Option<(Vec<String>, usize, Seen)> {
        let unchanged = before.map_or(0, |before| before.shared(raw.as_bytes(), fingerprint).0);
        let split = Seen::split(raw, (before, unchanged), fingerprint)?;
        Some((
            split.messages(raw).map(|at| raw[at.start as usize..at.end as usize].to_owned()).collect(),
            split.unchanged,
            split.seen,
        ))
    }

    #[test]
    fn a_longer_list_is_cut_where_the_shorter_was() {
        let first = "[ {\"a\":[1,2]} ,\n{\"b\":\"]},\"}]";
        let (messages, unchanged, seen) = cut(first, None).unwrap();
        assert_eq!((messages, unchanged), (vec!["{\"a\":[1,2]}".into(), "{\"b\":\"]},\"}".into()], 0));
        for (next, same, count) in [
            ("[ {\"a\":[1,2]} ,\n{\"b\":\"]},\"} , {\"c\":\"é\"} ]", 2, 3),
            ("[ {\"a\":[1,2]} ,\n{\"b\":\"]},\"}\n]", 2, 2),
            (first, 2, 2),
            ("[ {\"a\":[1,2]} ,\n{\"b\":\"]},!\"}]", 1, 2),
            ("[ {\"a\":[1,2]}]", 1, 1),
            ("[{\"a\":[1,2]} ,\n{\"b\":\"]},\"}]", 0, 2),
            ("[{}]", 0, 1),
        ] {
            let (messages, unchanged, _) = cut(next, Some(&seen)).unwrap();
            assert_eq!(unchanged, same, "{next}");
            assert_eq!(messages.len(), count, "{next}");
            let parsed: Vec<&RawValue> = serde_json::from_str(next).unwrap();
            assert_eq!(messages, parsed.into_iter().map(RawValue::get).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_no_list_is_not_cut() {
        for raw in ["{}", "[1", "[1 2]", "3", "", "[1]]"] {
            assert!(cut(raw, None).is_none(), "{raw}");
        }
        let (_, _, seen) = cut("[1,2]", None).unwrap();
        for raw in ["[1,2", "[1,23]", "[1,2]]", "[1,2 3]"] {
            assert!(
                cut(raw, Some(&seen)).is_none_or(|(messages, ..)| serde_json::from_str::<Vec<u32>>(raw)
                    .is_ok_and(|list| list.len() == messages.len())),
                "{raw}"
            );
        }
    }

    #[test]
    fn the_opening_ends_behind_the_second_message() {
        assert_eq!(opening("[{\"a\":1}, {\"b\":2}, {}]"), Some("[{\"a\":1}, {\"b\":2}"));
        assert_eq!(opening("[{\"a\":1}]"), Some("[{\"a\":1}"));
        assert_eq!(opening("[]"), None);
    }
}
