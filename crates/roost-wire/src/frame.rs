//! The three frame layouts of the plane. Lengths are checked before anything is allocated for them.

mod ack;
mod request;
mod two_part;

pub use ack::Ack;
pub use request::{RequestFrame, RequestHead};
pub use two_part::TwoPart;
pub(crate) use two_part::put_data;

/// Largest request frame unless configured otherwise.
pub const DEFAULT_MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// Bytes that are no frame, or one that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The whole frame would exceed the limit.
    #[error("message too large: {len} bytes (max: {max} bytes)")]
    TooLarge {
        /// Bytes of the whole frame.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// A part does not have the form that it must have.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
}

#[cfg(test)]
mod tests;
