//! Every option of every command.
//!
//! A section is a group of options with a title; a command is a list of sections. An option that Dynamo's frontend
//! has and roost does not is in the table too, as refused: naming it gives a clear answer instead of silence.

mod bench;
mod demo;
mod discovery;
mod door;
mod explain;
mod general;
mod http;
mod limits;
mod model;
mod nats;
mod observe;
mod other_features;
mod plane_tls;
mod planes;
mod process;
mod reliability;
mod replay;
mod router;
mod router_other;
mod sglang;
mod worker;

use crate::spec::{CommandSpec, OptionSpec, Section, Status};

/// What the program is, in one sentence.
pub const ABOUT: &str =
    "roost: a session-affinity, KV-aware router and OpenAI-compatible server in front of Dynamo workers.";

/// `roost serve`: the frontend.
pub static SERVE: CommandSpec = CommandSpec {
    name: "serve",
    about: "Serve the OpenAI-compatible API in front of discovered workers.",
    sections: &[
        Section { title: "General", key: "general", options: general::OPTIONS },
        Section { title: "HTTP", key: "http", options: http::OPTIONS },
        Section { title: "Access", key: "access", options: door::OPTIONS },
        Section { title: "Routing", key: "router", options: router::OPTIONS },
        Section { title: "Session affinity", key: "affinity", options: router::AFFINITY },
        Section { title: "Retries and deadlines", key: "reliability", options: reliability::OPTIONS },
        Section { title: "Request and response plane", key: "plane", options: planes::OPTIONS },
        Section { title: "TLS on that plane", key: "plane-tls", options: plane_tls::OPTIONS },
        Section { title: "Discovery", key: "discovery", options: discovery::OPTIONS },
        Section { title: "Plain SGLang servers", key: "sglang", options: sglang::OPTIONS },
        Section { title: "Events", key: "events", options: planes::EVENTS },
        Section { title: "Model and tokenizer", key: "model", options: model::OPTIONS },
        Section { title: "Limits", key: "limits", options: limits::OPTIONS },
        Section { title: "Metrics", key: "metrics", options: observe::METRICS },
        Section { title: "Logs", key: "log", options: observe::LOG },
        Section { title: "Traces", key: "trace", options: observe::TRACE },
        Section { title: "Process", key: "process", options: process::OPTIONS },
        Section { title: "Routing features of Dynamo", key: "router-other", options: router_other::OPTIONS },
        Section { title: "Other features of Dynamo", key: "other", options: other_features::OPTIONS },
    ],
    reads_config_file: true,
    positional: None,
};

/// `roost check`: whether `serve` would serve.
pub static CHECK: CommandSpec = CommandSpec {
    name: "check",
    about: "See whether `roost serve` with the same options would serve: ports, store, workers, models. Takes its options, too.",
    sections: &[Section { title: "Check", key: "check", options: general::CHECK }],
    reads_config_file: false,
    positional: None,
};

/// `roost mock-worker`: workers without a model.
pub static MOCK_WORKER: CommandSpec = CommandSpec {
    name: "mock-worker",
    about: "Run workers that behave like an engine's, without a model, for trials and tests.",
    sections: &[
        Section { title: "Model", key: "model", options: worker::MODEL },
        Section { title: "Engine", key: "engine", options: worker::ENGINE },
        Section { title: "Network", key: "network", options: worker::NETWORK },
        Section { title: "TLS to frontends", key: "plane-tls", options: plane_tls::OPTIONS },
        Section { title: "Discovery", key: "discovery", options: discovery::STORE },
        Section { title: "Events", key: "events", options: planes::WORKER_EVENTS },
        Section { title: "Logs", key: "log", options: observe::LOG },
    ],
    reads_config_file: false,
    positional: None,
};

