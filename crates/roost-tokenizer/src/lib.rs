//! Text to token ids and back: encoder backends, the incremental detokenizer and stop strings.
//! Knows nothing of templates or OpenAI.
//!
//! - [`Tokenizer`]: `tokenizer.json` behind one of two encoders, cheap to clone and to share.
//! - [`SegmentCache`]: ids of prompt segments that were encoded before, for all tokenizers of a process.
//! - [`EncodedPrompt`]: ids of a prompt that the next turn of a session goes on from.
//! - [`DecodeStream`]: ids of one generated sequence to text, never splitting a character.
//! - [`StopScanner`], [`StopIds`]: where a generated sequence ends.

mod backend;
mod boundaries;
mod cache;
mod decode_stream;
mod detokenizer;
mod error;
mod guard;
mod prompt;
mod stop;
mod tiktoken;
mod tokenizer;

pub use backend::Backend;
pub use cache::{CacheStats, Fingerprinter, SegmentCache};
pub use decode_stream::DecodeStream;
pub use error::Error;
pub use prompt::{EncodedPrompt, Mark};
pub use stop::{StopIds, StopKind, StopScanner};
pub use tokenizer::{Segment, Tokenizer, without_nul};

#[cfg(test)]
mod test_files;
