//! A request as it was read. It keeps until its model can serve it, so that nothing is read twice.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use roost_openai::{
    ApiError, ChatRequest, CompletionRequest, Generation, MessagesOptions, Purpose, escape_controls,
};

use super::Refused;
use super::memory::Recalled;
use crate::api::{Api, Form};
use crate::finish::Finisher;
use crate::models::Model;
use crate::session::Session;
use crate::shared::Shared;

/// One request.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(super) parsed: Parsed,
    pub(super) session: Session,
    /// When its head was read.
    pub(super) received: Instant,
}

/// By what it asks for.
#[derive(Debug)]
pub(super) enum Parsed {
    /// A conversation, by whatever API it came; its messages stand in `body`.
    Chat {
        body: Bytes,
        request: Box<ChatRequest>,
        recalled: Option<Recalled>,
        api: Api,
        form: Form,
    },
    Completion(Box<CompletionRequest>),
}

/// Once more for a body that is no JSON because of control characters in its strings: some clients send them.
fn tolerant<T>(
    body: &Bytes,
    read: Result<T, ApiError>,
    parse: impl FnOnce(&Bytes) -> Result<T, ApiError>,
) -> Result<(Option<Bytes>, T), Refused> {
    match read {
        Ok(request) => Ok((None, request)),
        Err(error) => {
            let fixed = escape_controls(body).ok_or_else(|| Refused::early(error))?;
            let request = parse(&fixed).map_err(Refused::early)?;
            Ok((Some(fixed), request))
        }
    }
}

impl Reading {
    /// Splits and checks a body.
    pub(super) fn of(
        shared: &Shared,
        api: Api,
        body: Bytes,
        session: Session,
        received: Instant,
    ) -> Result<Self, Refused> {
        let policy = shared.config.http.fields;
        let (mut parsed, control, ignored) = match api {
            Api::Chat => {
                let recalled = session.id.as_deref().and_then(|id| shared.memory.recall(id, &body));
                let request = match &recalled {
                    Some(recalled) => ChatRequest::parse_familiar(&body, recalled.familiar, policy),
                    None => ChatRequest::parse(&body, policy),
                };
                let (fixed, request) = tolerant(&body, request, |body| ChatRequest::parse(body, policy))?;
                let request = Box::new(request);
                let (body, recalled) = match fixed {
                    Some(fixed) => (fixed, None),
                    None => (body, recalled),
                };
                let control = request.generation.nvext.session_control.clone();
                let ignored = request.ignored.0.len();
                (Parsed::Chat { body, request, recalled, api, form: Form::Chat }, control, ignored)
            }
            Api::Messages | Api::Responses => {
                let parse = |body: &Bytes| chat(shared, api, body, Purpose::Answer);
                let (_, (request, form)) = tolerant(&body, parse(&body), parse)?;
                let control = request.generation.nvext.session_control.clone();
                let ignored = request.ignored.0.len();
                // Its messages are new, in a buffer of their own.
                let (body, request) = (request.messages.bytes().clone(), Box::new(request));
                (Parsed::Chat { body, request, recalled: None, api, form }, control, ignored)
            }
            Api::Completion => {
                let parse = |body: &Bytes| CompletionRequest::parse(body, policy);
                let request = parse(&body);
                let (_, request) = tolerant(&body, request, parse)?;
                let request = Box::new(request);
                let control = request.generation.nvext.session_control.clone();
                let ignored = request.ignored.0.len();
                (Parsed::Completion(request), control, ignored)
            }
        };
        shared.metrics.ignored_fields(ignored);
        if !shared.config.http.nvext {
            let generation = match &mut parsed {
                Parsed::Chat { request, .. } => &mut request.generation,
                Parsed::Completion(request) => &mut request.generation,
            };
            generation.nvext = std::mem::take(&mut generation.nvext).only_salt();
            return Ok(Reading { parsed, session, received });
        }
        Ok(Reading { parsed, session: session.with_control(control.as_ref()), received })
    }

    /// Opens its books.
    pub(super) fn open_books(&self, shared: &Shared, model: &Arc<Model>) -> Finisher {
        let api = match &self.parsed {
            Parsed::Chat { api, .. } => *api,
            Parsed::Completion(_) => Api::Completion,
        };
        Finisher::begin(shared, model, api.endpoint(), self.generation().stream, &self.session, self.received)
    }

    /// What is asked of the answer.
    pub(super) fn generation(&self) -> &Generation {
        match &self.parsed {
            Parsed::Chat { request, .. } => &request.generation,
            Parsed::Completion(request) => &request.generation,
        }
    }

    /// The name that it asks for.
    pub(crate) fn model(&self) -> &str {
        match &self.parsed {
            Parsed::Chat { request, .. } => &request.model,
            Parsed::Completion(request) => &request.model,
        }
    }
}

/// Reads a body as a chat.
pub(super) fn chat(
    shared: &Shared,
    api: Api,
    body: &Bytes,
    purpose: Purpose,
) -> Result<(ChatRequest, Form), ApiError> {
    let http = &shared.config.http;
    match api {
        Api::Messages => {
            let options =
                MessagesOptions { policy: http.fields, strip_preamble: http.strip_anthropic_preamble };
            Ok((ChatRequest::of_messages(body, purpose, options)?, Form::Message))
        }
        Api::Responses => {
            let (request, echo) = ChatRequest::of_response(body, http.fields)?;
            Ok((request, Form::Response(echo)))
        }
        Api::Chat | Api::Completion => Ok((ChatRequest::parse(body, http.fields)?, Form::Chat)),
    }
}
