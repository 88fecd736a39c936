use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use super::ErrorClass;
use crate::Fault;

/// The discriminator of older releases: a name, or a name under `Backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegacyType {
    Plain(&'static str),
    Backend(&'static str),
}

impl Serialize for LegacyType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(name) => serializer.serialize_str(name),
            Self::Backend(name) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("Backend", name)?;
                map.end()
            }
        }
    }
}

/// One row per reason: variant, name on the wire, class, discriminator of older releases.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $class:ident, $legacy:ident($legacy_name:literal);)*) => {
        /// A registered cause of failure.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The dotted name used on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The class that the reason belongs to.
            #[must_use]
            pub fn class(self) -> ErrorClass {
                match self { $(Self::$variant => ErrorClass::$class,)* }
            }

            pub(super) fn legacy_type(self) -> LegacyType {
                match self { $(Self::$variant => LegacyType::$legacy($legacy_name),)* }
            }
        }
    };
}

// Of several reasons with one discriminator, the first is what an old worker meant by it.
reasons! {
    /// The request is not acceptable to the frontend.
    RequestInvalidArgument, "request.invalid_argument", InvalidRequest, Plain("InvalidArgument");
    /// The request is malformed.
    RequestInvalid, "request.invalid", InvalidRequest, Plain("InvalidRequest");
    /// The request is not acceptable to the engine.
    BackendInvalidArgument, "backend.invalid_argument", InvalidRequest, Backend("InvalidArgument");
    /// The worker could not be connected to.
    CannotConnect, "transport.cannot_connect", Unavailable, Plain("CannotConnect");
    /// The connection to the worker was lost.
    Disconnected, "transport.disconnected", Unavailable, Plain("Disconnected");
    /// The engine is not available.
    BackendUnavailable, "backend.unavailable", Unavailable, Plain("Unavailable");
    /// The addressed worker does not serve this endpoint.
    WorkerUnavailable, "backend.worker_unavailable", Unavailable, Plain("WorkerUnavailable");
    /// The worker could not connect to its engine.
    BackendCannotConnect, "backend.cannot_connect", Unavailable, Backend("CannotConnect");
    /// The worker lost its engine.
    BackendDisconnected, "backend.disconnected", Unavailable, Backend("Disconnected");
    /// The engine has shut down.
    EngineShutdown, "backend.engine_shutdown", Unavailable, Backend("EngineShutdown");
    /// The engine ended the stream too early.
    StreamIncomplete, "backend.stream_incomplete", Unavailable, Backend("StreamIncomplete");
    /// The worker did not acknowledge in time.
    ConnectionTimeout, "transport.connection_timeout", DeadlineExceeded, Plain("ConnectionTimeout");
    /// The engine did not answer in time.
    ResponseTimeout, "backend.response_timeout", DeadlineExceeded, Plain("ResponseTimeout");
    /// The worker's connection to its engine timed out.
    BackendConnectionTimeout, "backend.connection_timeout", DeadlineExceeded, Backend("ConnectionTimeout");
    /// The deadline of the request passed.
    DeadlineExceeded, "request.deadline_exceeded", DeadlineExceeded, Plain("DeadlineExceeded");
    /// The request waited too long in the router's queue.
    QueueDeadlineExceeded, "router.queue_deadline_exceeded", DeadlineExceeded, Plain("DeadlineExceeded");
    /// The client cancelled.
    RequestCancelled, "request.cancelled", Cancelled, Plain("Cancelled");
    /// The engine cancelled.
    BackendCancelled, "backend.cancelled", Cancelled, Backend("Cancelled");
    /// All workers are full.
    PoolExhausted, "capacity.pool_exhausted", CapacityExhausted, Plain("ResourceExhausted");
    /// The addressed worker is full.
    WorkerOverloaded, "capacity.worker_overloaded", CapacityExhausted, Plain("WorkerOverloaded");
    /// Something is full.
    CapacityExhausted, "capacity.exhausted", CapacityExhausted, Plain("CapacityExhausted");
    /// A failure without a better name.
    Unclassified, "runtime.unclassified", Internal, Plain("Unknown");
    /// An error that contradicted itself.
    InvalidError, "runtime.invalid_error", Internal, Plain("Internal");
    /// A defect.
    Internal, "runtime.internal", Internal, Plain("Internal");
    /// The engine failed without saying more.
    BackendUnknown, "backend.unknown", Internal, Backend("Unknown");
    /// The worker broke the protocol.
    BackendProtocol, "backend.protocol", BackendProtocol, Plain("BackendProtocol");
    /// No or wrong credentials.
    Unauthenticated, "request.unauthenticated", Unauthenticated, Plain("Unauthenticated");
    /// Not allowed to this caller.
    PermissionDenied, "request.permission_denied", PermissionDenied, Plain("PermissionDenied");
    /// No such thing.
    NotFound, "request.not_found", NotFound, Plain("NotFound");
    /// Conflicts with the present state.
    Conflict, "request.conflict", Conflict, Plain("Conflict");
    /// The body is too large.
    PayloadTooLarge, "request.payload_too_large", PayloadTooLarge, Plain("PayloadTooLarge");
    /// The media type is not supported.
    UnsupportedMedia, "request.unsupported_media", UnsupportedMedia, Plain("UnsupportedMedia");
    /// The caller sends too much.
    RateLimited, "request.rate_limited", RateLimited, Plain("RateLimited");
    /// Not implemented.
    NotImplemented, "runtime.not_implemented", NotImplemented, Plain("NotImplemented");
}

