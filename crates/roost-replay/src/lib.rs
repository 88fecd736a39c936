//! Traces of agent sessions, recorded or generated, and their replay through the routing core over a simulated
//! fleet. Pure and synchronous: time is simulated, the same input gives the same result. Knows nothing of sockets,
//! HTTP or options.
//!
//! A [`Trace`] is read from a file ([`read()`]) or made by a seeded [`Generator`]. [`replay()`] runs it against a
//! [`roost_router::Core`] and a [`roost_kv::Index`] and returns an [`Outcome`]; [`table`] writes several beside each
//! other.

mod fleet;
mod generate;
mod read;
mod replay;
mod report;
mod shape;
mod trace;

pub use fleet::FleetConfig;
pub use generate::{Generator, GeneratorError};
pub use read::{ReadError, read};
pub use replay::{Pace, replay};
pub use report::{Balance, Outcome, Spread, json, table};
pub use shape::Shape;
pub use trace::{Content, Origin, Prompts, Session, Start, Trace, Turn};
