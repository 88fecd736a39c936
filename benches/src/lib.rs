//! Benchmarks that span crates; per-crate micro benches stay with their crate.
//!
//! - [`Conversation`]: an agent's session made from a seed, growing turn by turn, as request bodies.
//! - [`time`]: repeated timings of one step.
//! - [`route`]: the prompt path as a whole.
//! - [`hot`]: the hot paths as single steps whose instructions can be counted.

mod conversation;
pub mod hot;
pub mod route;
mod text;
pub mod time;

pub use conversation::{Conversation, Size};
