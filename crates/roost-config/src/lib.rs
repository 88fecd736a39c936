//! The option table: flags, environment names, defaults, validation, reference. Knows nothing of behaviour.
//!
//! One table ([`table`]) describes every option. From it come the parser, `--help`, the reference document, the
//! commented configuration file and `--dump-config`. [`parse`] turns a command line and an [`Environment`] into
//! a typed [`Command`]: plain structs in which nothing is left to interpret.
//!
//! Arguments are parsed by hand and not by a library, because three demands do not fit one: all mistakes of the
//! command line, the environment and the file are reported together; an option that exists in Dynamo but not
//! here is refused by its name; and values such as `None` or `false` in a variable follow Dynamo's rules.

mod args;
mod bench;
mod check;
mod command;
mod demo;
mod effective;
mod environment;
mod file;
mod help;
mod mock_worker;
mod problem;
mod questions;
mod reference;
mod replay;
mod resolve;
mod serve;
mod shell;
mod spec;
mod suggest;
pub mod table;
mod value;
mod values;
mod worker;
mod worker_plane;

#[cfg(test)]
mod tests;

pub use bench::Bench;
pub use check::Check;
pub use command::{Command, parse};
pub use demo::Demo;
pub use effective::{Effective, Entry, Source};
pub use environment::Environment;
pub use help::{command_help, general_help};
pub use mock_worker::{AnswerMode, MockWorker, WorkerRole};
pub use problem::{Problem, Problems};
pub use questions::{Explain, Frontend, Top, TopOrder};
pub use reference::{configuration_file, options_document};
pub use replay::{OptionSet, Replay};
pub use serve::{
    AffinityMode, AffinityOptions, BusyThresholds, CostOptions, DiscoveryBackend, DiscoveryOptions,
    DoorOptions, ErrorShape, EtcdOptions, EventOptions, FederationOptions, HistogramRange, HttpOptions,
    KeyOptions, KubernetesOptions, LimitOptions, LocalPrefillOptions, LocalPrefillPolicy, LogFormat,
    LogOptions, MetricsOptions, ModelOptions, NamespaceFilter, NatsOptions, PathOptions, PlaneOptions,
    PlaneTls, ProcessOptions, QueueOptions, QueuePolicy, ReasoningField, ReliabilityOptions, RouterMode,
    RouterOptions, Serve, SglangOptions, SpanOptions, TokenizerBackend, TokenizerOptions, TraceOptions,
};
pub use shell::{completions, manual};
pub use spec::{CommandSpec, Kind, OptionSpec, Section, Status, TimeUnit};
pub use worker::Worker;
pub use worker_plane::WorkerPlane;
