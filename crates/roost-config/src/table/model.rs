//! Models and tokenization.

use super::NOT_AVAILABLE;
use crate::spec::{Kind, OptionSpec, bytes, choice, integer, option};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option("model-name", Kind::Text, "Serve the discovered model under this name; unset: under the card's names.")
        .env(&["DYN_MODEL_NAME"]),
    option("model-path", Kind::Path, "Model folder used instead of the files the worker's card names.")
        .env(&["DYN_MODEL_PATH"]),
    option(
        "tokenizer",
        Kind::Choice {
            accepted: &["fastokens", "default"],
            unavailable: &[("basetenkenizer", "is not available in this build")],
        },
        "Implementation: fastokens, or default for the Hugging Face library.",
    )
    .env(&["DYN_TOKENIZER"])
    .default("fastokens")
    .dynamo_default("default"),
    option(
        "tokenizer-fallback",
        Kind::Switch,
        "Use the Hugging Face library when fastokens cannot load a model's tokenizer. Off: the model is not served.",
    )
    .env(&["DYN_TOKENIZER_FALLBACK"])
    .default("true"),
    option(
        "tokenizer-cache",
        Kind::Switch,
        "Remember each session's last prompt and the ids of prompt segments, so that a turn costs its new part.",
    )
    .env(&["DYN_TOKENIZER_CACHE"])
    .default("true"),
    option(
        "tokenizer-cache-bytes",
        bytes(0, u64::MAX),
        "Memory for that, four fifths of it for sessions; unset: 320MiB. A remembered token takes about 4 bytes.",
    )
    .env(&["DYN_TOKENIZER_CACHE_BYTES"])
    .dynamo_default("64MiB"),
    option("tokenizer-cache-extend", Kind::Switch, "Whether that cache grows along a session.")
        .env(&["DYN_TOKENIZER_CACHE_EXTEND"])
        .default("true")
        .no_effect("sessions are always remembered as they grow"),
    option(
        "deepseek-rendering",
        choice(&["publisher", "dynamo"]),
        "Whose encoder the prompts of DeepSeek V3.2, V4 and V4.1 equal. With dynamo, text that spells a control token becomes one.",
    )
    .default("publisher")
    .dynamo_default("dynamo"),
    option(
        "literal-control-tokens",
        Kind::Switch,
        "Encode control tokens that users and tools spell in their messages as ordinary text. Off: they become control tokens, as with the engine's own server.",
    )
    .default("false"),
    option("context-window", integer(1, u64::MAX), "Context length in tokens that lists of models tell, instead of the card's; not enforced.")
        .env(&["DYN_CONTEXT_WINDOW"]),
    option("max-output-tokens", integer(1, u64::MAX), "Longest answer in tokens that lists of models tell; not enforced.")
        .env(&["DYN_MAX_OUTPUT_TOKENS"]),
    option("trust-remote-code", Kind::Switch, "Run tokenizer code of a model.")
        .env(&["DYN_TRUST_REMOTE_CODE"])
        .default("false")
        .no_effect("tokenizers are read as data, no code of a model is run"),
    option("dyn-chat-processor", choice(&["dynamo", "vllm", "sglang"]), "Who renders and parses.")
        .env(&["DYN_CHAT_PROCESSOR"])
        .default("dynamo")
        .refused("processing in Python is not available"),
    option("dyn-preprocess-workers", integer(0, u64::MAX), "Python processes for rendering.")
        .env(&["DYN_PREPROCESS_WORKERS"])
        .default("0")
        .no_effect("--prepare-threads sets the number of threads that render and tokenize"),
    option("dyn-enable-structural-tag", Kind::Switch, "Constrain tool calls.")
        .env(&["DYN_ENABLE_STRUCTURAL_TAG"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("dyn-structural-tag-scope", choice(&["auto", "always"]), "When tool calls are constrained.")
        .env(&["DYN_STRUCTURAL_TAG_SCOPE"])
        .refused(NOT_AVAILABLE),
    option("dyn-structural-tag-schema", choice(&["auto", "strict"]), "How tool calls are constrained.")
        .env(&["DYN_STRUCTURAL_TAG_SCHEMA"])
        .refused(NOT_AVAILABLE),
    option("parser-version", Kind::Text, "Generation of Dynamo's output parsers.")
        .env(&["DYN_PARSER_VERSION"])
        .default("auto")
        .refused(NOT_AVAILABLE),
    option("enable-experimental-parsers-v2", Kind::Switch, "Older spelling of the same.")
        .env(&["DYN_ENABLE_EXPERIMENTAL_PARSERS_V2"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("enable-guided-tool-streaming", Kind::Switch, "Stream tool calls under constrained decoding.")
        .env(&["DYN_ENABLE_GUIDED_TOOL_STREAMING"])
        .default("true")
        .no_effect("there is no constrained decoding"),
];
