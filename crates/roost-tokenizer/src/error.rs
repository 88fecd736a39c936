//! What can go wrong between text and ids.

use std::path::PathBuf;

/// Failures of loading a tokenizer and of encoding with it. Decoding cannot fail: unknown ids are no text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tokenizer file cannot be read.
    #[error("cannot read tokenizer file {path}")]
    Read {
        /// The file that was asked for.
        path: PathBuf,
        /// Why the operating system refused.
        source: std::io::Error,
    },
    /// The file was read, but the chosen backend (and its fallback, if allowed) cannot use it.
    #[error("tokenizer file {path} cannot be used: {reason}")]
    Load {
        /// The file that was asked for.
        path: PathBuf,
        /// The backend's own explanation.
        reason: String,
    },
    /// A text was refused by the backend. The text is at fault, not the tokenizer.
    #[error("text cannot be encoded: {0}")]
    Encode(String),
}
