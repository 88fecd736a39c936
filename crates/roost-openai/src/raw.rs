use std::fmt;

use bytes::Bytes;

/// One JSON value, verbatim, as a slice of the request body it came from.
///
/// Cloning shares the body; nothing is copied. The text is valid UTF-8 and one complete JSON value.
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(Bytes);

impl Raw {
    /// Takes the part of `body` that `text` points into; copies when `text` is from elsewhere.
    pub(crate) fn slice_of(body: &Bytes, text: &str) -> Self {
        let range = body.as_ptr_range();
        let at = text.as_bytes().as_ptr_range();
        if range.start <= at.start && at.end <= range.end {
            Raw(body.slice_ref(text.as_bytes()))
        } else {
            Raw(Bytes::copy_from_slice(text.as_bytes()))
        }
    }

    /// The part of a checked body at `range`, which must hold one complete value.
    pub(crate) fn slice_of_bytes(body: &Bytes, range: std::ops::Range<usize>) -> Self {
        Raw(body.slice(range))
    }

    /// All of `bytes`, which must hold one complete value.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Raw(bytes)
    }

    /// The bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Where the value stands in `body`; `None` when it is no part of it.
    pub fn offset_in(&self, body: &Bytes) -> Option<usize> {
        let at = (self.0.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
        (at + self.0.len() <= body.len()).then_some(at)
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a raw value is cut from checked UTF-8")
    }

    /// The JSON bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the value is the JSON literal `null`.
    pub fn is_null(&self) -> bool {
        self.0.as_ref() == b"null"
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}
