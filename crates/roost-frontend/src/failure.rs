//! Why a request was not served: whose fault, and whether another worker may be tried. All else is derived here.

use std::fmt;

use roost_openai::ApiError;
use roost_router::{Failure as WorkerFailure, Rejection};
use roost_wire::message::{ErrorClass, Reason};
use roost_wire::{CallError, Fault, StreamError};

use crate::metrics::ErrorType;

/// A failed attempt, or a failed request.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: Kind,
    /// Another worker may be asked, as long as nothing was shown to the client.
    pub(crate) retryable: bool,
    /// The worker was unreachable, was lost, or broke the protocol: it is avoided for a while.
    blames_worker: bool,
    /// The worker had taken the request and was lost with it.
    pub(crate) lost_worker: bool,
    /// Nothing went wrong but that we waited no longer.
    pub(crate) impatience: bool,
    /// It is the prefill leg that failed.
    in_prefill: bool,
    /// Text that may be shown, from whoever may speak to clients.
    public: Option<String>,
    /// The reason in one word, for programs.
    code: Option<&'static str>,
    /// Text for the log only.
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Invalid,
    TooLarge,
    NotFound,
    Overload,
    Unavailable,
    Deadline,
    /// No worker had room within the time that a request may wait.
    Waited,
    Engine,
    NotImplemented,
    Ours,
}

impl Failure {
    fn new(kind: Kind, retryable: bool, blames_worker: bool, detail: impl Into<String>) -> Self {
        Failure {
            kind,
            retryable,
            blames_worker,
            lost_worker: false,
            impatience: false,
            in_prefill: false,
            public: None,
            code: None,
            detail: detail.into(),
        }
    }

    /// The same, of the prefill leg of a request.
    pub(crate) fn in_prefill(self) -> Self {
        Failure { in_prefill: true, detail: format!("prefill leg: {}", self.detail), ..self }
    }

    /// The same, for which the worker is not avoided.
    pub(crate) fn blameless(self) -> Self {
        Failure { blames_worker: false, ..self }
    }

    /// The engine ended the request with an error.
    pub(crate) fn engine(text: &str) -> Self {
        Self::new(Kind::Engine, false, false, format!("engine finished with an error: {text}"))
    }

    /// The worker's stream ended and nothing says why.
    pub(crate) fn no_finish() -> Self {
        Self::new(Kind::Engine, false, false, "the worker's stream ended without a finish reason")
    }

    /// The worker said nothing for too long after it had begun to answer.
    pub(crate) fn silence() -> Self {
        let detail = "no frame from the worker within the silence limit";
        Failure { impatience: true, ..Self::new(Kind::Deadline, true, true, detail) }
    }

    /// The worker took the request and gave no first token in time.
    pub(crate) fn no_first_token() -> Self {
        Self::new(Kind::Deadline, true, true, "no token from the worker within the limit for the first")
    }

    /// The decode worker gave no token in time although the prefill leg had ended well.
    pub(crate) fn no_transfer() -> Self {
        Self::new(
            Kind::Deadline,
            true,
            true,
            "no token from the decode worker after the end of the prefill leg",
        )
    }

    /// The prefill worker neither gave nor announced what a decode worker needs.
    pub(crate) fn no_handoff() -> Self {
        Self::new(Kind::Engine, false, false, "the stream ended without anything to hand over")
    }

    /// This frontend goes down and can wait no longer.
    pub(crate) fn shutting_down() -> Self {
        let public = Some("The service is shutting down. Please retry.".to_owned());
        let detail = "cut at the end of the drain";
        Failure { public, impatience: true, ..Self::new(Kind::Unavailable, false, false, detail) }
    }

    /// The worker ended the request as cancelled, which nobody asked for.
    pub(crate) fn aborted() -> Self {
        Self::new(Kind::Unavailable, true, false, "the worker cancelled the request by itself")
    }

    /// The worker left between its choice and the call.
    pub(crate) fn gone() -> Self {
        Self::new(Kind::Unavailable, true, false, "the chosen worker has left")
    }

    /// The request cannot be encoded for a worker.
    pub(crate) fn encode(error: &dyn fmt::Display) -> Self {
        Self::new(Kind::Ours, false, false, format!("cannot encode the request: {error}"))
    }

