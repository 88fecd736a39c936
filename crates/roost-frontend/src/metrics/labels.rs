//! Label values, as enums.

use roost_cluster::Role;
use roost_router::RebindReason;

/// A route that serves a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    ChatCompletions,
    /// `/v1/completions`.
    Completions,
    /// `/v1/messages`.
    Messages,
    /// `/v1/responses`.
    Responses,
}

/// How a client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// As events.
    Stream,
    /// As one document.
    Unary,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a whole answer.
    Success,
    /// Otherwise.
    Error(ErrorType),
}

/// Why a request did not succeed: label `error_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    /// The request is wrong.
    Validation,
    /// It names something that does not exist.
    NotFound,
    /// The workers have no room.
    Overload,
    /// There is no worker, or none that can be reached.
    Unavailable,
    /// The client went away.
    Cancelled,
    /// A worker was silent for too long.
    ResponseTimeout,
    /// Something broke.
    Internal,
    /// It asks for something that is not there.
    NotImplemented,
}

/// A phase of a request, for `stage_*` families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Render, tokenize, hash.
    Preprocess,
    /// Choice of a worker.
    Route,
    /// From the choice to the worker's first item.
    Dispatch,
}

/// Which leg of requests a pool of workers serves. Workers that serve both legs count as decode, as in Dynamo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkerType {
    /// Prefill only.
    Prefill,
    /// Decode, or both.
    Decode,
}

impl Endpoint {
    pub(super) const ALL: [Self; 4] =
        [Self::ChatCompletions, Self::Completions, Self::Messages, Self::Responses];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Messages => "anthropic_messages",
            Self::Responses => "responses",
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

impl RequestKind {
    pub(super) const ALL: [Self; 2] = [Self::Stream, Self::Unary];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Unary => "unary",
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

impl Outcome {
    pub(super) const ALL: [Self; 9] = [
        Self::Success,
        Self::Error(ErrorType::Validation),
        Self::Error(ErrorType::NotFound),
        Self::Error(ErrorType::Overload),
        Self::Error(ErrorType::Unavailable),
        Self::Error(ErrorType::Cancelled),
        Self::Error(ErrorType::ResponseTimeout),
        Self::Error(ErrorType::Internal),
        Self::Error(ErrorType::NotImplemented),
    ];

    /// Label `status`.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error(_) => "error",
        }
    }

    /// Label `error_type`; empty for a success.
    pub const fn error_type(self) -> &'static str {
        match self {
            Self::Success => "",
            Self::Error(error) => error.as_str(),
        }
    }

    /// A word for logs: `success` or the error type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error(error) => error.as_str(),
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Success => 0,
            Self::Error(error) => error as usize + 1,
        }
    }
}

impl ErrorType {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::NotFound => "not_found",
            Self::Overload => "overload",
            Self::Unavailable => "unavailable",
            Self::Cancelled => "cancelled",
            Self::ResponseTimeout => "response_timeout",
            Self::Internal => "internal",
            Self::NotImplemented => "not_implemented",
        }
    }

    /// The type of an error that has only a status. An overload that is answered with 503 by configuration counts as
    /// unavailable here.
    pub const fn from_status(status: u16) -> Self {
        match status {
            404 => Self::NotFound,
            429 | 529 => Self::Overload,
            400..=499 => Self::Validation,
            501 => Self::NotImplemented,
            503 => Self::Unavailable,
            504 => Self::ResponseTimeout,
            _ => Self::Internal,
        }
    }

    /// Labels `class` and `reason` of a failure of this type that nothing more is known of.
    pub(super) const fn class_and_reason(self) -> (&'static str, &'static str) {
        match self {
            Self::Validation => ("InvalidRequest", "request.invalid"),
            Self::NotFound => ("NotFound", "request.not_found"),
            Self::Overload => ("CapacityExhausted", "capacity.exhausted"),
            Self::Unavailable => ("Unavailable", "backend.unavailable"),
            Self::Cancelled => ("Cancelled", "request.cancelled"),
            Self::ResponseTimeout => ("DeadlineExceeded", "backend.response_timeout"),
            Self::Internal => ("Internal", "runtime.internal"),
            Self::NotImplemented => ("NotImplemented", "runtime.not_implemented"),
        }
    }
}

/// Labels `class` and `reason` of a failure that has only a status.
pub(super) const fn class_and_reason(status: u16) -> (&'static str, &'static str) {
    match status {
        413 => ("PayloadTooLarge", "request.payload_too_large"),
        415 => ("UnsupportedMedia", "request.unsupported_media"),
        other => ErrorType::from_status(other).class_and_reason(),
    }
}

impl Stage {
    pub(super) const ALL: [Self; 3] = [Self::Preprocess, Self::Route, Self::Dispatch];

    /// Label `stage` of durations.
    pub(super) const fn duration_label(self) -> &'static str {
        match self {
            Self::Preprocess => "preprocess",
            Self::Route => "route",
            Self::Dispatch => "transport_roundtrip",
        }
    }

    /// Labels `stage` and `phase` of the number of requests.
    pub(super) const fn request_labels(self) -> [&'static str; 2] {
        match self {
            Self::Preprocess => ["preprocess", ""],
            Self::Route => ["route", "aggregated"],
            Self::Dispatch => ["dispatch", "aggregated"],
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

impl WorkerType {
    /// That of a pool of workers in this role.
    pub(crate) const fn of(role: Role) -> Self {
        match role {
            Role::Prefill => Self::Prefill,
            Role::Decode | Role::Aggregated | Role::Encode => Self::Decode,
        }
    }

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// Label `phase` of router series.
    pub(super) const fn phase(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "aggregated",
        }
    }
}

/// Label `reason` of a session that had to leave its worker.
pub(super) const fn rebind_reason(reason: RebindReason) -> &'static str {
    match reason {
        RebindReason::WorkerGone => "worker_gone",
        RebindReason::RankGone => "rank_gone",
        RebindReason::WorkerFailed => "worker_failed",
        RebindReason::Excluded => "excluded",
        RebindReason::Draining => "draining",
        RebindReason::Overloaded => "overloaded",
        RebindReason::Unfit => "unfit",
        RebindReason::Pinned => "pinned",
        RebindReason::Hot => "hot",
    }
}
