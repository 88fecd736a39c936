//! Requests that are refused before their model is known: their books are one line long.

use std::time::{Duration, Instant};

use roost_openai::ApiError;
use roost_telemetry::spans::SpanContext;

use crate::api::Api;
use crate::metrics::{ErrorType, Outcome, RequestKind};
use crate::session::Session;
use crate::shared::Shared;

/// What is known of a request before it is looked into.
#[derive(Debug)]
pub(crate) struct Early<'a> {
    shared: &'a Shared,
    api: Api,
    request_id: String,
    session: Option<Box<str>>,
    trace: Option<SpanContext>,
    received: Instant,
}

impl<'a> Early<'a> {
    /// `received` is when the head of the request was read.
    pub(crate) fn of(shared: &'a Shared, api: Api, session: &Session, received: Instant) -> Self {
        let (request_id, session, trace) = (session.echo(), session.id.clone(), session.trace);
        Early { shared, api, request_id, session, trace, received }
    }

    /// Counts the refusal, and tells of it in the access log and in the trace. Without a look at the body nobody knows
    /// whether a stream was wanted.
    pub(crate) fn refused(&self, error: ApiError) -> ApiError {
        self.shared.metrics.refused(self.api.endpoint(), RequestKind::Unary, &error);
        let outcome = Outcome::Error(ErrorType::from_status(error.status()));
        let now = Instant::now();
        if let (Some(spans), Some(context)) = (&self.shared.spans, self.trace.filter(|trace| trace.sampled)) {
            let mut root = context.root(self.api.endpoint().as_str(), (self.received, now));
            root.attributes.push(("request.id", self.request_id.as_str().into()));
            root.attributes.push(("roost.outcome", outcome.as_str().into()));
            root.error = Some(error.message().to_owned());
            spans.put(root);
        }
        let total: Duration = now.saturating_duration_since(self.received);
        tracing::info!(
            target: "roost::access",
            endpoint = self.api.endpoint().as_str(),
            request_id = %self.request_id,
            session = self.session.as_deref(),
            total_ms = total.as_secs_f64() * 1e3,
            status = error.status(),
            outcome = outcome.as_str(),
            detail = error.message(),
            "request"
        );
        error
    }
}
