//! The worker TCP plane, both ends: frames, messages, connection pool, response listener, worker listener.
//! Knows nothing of discovery, routing or OpenAI.

mod codec;
mod fault;
pub mod message;
mod msgpack;

pub use codec::{Codec, CodecError};
pub use fault::Fault;
