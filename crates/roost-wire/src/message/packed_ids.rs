use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::msgpack;

/// Most pieces of one sequence; more are joined.
const PIECES: usize = 16;

/// Ids in a row, each in the form MessagePack writes it: 1 to 5 bytes, about 3 for those of a text.
///
/// A sequence that goes on behind the beginning of another one shares the bytes of that beginning, and a clone shares
/// all of them.
#[derive(Clone, Default)]
pub struct PackedIds {
    pieces: Arc<[Piece]>,
    len: usize,
    bytes: usize,
}

#[derive(Clone)]
struct Piece {
    bytes: Bytes,
    /// Bytes that are held in memory for it.
    held: usize,
}

impl PackedIds {
    /// Packs ids.
    #[must_use]
    pub fn new(ids: &[u32]) -> Self {
        Self::default().grown(0, 0, Packer::default().with(ids))
    }

    /// The first `len` ids, which take `bytes` bytes, with those of `tail` behind them.
    ///
    /// # Panics
    /// Where that many ids do not take that many bytes; if it cannot be seen, the ids are wrong.
    #[must_use]
    pub fn grown(&self, len: usize, bytes: usize, tail: Packer) -> Self {
        assert!(len <= self.len && bytes <= self.bytes && len <= bytes, "a beginning of the sequence");
        let mut pieces = Vec::with_capacity(self.pieces.len() + 1);
        let mut left = bytes;
        for piece in self.pieces.iter() {
            let part = left.min(piece.bytes.len());
            if part > 0 {
                pieces.push(piece.cut(part));
            }
            left -= part;
        }
        let Packer { out, len: more } = tail;
        let bytes = bytes + out.len();
        if !out.is_empty() {
            pieces.push(Piece::new(out));
        }
        if pieces.len() > PIECES {
            let mut joined = Vec::with_capacity(bytes);
            pieces.iter().for_each(|piece| joined.extend_from_slice(&piece.bytes));
            pieces = vec![Piece::new(joined)];
        }
        Self { pieces: pieces.into(), len: len + more, bytes }
    }

    /// Number of ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the packed ids.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory that are held; those of pieces that other sequences share count for each.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.pieces.iter().map(|piece| size_of::<Piece>() + piece.held).sum()
    }

    /// The ids from byte `offset` on, where one has to begin.
    pub fn ids_from(&self, mut offset: usize) -> impl Iterator<Item = u32> + '_ {
        let first = self.pieces.iter().take_while(|piece| {
            let before = offset >= piece.bytes.len();
            offset -= if before { piece.bytes.len() } else { 0 };
            before
        });
        let first = first.count();
        let pieces = self.pieces.get(first..).unwrap_or_default();
        pieces.iter().enumerate().flat_map(move |(at, piece)| {
            let start = if at == 0 { offset } else { 0 };
            msgpack::UintArray::new(&piece.bytes[start..])
        })
    }

    /// The packed ids, piece by piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter().map(|piece| &piece.bytes)
    }
}

impl Piece {
    fn new(bytes: Vec<u8>) -> Self {
        let held = bytes.len();
        Self { bytes: bytes.into_boxed_slice().into(), held }
    }

    /// The first bytes: shared, unless most of what is held would be held for nothing.
    fn cut(&self, len: usize) -> Self {
        if len * 4 < self.held * 3 {
            return Self::new(self.bytes[..len].to_vec());
        }
        Self { bytes: self.bytes.slice(..len), held: self.held }
    }
}

impl fmt::Debug for PackedIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedIds")
            .field("len", &self.len)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Ids being packed, to go behind others.
#[derive(Debug, Default)]
pub struct Packer {
    out: Vec<u8>,
    len: usize,
}

impl Packer {
    /// Packs more ids.
    pub fn put(&mut self, ids: &[u32]) {
        msgpack::put_u32s(&mut self.out, ids);
        self.len += ids.len();
    }

    /// Bytes so far.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.out.len()
    }

    fn with(mut self, ids: &[u32]) -> Self {
        self.put(ids);
        self
    }
}