    /// The router has no place.
    pub(crate) fn rejected(rejection: &Rejection) -> Self {
        let detail = rejection.to_string();
        match rejection {
            Rejection::Overloaded | Rejection::PinOverloaded { .. } => Failure {
                code: Some("workers_overloaded"),
                ..Self::new(Kind::Overload, false, false, detail)
            },
            Rejection::QueueFull { .. } => {
                Failure { code: Some("queue_full"), ..Self::new(Kind::Overload, false, false, detail) }
            }
            Rejection::WaitedTooLong => {
                Failure { code: Some("queue_wait_exceeded"), ..Self::new(Kind::Waited, false, false, detail) }
            }
            Rejection::NoWorkers | Rejection::PinUnavailable { .. } => {
                Self::new(Kind::Unavailable, false, false, detail)
            }
            Rejection::UnknownWorker { .. } | Rejection::UnknownRank { .. } | Rejection::PinRequired => {
                let public = Some(detail.clone());
                Failure { public, ..Self::new(Kind::Invalid, false, false, detail) }
            }
        }
    }

    /// A call that gave no stream.
    pub(crate) fn call(error: &CallError) -> Self {
        let text = error.public_message();
        let (kind, public) = judge(error.reason(), text.as_deref());
        // A deployment that cannot work says so to whoever tries it.
        let public =
            public.or_else(|| text.filter(|_| matches!(error, CallError::ResponsePlane(_))).map(Into::into));
        let blames_worker = error.inhibits_worker();
        let lost_worker = matches!(error, CallError::Stream(error) if is_loss(error));
        let garbled = matches!(error, CallError::Stream(error) if is_garbled(error));
        let base = Self::new(kind, error.is_retryable() || garbled, blames_worker, error.to_string());
        Failure { public, lost_worker, ..base }
    }

    /// A stream that broke.
    pub(crate) fn stream(error: &StreamError) -> Self {
        let (kind, public) = judge(error.reason(), error.public_message());
        // An error that the worker spells out itself says nothing about its reachability.
        let unreachable = error.fault() == Fault::Transport && !matches!(error, StreamError::Worker(_));
        // One that cannot speak is as good as one that does not.
        let garbled = is_garbled(error);
        let retryable = error.is_retryable() || garbled;
        let base = Self::new(kind, retryable, unreachable || garbled, error.to_string());
        Failure { public, lost_worker: is_loss(error), ..base }
    }

    /// The worker takes the request itself for wrong.
    pub(crate) fn blames_request(&self) -> bool {
        matches!(self.kind, Kind::Invalid | Kind::NotImplemented)
    }

    /// What the router is told of the worker, if anything.
    pub(crate) fn worker_failure(&self) -> Option<WorkerFailure> {
        match self.kind {
            Kind::Overload => Some(WorkerFailure::Overloaded),
            _ if !self.blames_worker => None,
            Kind::Deadline => Some(WorkerFailure::Timeout),
            Kind::Unavailable => Some(WorkerFailure::Unreachable),
            _ => Some(WorkerFailure::Broken),
        }
    }

    /// What the client is told. `overload` is the status of an overload.
    pub(crate) fn to_api(&self, overload: u16) -> ApiError {
        let (status, text) = match self.kind {
            Kind::Invalid => (400, "The worker refused the request as invalid."),
            Kind::TooLarge => (413, "The prompt is too large to be sent to a worker. Please shorten it."),
            Kind::NotFound => (404, "The worker does not have what the request asks for."),
            Kind::Overload => {
                (overload, "All workers of this model are at capacity. Please retry after a short wait.")
            }
            Kind::Unavailable if self.in_prefill => {
                (503, "The prefill stage failed: no prefill worker could serve the request. Please retry.")
            }
            Kind::Unavailable => (503, "No worker could serve the request. Please retry."),
            Kind::Deadline if self.in_prefill => {
                (504, "The prefill stage did not answer within its deadline. Please retry.")
            }
            Kind::Waited => {
                (429, "No worker had room for the request in time. Please retry after a short wait.")
            }
            Kind::Deadline => (504, "The worker did not answer within its deadline. Please retry."),
            Kind::NotImplemented => (501, "The worker does not implement what the request asks for."),
            Kind::Engine if self.in_prefill => (500, "The prefill stage of the request failed."),
            Kind::Engine | Kind::Ours => (500, "The worker failed while serving the request."),
        };
        let error = match self.public.as_deref() {
            None => ApiError::new(status, text),
            Some(public) if status == 400 && public.to_ascii_lowercase().contains("context length") => {
                ApiError::context_length_said(public)
            }
            Some(public) => ApiError::new(status, public),
        };
        match self.code {
            Some(code) => error.with_code(code),
            None => error,
        }
    }

    /// Label of `requests_total{error_type}`.
    pub(crate) fn error_type(&self) -> ErrorType {
        match self.kind {
            Kind::Invalid | Kind::TooLarge => ErrorType::Validation,
            Kind::NotFound => ErrorType::NotFound,
            Kind::Overload | Kind::Waited => ErrorType::Overload,
            Kind::Unavailable => ErrorType::Unavailable,
            Kind::Deadline => ErrorType::ResponseTimeout,
            Kind::NotImplemented => ErrorType::NotImplemented,
            Kind::Engine | Kind::Ours => ErrorType::Internal,
        }
    }

