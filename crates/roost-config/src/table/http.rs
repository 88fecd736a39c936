//! The HTTP listener and its answers.

use super::NOT_AVAILABLE;
use crate::spec::{Kind, OptionSpec, choice, integer, mebibytes, milliseconds, option, seconds};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option("http-host", Kind::Ip, "Address to bind.").env(&["DYN_HTTP_HOST"]).default("0.0.0.0"),
    option("http-port", integer(0, 65_535), "Port to bind; 0 takes a free one.")
        .env(&["DYN_HTTP_PORT"])
        .default("8000"),
    option("http-listen-backlog", integer(1, 65_535), "Backlog of the listening socket.")
        .env(&["DYN_HTTP_LISTEN_BACKLOG"])
        .default("4096"),
    option(
        "http-body-limit-mb",
        mebibytes(1, 4096),
        "Largest accepted request body; a larger one is answered with 413.",
    )
    .env(&["DYN_HTTP_BODY_LIMIT_MB"])
    .default("45"),
    option(
        "http-graceful-shutdown-timeout-secs",
        seconds(0.0, 86_400.0),
        "How long running streams may go on after SIGTERM; then they are ended with an error.",
    )
    .env(&["DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"])
    .default("5"),
    option(
        "http-shutdown-notice-secs",
        seconds(0.0, 3600.0),
        "How long after SIGTERM new requests are still served while /health says 503, for balancers to notice.",
    )
    .default("1")
    .dynamo_default("0, new requests get 503"),
    option(
        "http-backend-stream-timeout-secs",
        seconds(0.0, 86_400.0),
        "A worker that has begun to answer and is silent for this long is taken for lost; 0: never.",
    )
    .env(&["DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS"])
    .default("600")
    .dynamo_default("unset"),
    option(
        "http-sse-keep-alive-interval-ms",
        milliseconds(0.0, 3_600_000.0),
        "A comment line is sent after this much silence, which keeps proxies from closing a stream during a long \
         prefill; 0: never.",
    )
    .env(&["DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS"])
    .default("15000")
    .dynamo_default("unset"),
    option("http-overload-status-code", integer(400, 599), "Status of an answer that says the workers are overloaded.")
        .env(&["DYN_HTTP_OVERLOAD_STATUS_CODE"])
        .default("529"),
    option(
        "error-shape",
        choice(&["both", "openai", "dynamo"]),
        "Shape of error bodies: Dynamo's flat members, OpenAI's `error` object, or both in one body.",
    )
    .default("both")
    .dynamo_default("dynamo"),
    option(
        "strict-fields",
        Kind::Switch,
        "Refuse unknown request fields with 400. Off: they are ignored and counted.",
    )
    .default("false")
    .dynamo_default("true"),
    option(
        "reasoning-field-name",
        choice(&["reasoning_content", "reasoning"]),
        "Name of the message member that carries reasoning text.",
    )
    .env(&["DYN_REASONING_FIELD_NAME"])
    .default("reasoning_content"),
    option(
        "http-pre-commit-error-peek-ms",
        milliseconds(0.0, 3_600_000.0),
        "How long Dynamo waits for an early error before it commits to status 200.",
    )
    .env(&["DYN_HTTP_PRE_COMMIT_ERROR_PEEK_MS"])
    .no_effect("an error before the first token always gets its real status"),
    option(
        "ignore-openai-fe-unsupported-fields",
        Kind::Switch,
        "Dynamo's switch to ignore unknown request fields; here --strict-fields decides.",
    )
    .env(&["DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS"])
    .default("false")
    .no_effect("unknown request fields are ignored unless --strict-fields is given"),
    option(
        "exclude-tools-when-tool-choice-none",
        Kind::Switch,
        "Leave tool definitions out of the prompt when `tool_choice` is `none`.",
    )
    .env(&["DYN_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE"])
    .default("true")
    .refused("rendering tools in spite of tool_choice none is not available in this build"),
    option(
        "enable-force-include-usage",
        Kind::Switch,
        "Send usage at the end of every stream, as if each request had asked for it.",
    )
    .env(&["DYN_ENABLE_FORCE_INCLUDE_USAGE"])
    .default("false"),
    option("disable-frontend-nvext", Kind::Switch, "Of `nvext` in requests, take the cache salt only.")
        .env(&["DYN_DISABLE_FRONTEND_NVEXT"])
        .default("false"),
    option("disable-frontend-admin-api", Kind::Switch, "Remove `/busy_threshold`, `/debug/routing` and `/console`.")
        .env(&["DYN_DISABLE_FRONTEND_ADMIN_API"])
        .default("false"),
    option("enable-anthropic-api", Kind::Switch, "Serve the Messages API and its token counts.")
        .env(&["DYN_ENABLE_ANTHROPIC_API"])
        .default("true")
        .dynamo_default("false"),
    option(
        "strip-anthropic-preamble",
        Kind::Switch,
        "Leave the billing line of Claude Code out of system prompts: it changes with every request.",
    )
    .env(&["DYN_STRIP_ANTHROPIC_PREAMBLE"])
    .default("true"),
    option(
        "metadata-header",
        Kind::Text,
        "Prefix of headers passed to the worker as metadata, without the prefix; at most 64 of them and 64 KiB, more is \
         431.",
    )
    .env(&["DYN_METADATA_HEADER"])
    .default("x-dynamo-meta-"),
    option("http-svc-chat-path", Kind::Text, "Route of chat completions.")
        .env(&["DYN_HTTP_SVC_CHAT_PATH"])
        .default("/v1/chat/completions"),
    option("http-svc-cmp-path", Kind::Text, "Route of completions.")
        .env(&["DYN_HTTP_SVC_CMP_PATH"])
        .default("/v1/completions"),
    option("http-svc-models-path", Kind::Text, "Route of the model list.")
        .env(&["DYN_HTTP_SVC_MODELS_PATH"])
        .default("/v1/models"),
    option("http-svc-health-path", Kind::Text, "Route of the health report.")
        .env(&["DYN_HTTP_SVC_HEALTH_PATH"])
        .default("/health"),
    option("http-svc-live-path", Kind::Text, "Route of the liveness probe.")
        .env(&["DYN_HTTP_SVC_LIVE_PATH"])
        .default("/live"),
    option("http-svc-metrics-path", Kind::Text, "Route of the metrics.")
        .env(&["DYN_HTTP_SVC_METRICS_PATH"])
        .default("/metrics"),
    option("http-svc-responses-path", Kind::Text, "Route of the Responses API.")
        .env(&["DYN_HTTP_SVC_RESPONSES_PATH"])
        .default("/v1/responses"),
    option("http-svc-anthropic-path", Kind::Text, "Route of the Messages API.")
        .env(&["DYN_HTTP_SVC_ANTHROPIC_PATH"])
        .default("/v1/messages"),
    option("http-svc-emb-path", Kind::Text, "Route of embeddings.")
        .env(&["DYN_HTTP_SVC_EMB_PATH"])
        .default("/v1/embeddings")
        .refused(NOT_AVAILABLE),
    option("http-svc-classify-path", Kind::Text, "Route of classification.")
        .env(&["DYN_HTTP_SVC_CLASSIFY_PATH"])
        .default("/v1/classify")
        .refused(NOT_AVAILABLE),
    option("http-svc-rerank-path", Kind::Text, "Route of reranking.")
        .env(&["DYN_HTTP_SVC_RERANK_PATH"])
        .default("/v1/rerank")
        .refused(NOT_AVAILABLE),
    option("http-svc-pooling-path", Kind::Text, "Route of pooling.")
        .env(&["DYN_HTTP_SVC_POOLING_PATH"])
        .default("/v1/pooling")
        .refused(NOT_AVAILABLE),
    option("http-svc-files-path", Kind::Text, "Route of files.")
        .env(&["DYN_HTTP_SVC_FILES_PATH"])
        .default("/v1/files")
        .refused(NOT_AVAILABLE),
    option("http-svc-batches-path", Kind::Text, "Route of batches.")
        .env(&["DYN_HTTP_SVC_BATCHES_PATH"])
        .default("/v1/batches")
        .refused(NOT_AVAILABLE),
    option("http-svc-vllm-generate-path", Kind::Text, "Route of the vLLM token API.")
        .env(&["DYN_HTTP_SVC_VLLM_GENERATE_PATH"])
        .default("/inference/v1/generate")
        .refused(NOT_AVAILABLE),
    option("http-svc-sglang-generate-path", Kind::Text, "Route of the SGLang API.")
        .env(&["DYN_HTTP_SVC_SGLANG_GENERATE_PATH"])
        .default("/generate")
        .refused(NOT_AVAILABLE),
    option("vllm-enable-inference-v1-generate", Kind::Switch, "Serve the vLLM token API.")
        .env(&["DYN_VLLM_ENABLE_INFERENCE_V1_GENERATE"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("sglang-enable-generate", Kind::Switch, "Serve the SGLang API.")
        .env(&["DYN_SGLANG_ENABLE_GENERATE"])
        .default("false")
        .refused(NOT_AVAILABLE),
];
