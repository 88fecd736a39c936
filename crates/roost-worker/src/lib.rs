//! The worker side of the plane: what a process needs to serve an inference engine to a frontend.
//!
//! One trait, [`Engine`], is the seam. [`WorkerServer`] puts any engine on the request plane, registers
//! it in discovery and publishes its KV-cache events; [`MockEngine`] is an engine without a GPU, with a
//! page-granular prefix cache, simulated timing and scripted answers. Knows nothing of the frontend.

mod cache;
mod cancel;
mod card;
mod engine;
mod journal;
mod mock;
mod models;
mod script;
mod server;

pub use cache::{Admission, CacheFull, PrefixCache};
pub use cancel::{Cancel, CancelKind};
pub use card::{BootstrapEndpoint, EngineCard, ModelFiles, Role};
pub use engine::{Engine, EngineContext, EngineError, KvChange, KvChanges, OutputStream, RankLoad};
pub use journal::{Began, Cancellation, Finish, Finished, Journal, JournalEntry, RequestRecord, WaitTimeout};
pub use mock::{
    Answer, DecodeFn, EncodeFn, MockConfig, MockEngine, MockTiming, TextCodec, Transfers, recital,
};
pub use models::tiny_chat;
pub use script::{Script, ScriptBook, ScriptError, Step};
pub use server::{
    EventsConfig, Fault, Faults, RunningWorker, StartError, SystemConfig, WorkerConfig, WorkerServer,
};
