use super::FrameError;
use crate::text;

/// Longest text that is believed to be an acknowledgement.
const MAX_TEXT: usize = 64 * 1024;
const OVERLOADED: &str = "Server overloaded:";
const UNAVAILABLE: &str = "Server unavailable:";

/// What a worker says to a request frame. It says nothing about the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ack {
    /// Queued.
    Accepted,
    /// This worker is full; the text says of what.
    Overloaded(String),
    /// Not served here; the text says why.
    Unavailable(String),
    /// The frame could not be read; the whole text. The worker closes the connection.
    Refused(String),
}

impl Ack {
    /// The acknowledgement of a path that nothing is registered for.
    #[must_use]
    pub fn unknown_endpoint(path: &str) -> Self {
        Self::Unavailable(format!("unknown endpoint {path}"))
    }

    /// The acknowledgement of a worker that takes no more requests for now.
    #[must_use]
    pub fn at_capacity() -> Self {
        Self::Overloaded("worker at capacity".to_owned())
    }

    /// The acknowledgement of a frame that could not be read.
    #[must_use]
    pub fn unreadable(error: FrameError) -> Self {
        Self::Refused(format!("Read error: {error}"))
    }

    /// Reads the acknowledgement at the front of `bytes`, if all of it is there, and its length.
    ///
    /// Text that is no known refusal counts as acceptance, as it does for the peer.
    ///
    /// # Errors
    /// The length is beyond reason, or the text is not UTF-8.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        if len > MAX_TEXT {
            return Err(FrameError::TooLarge { len: len as u64, max: MAX_TEXT as u64 });
        }
        let Some(text) = rest.get(..len) else { return Ok(None) };
        let text = std::str::from_utf8(text).map_err(|_| FrameError::Malformed("ack is not UTF-8"))?;
        let ack = if let Some(what) = text.strip_prefix(OVERLOADED) {
            Self::Overloaded(what.trim_start().to_owned())
        } else if let Some(why) = text.strip_prefix(UNAVAILABLE) {
            Self::Unavailable(why.trim_start().to_owned())
        } else if text.starts_with("Read error:") || text.starts_with("Invalid endpoint path") {
            Self::Refused(text.to_owned())
        } else {
            Self::Accepted
        };
        Ok(Some((ack, 4 + len)))
    }

    /// Appends the acknowledgement to `out`; text beyond 64 KiB is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (prefix, gap, text) = match self {
            Self::Accepted => ("", "", ""),
            Self::Overloaded(what) => (OVERLOADED, " ", what.as_str()),
            Self::Unavailable(why) => (UNAVAILABLE, " ", why.as_str()),
            Self::Refused(text) => ("", "", text.as_str()),
        };
        let text = text::cut(text, MAX_TEXT - prefix.len() - gap.len());
        let len = (prefix.len() + gap.len() + text.len()) as u32;
        out.extend_from_slice(&len.to_be_bytes());
        for part in [prefix, gap, text] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}
