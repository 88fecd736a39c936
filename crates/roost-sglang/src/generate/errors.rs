//! A server's failures in our terms.

use roost_worker::EngineError;
use serde::Deserialize;

use crate::HttpError;
use crate::http::chain;

/// An error in a body or an event.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorBody {
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    code: Option<u16>,
    #[serde(default)]
    retryable: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    error: ErrorBody,
}

/// No answer began.
pub(super) fn unreachable(error: HttpError) -> EngineError {
    EngineError::Unavailable(error.to_string())
}

/// An answer broke off.
pub(super) fn broken(error: &hyper::Error) -> EngineError {
    EngineError::Unavailable(format!("the connection broke: {}", chain(error)))
}

/// A status instead of an answer.
pub(super) fn refused(status: u16, body: &[u8]) -> EngineError {
    let text = match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => refusal.error.message,
        Err(_) => String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned(),
    };
    by_code(status, text)
}

/// An error inside a stream that began with 200.
pub(super) fn reported(error: ErrorBody) -> EngineError {
    match (error.code, error.retryable) {
        (Some(code), _) => by_code(code, error.message),
        (None, Some(true)) => EngineError::Unavailable(error.message),
        (None, _) => EngineError::Failed(error.message),
    }
}

/// An answer that was aborted by the server. `None`: a cancellation, which has neither status nor type.
pub(super) fn aborted(status: Option<u16>, has_type: bool, message: Option<String>) -> Option<EngineError> {
    let text = message.unwrap_or_default();
    match status {
        // One leg of a split request lost the other: the pair is to blame, not the request.
        _ if is_transfer(&text) => Some(EngineError::Unavailable(text)),
        None if !has_type => None,
        None => Some(EngineError::Failed(text)),
        Some(status) => Some(by_code(status, text)),
    }
}

fn is_transfer(text: &str) -> bool {
    ["KVTransferError", "bootstrap failed", "handshake failed", "Lost connection with prefill"]
        .iter()
        .any(|sign| text.contains(sign))
}

fn by_code(status: u16, text: String) -> EngineError {
    match status {
        401 | 403 => EngineError::Rejected(format!("the server wants another API key ({status}): {text}")),
        404 | 405 => EngineError::Failed(format!("the server has no /generate ({status}): {text}")),
        400..=499 if status == 429 => EngineError::Overloaded,
        400..=499 => EngineError::InvalidRequest(text),
        503 => EngineError::Unavailable(text),
        _ => EngineError::Failed(format!("status {status}: {text}")),
    }
}
