//! The few MessagePack primitives that are written or scanned by hand, where serde would cost a call per token
//! or a copy per item.

/// Writes a map header for `len` pairs.
pub(crate) fn put_map_len(out: &mut Vec<u8>, len: u32) {
    match len {
        0..=15 => out.push(0x80 | len as u8),
        16..=0xffff => {
            out.push(0xde);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(0xdf);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Writes a string of at most 31 bytes, which every key of ours is.
pub(crate) fn put_key(out: &mut Vec<u8>, key: &'static str) {
    debug_assert!(key.len() < 32);
    out.push(0xa0 | key.len() as u8);
    out.extend_from_slice(key.as_bytes());
}

/// Writes the header of an array.
pub(crate) fn put_array_len(out: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).expect("a prompt has fewer than 2^32 tokens");
    match len {
        0..=15 => out.push(0x90 | len as u8),
        16..=0xffff => {
            out.push(0xdc);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(0xdd);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Writes unsigned integers, each in its shortest form.
pub(crate) fn put_u32s(out: &mut Vec<u8>, values: &[u32]) {
    // Most ids are below 2^16.
    out.reserve(values.len() * 7 / 2);
    // Gathered before they are appended: one check of the room for many.
    let mut scratch = [0; CHUNK * 5];
    for chunk in values.chunks(CHUNK) {
        let mut end = 0;
        for &value in chunk {
            match value {
                0x100..=0xffff => {
                    scratch[end..end + 4].copy_from_slice(&((0xcd_0000 | value) << 8).to_be_bytes());
                    end += 3;
                }
                0x1_0000.. => {
                    scratch[end] = 0xce;
                    scratch[end + 1..end + 5].copy_from_slice(&value.to_be_bytes());
                    end += 5;
                }
                0x80..=0xff => {
                    scratch[end..end + 2].copy_from_slice(&[0xcc, value as u8]);
                    end += 2;
                }
                0..=0x7f => {
                    scratch[end] = value as u8;
                    end += 1;
                }
            }
        }
        out.extend_from_slice(&scratch[..end]);
    }
}

/// Integers that are gathered.
const CHUNK: usize = 64;

/// Writes a byte string holding the values as little-endian 32-bit integers.
pub(crate) fn put_u32_bytes(out: &mut Vec<u8>, values: &[u32]) {
    let len = u32::try_from(values.len() * 4).expect("a prompt has fewer than 2^30 tokens");
    out.reserve(5 + values.len() * 4);
    match len {
        0..=0xff => out.extend_from_slice(&[0xc4, len as u8]),
        0x100..=0xffff => {
            out.push(0xc5);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(0xc6);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// The byte that stands for null.
pub(crate) const NIL: u8 = 0xc0;

/// Reads what [`put_u32s`] wrote. Ends before what is none of it.
pub(crate) struct UintArray<'a>(&'a [u8]);

impl<'a> UintArray<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl Iterator for UintArray<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (value, len) = match *self.0 {
            [id @ 0..=0x7f, ..] => (u32::from(id), 1),
            [0xcc, id, ..] => (u32::from(id), 2),
            [0xcd, a, b, ..] => (u32::from(u16::from_be_bytes([a, b])), 3),
            [0xce, a, b, c, d, ..] => (u32::from_be_bytes([a, b, c, d]), 5),
            _ => return None,
        };
        self.0 = &self.0[len..];
        Some(value)
    }
}

/// Reads the outline of a value without decoding it.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads a map header and returns the number of pairs.
    pub(crate) fn map_len(&mut self) -> Option<u32> {
        match self.byte()? {
            marker @ 0x80..=0x8f => Some(u32::from(marker & 0x0f)),
            0xde => self.uint(2),
            0xdf => self.uint(4),
            _ => None,
        }
    }

    /// Reads a string.
    pub(crate) fn str(&mut self) -> Option<&'a [u8]> {
        let len = match self.byte()? {
            marker @ 0xa0..=0xbf => u32::from(marker & 0x1f),
            0xd9 => self.uint(1)?,
            0xda => self.uint(2)?,
            0xdb => self.uint(4)?,
            _ => return None,
        };
        self.take(len as usize)
    }

    /// Reads a boolean.
    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.byte()? {
            0xc2 => Some(false),
            0xc3 => Some(true),
            _ => None,
        }
    }

    /// Skips one value of any kind and returns its bytes. Needs no stack, however deeply it nests.
    pub(crate) fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.rest;
        let mut pending: u64 = 1;
        while pending > 0 {
            pending -= 1;
            let (payload, children): (u32, u64) = match self.byte()? {
                0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0),
                0xc1 => return None,
                marker @ 0x80..=0x8f => (0, 2 * u64::from(marker & 0x0f)),
                marker @ 0x90..=0x9f => (0, u64::from(marker & 0x0f)),
                marker @ 0xa0..=0xbf => (u32::from(marker & 0x1f), 0),
                0xc4 | 0xd9 => (self.uint(1)?, 0),
                0xc5 | 0xda => (self.uint(2)?, 0),
                0xc6 | 0xdb => (self.uint(4)?, 0),
                0xc7 => (self.uint(1)?.checked_add(1)?, 0),
                0xc8 => (self.uint(2)?.checked_add(1)?, 0),
                0xc9 => (self.uint(4)?.checked_add(1)?, 0),
                0xcc | 0xd0 => (1, 0),
                0xcd | 0xd1 => (2, 0),
                0xca | 0xce | 0xd2 => (4, 0),
                0xcb | 0xcf | 0xd3 => (8, 0),
                marker @ 0xd4..=0xd8 => (1 + (1 << (marker - 0xd4)), 0),
                0xdc => (0, u64::from(self.uint(2)?)),
                0xdd => (0, u64::from(self.uint(4)?)),
                0xde => (0, 2 * u64::from(self.uint(2)?)),
                0xdf => (0, 2 * u64::from(self.uint(4)?)),
            };
            self.take(payload as usize)?;
            pending = pending.checked_add(children)?;
            // Every value takes a byte, so more values than bytes cannot follow.
            if pending > self.rest.len() as u64 {
                return None;
            }
        }
        Some(&start[..start.len() - self.rest.len()])
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn uint(&mut self, len: usize) -> Option<u32> {
        Some(self.take(len)?.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }
}
