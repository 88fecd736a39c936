//! The worker TCP plane, both ends: frames, messages, connection pool, response listener, worker listener.
//! Knows nothing of discovery, routing or OpenAI.

mod client;
mod codec;
mod fault;
#[cfg(test)]
mod fixtures;
pub mod frame;
mod line;
mod listener;
pub mod message;
mod msgpack;
mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod transport;
mod worker;

pub use client::{Call, CallError, Client, ClientConfig, Target, TargetError};
pub use codec::{Codec, CodecError};
pub use fault::Fault;
pub use listener::{ListenerConfig, ResponseListener};
pub use stats::{ClientStats, ListenerStats, WorkerStats};
pub use stream::{RawStream, ResponseStream, StreamError};
pub use transport::{ListenTls, TlsError, TlsFiles, Transport};
pub use worker::{
    Admission, BoxFuture, Cancellation, Handler, Item, ItemStream, Misbehaviour, RequestContext,
    WorkerConfig, WorkerListener,
};
