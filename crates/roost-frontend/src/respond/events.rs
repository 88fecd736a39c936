//! A streamed answer in the form of the API it was asked by.

use bytes::BytesMut;
use roost_openai::{ApiError, ChunkWriter, MessageEvents, Piece, ResponseEvents, TokenLogprob, Usage};

use super::choice::End;
use crate::reply;

/// Writes the events of one answer.
#[derive(Debug)]
pub(crate) enum EventWriter {
    /// Chunks of a chat or text completion.
    Chunks {
        writer: ChunkWriter,
        /// One more chunk with the usage.
        include_usage: bool,
    },
    Message(MessageEvents),
    Response(ResponseEvents),
}

impl EventWriter {
    /// A worker has answered: writes what comes before all pieces.
    pub(crate) fn begin(&mut self, out: &mut BytesMut, usage: &Usage) {
        match self {
            EventWriter::Chunks { .. } => {}
            EventWriter::Message(events) => events.begin(out, usage),
            EventWriter::Response(events) => events.begin(out),
        }
    }

    /// Writes a piece of a choice and the log probabilities that come with it. Only completions have several choices.
    pub(crate) fn piece(
        &mut self,
        out: &mut BytesMut,
        index: u32,
        piece: Piece<'_>,
        logprobs: &[TokenLogprob],
        usage: &Usage,
    ) {
        match self {
            EventWriter::Chunks { writer, .. } => writer.piece(out, index, piece, logprobs, usage),
            EventWriter::Message(events) => events.piece(out, piece),
            EventWriter::Response(events) => events.piece(out, piece),
        }
    }

    /// Writes the end of a choice.
    pub(crate) fn finish(&mut self, out: &mut BytesMut, index: u32, end: &End<'_>, usage: &Usage) {
        match self {
            EventWriter::Chunks { writer, .. } => writer.finish(out, index, end.finish, end.logprobs, usage),
            EventWriter::Message(events) => events.finish(out, end.finish, end.stop),
            EventWriter::Response(events) => events.finish(out, end.finish),
        }
    }

    /// Writes the end of a whole answer.
    pub(crate) fn end(&mut self, out: &mut BytesMut, usage: &Usage) {
        match self {
            EventWriter::Chunks { writer, include_usage } => {
                if *include_usage {
                    writer.usage(out, usage);
                }
                writer.done(out);
            }
            EventWriter::Message(events) => events.end(out, usage),
            EventWriter::Response(events) => events.end(out, reply::unix_now(), usage),
        }
    }

    /// Writes the end of an answer that was cut.
    pub(crate) fn error(&mut self, out: &mut BytesMut, error: &ApiError) {
        match self {
            EventWriter::Chunks { writer, .. } => {
                writer.error(out, error);
                writer.done(out);
            }
            EventWriter::Message(events) => events.error(out, error),
            EventWriter::Response(events) => events.error(out, error),
        }
    }

    /// Writes a sign of life.
    pub(crate) fn keep_alive(&mut self, out: &mut BytesMut, usage: &Usage) {
        match self {
            EventWriter::Message(events) => events.keep_alive(out, usage),
            EventWriter::Chunks { .. } | EventWriter::Response(_) => ChunkWriter::keep_alive(out),
        }
    }

    /// Names the request in errors of completions.
    pub(crate) fn set_request_id(&mut self, id: String) {
        if let EventWriter::Chunks { writer, .. } = self {
            writer.set_request_id(id);
        }
    }

    /// Puts this `nvext` member, or none, on every chunk that follows.
    pub(crate) fn set_nvext(&mut self, json: Option<String>) {
        match self {
            EventWriter::Chunks { writer, .. } => match json {
                Some(json) => writer.set_nvext(json),
                None => writer.clear_nvext(),
            },
            EventWriter::Message(_) | EventWriter::Response(_) => {}
        }
    }
}