/// `roost worker`: a plain SGLang server behind the plane.
pub static WORKER: CommandSpec = CommandSpec {
    name: "worker",
    about: "Put a plain SGLang server on the worker plane, for roost and for Dynamo frontends.",
    sections: &[
        Section { title: "Engine", key: "engine", options: sglang::ENGINE },
        Section { title: "Network", key: "network", options: worker::NETWORK },
        Section { title: "TLS to frontends", key: "plane-tls", options: plane_tls::OPTIONS },
        Section { title: "Discovery", key: "discovery", options: discovery::STORE },
        Section { title: "Events", key: "events", options: planes::WORKER_EVENTS },
        Section { title: "Logs", key: "log", options: observe::LOG },
    ],
    reads_config_file: false,
    positional: None,
};

/// `roost demo`: a frontend and mock workers in one process.
pub static DEMO: CommandSpec = CommandSpec {
    name: "demo",
    about: "Run a frontend and mock workers in one process and show a conversation.",
    sections: &[
        Section { title: "Demonstration", key: "demo", options: demo::OPTIONS },
        Section { title: "Logs", key: "log", options: observe::LOG },
    ],
    reads_config_file: false,
    positional: None,
};

/// `roost explain`: why a request went where it went.
pub static EXPLAIN: CommandSpec = CommandSpec {
    name: "explain",
    about: "Ask a running frontend why a request or the turns of a session went where they went.",
    sections: &[
        Section { title: "Question", key: "explain", options: explain::EXPLAIN },
        Section { title: "Frontend", key: "frontend", options: explain::FRONTEND },
    ],
    reads_config_file: false,
    positional: Some("id"),
};

/// `roost top`: what the fleet does.
pub static TOP: CommandSpec = CommandSpec {
    name: "top",
    about: "Show the workers, sessions and alarms of a running frontend in the terminal.",
    sections: &[
        Section { title: "View", key: "top", options: explain::TOP },
        Section { title: "Frontend", key: "frontend", options: explain::FRONTEND },
    ],
    reads_config_file: false,
    positional: Some("filter"),
};

/// `roost replay-routing`: what a trace would have met.
pub static REPLAY: CommandSpec = CommandSpec {
    name: "replay-routing",
    about: "Run a recorded or generated trace through the router over a simulated fleet, with any sets of options.",
    sections: &[
        Section { title: "Trace", key: "trace", options: replay::TRACE },
        Section { title: "Options to compare", key: "compare", options: replay::COMPARE },
        Section { title: "Simulated fleet", key: "fleet", options: replay::FLEET },
    ],
    reads_config_file: false,
    positional: Some("trace"),
};

/// `roost bench`: sessions replayed against live endpoints.
pub static BENCH: CommandSpec = CommandSpec {
    name: "bench",
    about: "Replay agent sessions against OpenAI endpoints and measure them side by side; also called `replay`.",
    sections: &[
        Section { title: "Endpoints", key: "targets", options: bench::TARGETS },
        Section { title: "Trace", key: "trace", options: bench::TRACE },
        Section { title: "Load", key: "load", options: bench::LOAD },
    ],
    reads_config_file: false,
    positional: Some("url"),
};

/// Every command, in the order of the help.
pub static COMMANDS: &[&CommandSpec] =
    &[&SERVE, &CHECK, &WORKER, &MOCK_WORKER, &DEMO, &EXPLAIN, &TOP, &REPLAY, &BENCH];

/// Name of the option that names the configuration file.
pub(crate) const CONFIG: &str = general::CONFIG.name;

/// That option.
pub(crate) const CONFIG_OPTION: OptionSpec = general::CONFIG;

/// Name of the option that prints the effective configuration.
pub(crate) const DUMP_CONFIG: &str = general::DUMP_CONFIG.name;

/// Whether the option is about the configuration file and so cannot be in one.
pub(crate) fn is_about_the_file(spec: &OptionSpec) -> bool {
    spec.name == CONFIG || spec.name == DUMP_CONFIG
}

/// Whether a value of the option has an effect.
pub fn is_supported(spec: &OptionSpec) -> bool {
    spec.status == Status::Supported
}

/// Reason of options that exist in Dynamo and not in this build.
pub(crate) const NOT_AVAILABLE: &str = "not available in this build";
