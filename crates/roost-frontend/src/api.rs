//! Which public API a request came by, and the form of its answer.

use roost_openai::{
    ChunkWriter, ErrorShape, Flavor, MessageAnswer, MessageEvents, ResponseAnswer, ResponseEcho,
    ResponseEvents, StreamOptions,
};

use crate::metrics::Endpoint;
use crate::reply;
use crate::respond::events::EventWriter;
use crate::respond::whole::{WholeAnswer, WholeChoice};

/// An API that generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Completion,
    Messages,
    Responses,
}

impl Api {
    /// Label of the route.
    pub(crate) fn endpoint(self) -> Endpoint {
        match self {
            Api::Chat => Endpoint::ChatCompletions,
            Api::Completion => Endpoint::Completions,
            Api::Messages => Endpoint::Messages,
            Api::Responses => Endpoint::Responses,
        }
    }

    /// Shape of its errors; `configured` is that of the OpenAI routes.
    pub(crate) fn error_shape(self, configured: ErrorShape) -> ErrorShape {
        match self {
            Api::Chat | Api::Completion | Api::Responses => configured,
            Api::Messages => ErrorShape::Anthropic,
        }
    }
}

/// The form of an answer.
#[derive(Debug)]
pub(crate) enum Form {
    Chat,
    Completion,
    Message,
    /// With what the answer shows of the request.
    Response(Box<ResponseEcho>),
}

impl Form {
    /// Id of the answer to the request `id`, a UUID.
    pub(crate) fn answer_id(&self, id: &str) -> String {
        match self {
            Form::Chat => format!("chatcmpl-{id}"),
            Form::Completion => format!("cmpl-{id}"),
            Form::Message => format!("msg_{:032x}", number(id)),
            Form::Response(_) => format!("resp_{:032x}", number(id)),
        }
    }

    /// A writer of events.
    pub(crate) fn events(
        self,
        id: &str,
        model: &str,
        stream_options: StreamOptions,
        reasoning_field: &'static str,
    ) -> EventWriter {
        let answer_id = self.answer_id(id);
        let created = reply::unix_now();
        let flavor = match self {
            Form::Chat => Flavor::Chat,
            Form::Completion => Flavor::Completion,
            Form::Message => return EventWriter::Message(MessageEvents::new(&answer_id, model)),
            Form::Response(echo) => {
                return EventWriter::Response(ResponseEvents::new(number(id), created, echo));
            }
        };
        let mut writer = ChunkWriter::new(flavor, &answer_id, model, created);
        writer.set_running_usage(stream_options.continuous_usage_stats);
        writer.set_reasoning_field(reasoning_field);
        EventWriter::Chunks { writer, include_usage: stream_options.include_usage }
    }

    /// What collects a whole answer with so many choices.
    pub(crate) fn whole(self, id: &str, choices: usize) -> WholeAnswer {
        let empty = || (0..choices).map(|_| WholeChoice::default()).collect();
        match self {
            Form::Chat => WholeAnswer::Choices(Flavor::Chat, empty()),
            Form::Completion => WholeAnswer::Choices(Flavor::Completion, empty()),
            Form::Message => WholeAnswer::Message(MessageAnswer::default()),
            Form::Response(echo) => WholeAnswer::Response(ResponseAnswer::new(number(id), echo)),
        }
    }
}

/// The digits of a request's id.
fn number(id: &str) -> u128 {
    uuid::Uuid::try_parse(id).map_or(0, |id| id.as_u128())
}
