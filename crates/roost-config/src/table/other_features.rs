//! Features of Dynamo's frontend that roost does not have.

use super::NOT_AVAILABLE;
use crate::spec::{Kind, OptionSpec, integer, option};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option("enable-streaming-tool-dispatch", Kind::Switch, "Extra events for tool calls.")
        .env(&["DYN_ENABLE_STREAMING_TOOL_DISPATCH"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("enable-streaming-reasoning-dispatch", Kind::Switch, "Extra events for reasoning.")
        .env(&["DYN_ENABLE_STREAMING_REASONING_DISPATCH"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("kserve-grpc-server", Kind::Switch, "Serve the KServe protocol.")
        .env(&["DYN_KSERVE_GRPC_SERVER"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("grpc-metrics-port", integer(0, 65_535), "Metrics port of that server.")
        .env(&["DYN_GRPC_METRICS_PORT"])
        .default("8788")
        .no_effect("there is no gRPC server"),
    option("interactive", Kind::Switch, "Chat in the terminal.")
        .env(&["DYN_INTERACTIVE"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("frontend-route-extension", Kind::Text, "Python module with further routes.")
        .env(&["DYN_FRONTEND_ROUTE_EXTENSIONS"])
        .refused("Python modules cannot be loaded"),
    option("dump-config-to", Kind::Path, "Write the configuration to a file.")
        .env(&["DYN_DUMP_CONFIG_TO"])
        .refused("use --dump-config, which prints it"),
    option("enable-rl", Kind::Switch, "Routes for reinforcement learning.")
        .env(&["DYN_ENABLE_RL"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("lora-enabled", Kind::Switch, "Serve adapters.")
        .env(&["DYN_LORA_ENABLED"])
        .default("false")
        .refused(NOT_AVAILABLE),
];
