use super::FrameError;

/// Two lengths and a checksum.
const PREFIX: usize = 24;

/// The container of both planes: a control part, a data part, either of which may be empty.
///
/// The checksum of the layout is written as zero and ignored when read, as release builds of the peer do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwoPart<'a> {
    /// Control part, JSON.
    pub header: &'a [u8],
    /// Data part, in the codec of the request.
    pub body: &'a [u8],
}

impl<'a> TwoPart<'a> {
    /// Reads the message at the front of `bytes`, if all of it is there, and its length with the prefix.
    ///
    /// # Errors
    /// The message would be longer than `max` bytes.
    pub fn decode(bytes: &'a [u8], max: usize) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let header_len = word(prefix, 0);
        let len = header_len.saturating_add(word(prefix, 1)).saturating_add(PREFIX as u64);
        if len > max as u64 {
            return Err(FrameError::TooLarge { len, max: max as u64 });
        }
        // Below `max`, which is a `usize`.
        let (len, header_len) = (len as usize, header_len as usize);
        let Some(parts) = rest.get(..len - PREFIX) else { return Ok(None) };
        let (header, body) = parts.split_at(header_len);
        Ok(Some((Self { header, body }, len)))
    }

    /// The length that the message at the front announces for itself, saturating, if its prefix is there.
    pub(crate) fn announced_len(bytes: &[u8]) -> Option<usize> {
        let prefix = bytes.first_chunk::<PREFIX>()?;
        let len = word(prefix, 0).saturating_add(word(prefix, 1)).saturating_add(PREFIX as u64);
        Some(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_prefix(out, self.header.len(), self.body.len());
        out.extend_from_slice(self.header);
        out.extend_from_slice(self.body);
    }
}

/// Appends what precedes the parts of a message with these lengths.
pub(crate) fn put_prefix(out: &mut Vec<u8>, header_len: usize, body_len: usize) {
    out.extend_from_slice(&(header_len as u64).to_be_bytes());
    out.extend_from_slice(&(body_len as u64).to_be_bytes());
    out.extend_from_slice(&0u64.to_be_bytes());
}

/// Appends a message of which only the data part is written, by `body`, whose length is filled in afterwards.
pub(crate) fn put_data<E>(
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    put_prefix(out, 0, 0);
    if let Err(error) = body(out) {
        out.truncate(start);
        return Err(error);
    }
    let body_len = (out.len() - start - PREFIX) as u64;
    out[start + 8..start + 16].copy_from_slice(&body_len.to_be_bytes());
    Ok(())
}

fn word(prefix: &[u8; PREFIX], index: usize) -> u64 {
    let (words, _) = prefix.as_chunks::<8>();
    u64::from_be_bytes(words[index])
}
