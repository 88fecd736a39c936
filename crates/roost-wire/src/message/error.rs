//! The peer's typed error, and the two facts that we derive from it.

mod reason;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use self::reason::Reason;
use crate::{CodecError, Fault, text};

/// Most bytes of internal text that are kept or sent.
const MAX_DIAGNOSTIC_BYTES: usize = 4096;

/// A failure as the peer words it: a reason, internal text, and sometimes text for the client.
///
/// `Display` shows the internal text; only [`DynamoError::public_message`] may reach a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DynamoError {
    /// What went wrong; decides class, fault and whether another worker may be tried.
    pub reason: Reason,
    /// Internal text, at most 4096 bytes.
    pub diagnostic: String,
    /// What clients may read.
    pub public: Option<PublicDetails>,
    /// What led to this error.
    pub caused_by: Option<Box<DynamoError>>,
}

/// The coarse kind of an error; the peer derives the HTTP status from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorClass {
    /// The request is malformed or fails validation.
    InvalidRequest,
    /// No or wrong credentials.
    Unauthenticated,
    /// Not allowed to this caller.
    PermissionDenied,
    /// No such thing.
    NotFound,
    /// Conflicts with the present state.
    Conflict,
    /// The body is too large.
    PayloadTooLarge,
    /// The media type is not supported.
    UnsupportedMedia,
    /// The caller sends too much.
    RateLimited,
    /// Workers are full.
    CapacityExhausted,
    /// The request was cancelled.
    Cancelled,
    /// No worker can be reached now.
    Unavailable,
    /// A worker broke the protocol.
    BackendProtocol,
    /// A deadline passed.
    DeadlineExceeded,
    /// Not implemented.
    NotImplemented,
    /// A defect, or a failure without a better name.
    Internal,
}

/// Text and numbers that a client may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PublicDetails {
    /// A text.
    Message {
        /// The text.
        message: String,
    },
    /// A size was exceeded.
    SizeLimit {
        /// Bytes allowed.
        limit: u64,
        /// Bytes sent.
        actual: Option<u64>,
    },
    /// The context of the model was exceeded.
    ContextLength {
        /// Tokens allowed.
        limit: u64,
        /// Tokens sent.
        actual: Option<u64>,
    },
    /// A rate was exceeded.
    RateLimit {
        /// Requests allowed.
        limit: Option<u64>,
        /// Requests left.
        remaining: Option<u64>,
        /// Seconds until the next may be sent.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u64>,
    },
}

impl DynamoError {
    /// An error with internal text, cut to 4096 bytes.
    #[must_use]
    pub fn new(reason: Reason, diagnostic: impl Into<String>) -> Self {
        let mut diagnostic = diagnostic.into();
        diagnostic.truncate(text::cut(&diagnostic, MAX_DIAGNOSTIC_BYTES).len());
        Self { reason, diagnostic, public: None, caused_by: None }
    }

    /// An error of the client, whose text the client may read.
    #[must_use]
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        let message = message.into();
        let error = Self::new(Reason::BackendInvalidArgument, message.clone());
        Self { public: Some(PublicDetails::Message { message }), ..error }
    }

    /// The coarse kind of the error.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.reason.class()
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.reason.fault()
    }

    /// Whether another worker may be asked instead.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let mut cause = Some(self);
        while let Some(error) = cause {
            if error.reason.forbids_retry() {
                return false;
            }
            cause = error.caused_by.as_deref();
        }
        self.reason.allows_retry()
    }

    /// The text for clients, if the worker gave one.
    #[must_use]
    pub fn public_message(&self) -> Option<&str> {
        match &self.public {
            Some(PublicDetails::Message { message }) => Some(message),
            _ => None,
        }
    }
}

impl fmt::Display for DynamoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())?;
        if !self.diagnostic.is_empty() {
            write!(f, ": {}", self.diagnostic)?;
        }
        Ok(())
    }
}

impl From<CodecError> for DynamoError {
    /// The refusal of a request whose body cannot be decoded.
    fn from(error: CodecError) -> Self {
        let message = "request body cannot be decoded".to_owned();
        let refusal = Self::new(Reason::RequestInvalidArgument, format!("{message}: {error}"));
        Self { public: Some(PublicDetails::Message { message }), ..refusal }
    }
}

/// The error as it is written, every version's keys together.
#[derive(Serialize)]
struct Written<'a> {
    error_type: reason::LegacyType,
    class: ErrorClass,
    reason: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<&'a PublicDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caused_by: Option<&'a DynamoError>,
}

impl Serialize for DynamoError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let diagnostic = (!self.diagnostic.is_empty()).then_some(self.diagnostic.as_str());
        Written {
            error_type: self.reason.legacy_type(),
            class: self.class(),
            reason: self.reason.as_str(),
            message: diagnostic.unwrap_or(self.reason.as_str()),
            diagnostic,
            public: self.public.as_ref(),
            caused_by: self.caused_by.as_deref(),
        }
        .serialize(serializer)
    }
}

/// The error as it is read: any key may be missing, older workers send only `error_type` and `message`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Read {
    error_type: Option<Value>,
    class: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    diagnostic: Option<String>,
    #[serde(alias = "public_details")]
    public: Option<Value>,
    caused_by: Option<Box<DynamoError>>,
}

impl<'de> Deserialize<'de> for DynamoError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Read::deserialize(deserializer)?;
        let legacy = read.error_type.as_ref().and_then(Reason::from_legacy);
        let reason = match (&read.reason, &read.class) {
            (Some(name), _) => Reason::from_name(name),
            (None, Some(class)) => legacy.or_else(|| Reason::from_class(class)),
            (None, None) => Some(legacy.unwrap_or(Reason::Unclassified)),
        };
        // A reason of another class is not to be trusted, nor is the public text that came with it.
        let agrees = |reason: &Reason| {
            read.class.as_ref().is_none_or(|class| Reason::class_of(class) == Some(reason.class()))
        };
        let public = read.public.and_then(|public| serde_json::from_value(public).ok());
        let (reason, public) = match reason.filter(agrees) {
            Some(reason) => (reason, public),
            None => (Reason::InvalidError, None),
        };
        // Without internal text the name of the reason stands in for it.
        let message = read.message.filter(|message| message != reason.as_str());
        let error = Self::new(reason, read.diagnostic.or(message).unwrap_or_default());
        Ok(Self { public, caused_by: read.caused_by, ..error })
    }
}
