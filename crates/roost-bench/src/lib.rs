//! A client that replays agent sessions against OpenAI endpoints and measures them side by side.
//!
//! A [`roost_replay::Trace`] says what is sent when; [`Conversation`] makes text of its blocks, so that prompts have in
//! common what they have in common in the trace. [`compare()`] runs it against each [`Target`] in turn, several rounds,
//! and returns one [`Figures`] for each; [`table`], [`json`] and [`page`] write them. Knows nothing of options, and of servers
//! nothing but their HTTP API and, where their process id is given, their processor time and memory.

mod answer;
mod chart;
mod connection;
mod conversation;
mod page;
mod process;
mod report;
mod run;
mod target;
mod words;

pub use conversation::Conversation;
pub use page::page;
pub use report::{Figures, Quantiles, json, table};
pub use run::{Load, Progress, RunError, compare};
pub use target::{Target, TargetError};