    /// Labels of `failures_total{class, reason}`.
    pub(crate) fn class_and_reason(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Invalid => ("InvalidRequest", "request.invalid"),
            Kind::TooLarge => ("PayloadTooLarge", "request.payload_too_large"),
            Kind::NotFound => ("NotFound", "request.not_found"),
            Kind::Overload => ("CapacityExhausted", "capacity.exhausted"),
            Kind::Unavailable => ("Unavailable", "backend.unavailable"),
            Kind::Waited => ("CapacityExhausted", "router.queue_deadline"),
            Kind::Deadline => ("DeadlineExceeded", "backend.response_timeout"),
            Kind::NotImplemented => ("NotImplemented", "runtime.not_implemented"),
            Kind::Engine => ("Internal", "backend.unknown"),
            Kind::Ours => ("Internal", "runtime.internal"),
        }
    }
}

/// Whether the worker says what is no answer.
fn is_garbled(error: &StreamError) -> bool {
    matches!(
        error,
        StreamError::AfterEnd
            | StreamError::Undecodable(_)
            | StreamError::Protocol(_)
            | StreamError::Frame(_)
    )
}

/// Whether a stream broke off, as when the process behind it dies.
fn is_loss(error: &StreamError) -> bool {
    matches!(error, StreamError::Broken(_) | StreamError::Incomplete)
}

/// Status and client text by the reason's class; only what the request itself is blamed for is for the client's eyes.
fn judge(reason: Reason, public: Option<&str>) -> (Kind, Option<String>) {
    let kind = match reason.class() {
        ErrorClass::InvalidRequest
        | ErrorClass::Unauthenticated
        | ErrorClass::PermissionDenied
        | ErrorClass::Conflict
        | ErrorClass::UnsupportedMedia => Kind::Invalid,
        ErrorClass::PayloadTooLarge => Kind::TooLarge,
        ErrorClass::NotFound => Kind::NotFound,
        ErrorClass::RateLimited | ErrorClass::CapacityExhausted => Kind::Overload,
        ErrorClass::Unavailable => Kind::Unavailable,
        ErrorClass::DeadlineExceeded => Kind::Deadline,
        ErrorClass::NotImplemented => Kind::NotImplemented,
        ErrorClass::Cancelled | ErrorClass::BackendProtocol | ErrorClass::Internal => Kind::Engine,
    };
    let public = public.filter(|_| matches!(kind, Kind::Invalid | Kind::TooLarge));
    (kind, public.filter(|text| !shows_insides(text)).map(str::to_owned))
}

/// Whether a worker's text names files, addresses or code: nothing that helps a client, and more than it should know.
fn shows_insides(text: &str) -> bool {
    let is_path = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
        word.starts_with('/') && word[1..].contains('/') && word.len() > 3
    };
    let is_address = |word: &str| {
        word.split_once(':').is_some_and(|(host, port)| {
            host.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<std::net::Ipv4Addr>().is_ok()
                && port.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    text.contains("://")
        || text.contains("Traceback")
        || text.contains(".py\"")
        || text.split_whitespace().any(|word| is_path(word) || is_address(word))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insides_of_workers_stay_inside() {
        for text in [
            "cannot open /models/secret/config.json",
            "File \"/usr/lib/python3/site-packages/sglang/srt.py\", line 3",
            "Traceback (most recent call last)",
            "failed at http://10.0.0.7/generate",
            "peer 10.0.0.7:30000 refused",
            "in 'engine.py\" line 4",
        ] {
            assert!(shows_insides(text), "{text}");
        }
        for text in [
            "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
            "temperature must be between 0 and 2, and/or top_p above 0",
            "ratio 3/4 is too high: use 1:2",
            "use a/b or / instead",
        ] {
            assert!(!shows_insides(text), "{text}");
        }
    }

    #[test]
    fn an_overflow_that_a_worker_finds_is_worded_as_ours() {
        let failure = Failure {
            public: Some(
                "The input (9000 tokens) is longer than the model's context length (8192 tokens).".into(),
            ),
            ..Failure::new(Kind::Invalid, false, false, "of the log")
        };
        let error = failure.to_api(529);
        assert_eq!(error.status(), 400);
        assert!(error.message().contains("maximum context length") && error.message().contains("9000"));
        let mut body = bytes::BytesMut::new();
        error.write_body(&mut body, roost_openai::ErrorShape::OpenAi);
        assert!(std::str::from_utf8(&body).expect("text").contains("\"context_length_exceeded\""));
    }
}
