//! Benchmarks that span crates; per-crate micro benches stay with their crate.
//!
//! - [`Conversation`]: an agent's session made from a seed, growing turn by turn, as request bodies.
//! - [`time`]: repeated timings of one step.

mod conversation;
mod text;
pub mod time;

pub use conversation::{Conversation, Size};
