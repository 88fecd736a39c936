//! Which worker, and when: session affinity, load accounting, cost. A pure core and a thin handle. Knows
//! nothing of sockets, JSON or tokenizers.
//!
//! One [`Core`] per pool (a model in one role). [`Core::place`] turns a [`Request`] into a [`Placement`]
//! and books its load; the booking is told what becomes of the request and is given back at its end.
//! [`Router`] is the core behind a lock, [`Lease`] the booking as a guard.

mod affinity;
mod busy;
mod conditional;
mod config;
mod core;
mod cost;
mod explain;
#[cfg(test)]
mod fixtures;
mod fleet;
mod handle;
mod load;
mod policy;
mod popularity;
mod quarantine;
mod queue;
pub mod replica;
mod request;
mod room;
mod stats;

pub use crate::core::{Core, Expired, Preview, Submitted};
pub use affinity::{AffinityOutcome, RebindReason, SavedBinding, SessionView, Sessions};
pub use busy::BusyThresholds;
pub use conditional::{LocalPrefill, LocalPrefillPolicy, Outlook};
pub use config::{
    AffinityConfig, AffinityMode, BoundConfig, Config, ConfigError, CostConfig, Mode, QuarantineConfig, Role,
};
pub use cost::{RankLoad, Terms};
pub use explain::{Candidate, Decision, Outcome, Reason};
pub use fleet::Worker;
pub use handle::{Lease, Router, Submission, Waiting};
pub use load::BookingId;
pub use quarantine::Failure;
pub use queue::{QueueConfig, QueuePolicy, QueueSize, TicketId};
pub use request::{Constraints, End, Pin, Placement, Rejection, Request};
pub use room::bootstrap_room;
pub use stats::{RankSnapshot, Snapshot, Stats};