impl Reason {
    /// The reason with this dotted name, if it is registered.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
    }

    /// What an older worker meant by its discriminator.
    pub(super) fn from_legacy(value: &Value) -> Option<Self> {
        let legacy_is = |legacy: LegacyType| match (legacy, value) {
            (LegacyType::Plain(name), Value::String(given)) => name == given,
            (LegacyType::Backend(name), Value::Object(map)) => {
                map.get("Backend").and_then(Value::as_str) == Some(name)
            }
            _ => false,
        };
        match value.as_str() {
            // Named after the class, but not the first row that carries the name.
            Some("Internal") => Some(Self::Internal),
            _ => Self::ALL.iter().copied().find(|reason| legacy_is(reason.legacy_type())),
        }
    }

    /// The reason for an error that names only a class, or an older discriminator in its place.
    pub(super) fn from_class(class: &str) -> Option<Self> {
        Self::from_legacy(&Value::String(class.to_owned()))
    }

    /// The class with this name, where names of older releases count as well.
    pub(super) fn class_of(class: &str) -> Option<ErrorClass> {
        match class {
            // The bare name of a missing class is not a class.
            "Unknown" => None,
            _ => Self::from_class(class).map(Self::class),
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self.class() {
            ErrorClass::InvalidRequest
            | ErrorClass::Unauthenticated
            | ErrorClass::PermissionDenied
            | ErrorClass::NotFound
            | ErrorClass::Conflict
            | ErrorClass::PayloadTooLarge
            | ErrorClass::UnsupportedMedia
            | ErrorClass::NotImplemented
            | ErrorClass::Cancelled => Fault::Client,
            ErrorClass::RateLimited | ErrorClass::CapacityExhausted => Fault::Overload,
            ErrorClass::Unavailable if self.as_str().starts_with("transport.") => Fault::Transport,
            ErrorClass::Unavailable | ErrorClass::BackendProtocol | ErrorClass::Internal => Fault::Worker,
            ErrorClass::DeadlineExceeded => Fault::Deadline,
        }
    }

    /// Whether another worker may be asked instead, unless an earlier cause rules it out.
    #[must_use]
    pub fn allows_retry(self) -> bool {
        matches!(
            self,
            Self::CannotConnect
                | Self::Disconnected
                | Self::ConnectionTimeout
                | Self::BackendCannotConnect
                | Self::BackendDisconnected
                | Self::BackendConnectionTimeout
                | Self::ResponseTimeout
                | Self::EngineShutdown
                | Self::StreamIncomplete
                | Self::WorkerUnavailable
                | Self::WorkerOverloaded
        )
    }

    /// Whether this reason anywhere in the chain of causes rules another attempt out.
    pub(super) fn forbids_retry(self) -> bool {
        matches!(
            self,
            Self::RequestCancelled
                | Self::DeadlineExceeded
                | Self::BackendCancelled
                | Self::CapacityExhausted
                | Self::PoolExhausted
        )
    }
}
