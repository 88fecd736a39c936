use bytes::{BufMut, BytesMut};

use super::echo::{ResponseEcho, Status};
use super::items::{Item, Items, Kind};
use super::object;
use crate::blocks::{Blocks, Step};
use crate::json::{write_escaped, write_string, write_u64};
use crate::{ApiError, Finish, Piece, Usage};

/// Writes the events of one streamed response into a byte buffer. Each method appends complete events.
///
/// The texts of a response are kept until its end: the closing events repeat them.
#[derive(Debug)]
pub struct ResponseEvents {
    echo: Box<ResponseEcho>,
    id: u128,
    created: u64,
    begun: bool,
    blocks: Blocks,
    writer: ItemWriter,
    finish: Finish,
}

#[derive(Debug)]
struct ItemWriter {
    items: Items,
    sequence: u64,
}

impl ResponseEvents {
    /// A writer for the response with the digits `id`, created at `created` (Unix seconds), to a request that shows
    /// as `echo`.
    pub fn new(id: u128, created: u64, echo: Box<ResponseEcho>) -> Self {
        ResponseEvents {
            echo,
            id,
            created,
            begun: false,
            blocks: Blocks::default(),
            writer: ItemWriter { items: Items::new(id), sequence: 0 },
            finish: Finish::Stop,
        }
    }

    /// Writes the first events, once.
    pub fn begin(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        for event in ["response.created", "response.in_progress"] {
            self.response(out, event, (Status::InProgress, self.created), None);
        }
    }

    /// Writes the next piece.
    pub fn piece(&mut self, out: &mut BytesMut, piece: Piece<'_>) {
        if !object::is_shown(&self.echo, piece) {
            return;
        }
        let (writer, echo) = (&mut self.writer, &self.echo);
        self.blocks.push(piece, |step| writer.step(out, echo, step, "completed"));
    }

    /// Closes what is open and remembers why the response ended.
    pub fn finish(&mut self, out: &mut BytesMut, finish: Finish) {
        self.finish = finish;
        self.close(out, object::item_status(finish));
    }

    /// Writes the last events; `now` is Unix seconds.
    pub fn end(&mut self, out: &mut BytesMut, now: u64, usage: &Usage) {
        let status = object::status(self.finish);
        let event = match status {
            Status::Incomplete(_) => "response.incomplete",
            _ => "response.completed",
        };
        self.response(out, event, (status, now), Some(usage));
        done(out);
    }

    /// Writes the last events of a response that was cut.
    pub fn error(&mut self, out: &mut BytesMut, error: &ApiError) {
        self.begin(out);
        self.close(out, "incomplete");
        self.response(out, "response.failed", (Status::Failed(error), self.created), None);
        done(out);
    }

    fn close(&mut self, out: &mut BytesMut, status: &'static str) {
        let (writer, echo) = (&mut self.writer, &self.echo);
        self.blocks.end(|step| writer.step(out, echo, step, status));
    }

    fn response(
        &mut self,
        out: &mut BytesMut,
        event: &str,
        (status, now): (Status<'_>, u64),
        usage: Option<&Usage>,
    ) {
        self.writer.open(out, event);
        out.put_slice(b",\"response\":");
        let times = (self.created, now);
        object::write(out, &self.echo, self.id, times, status, &self.writer.items, usage);
        out.put_slice(b"}\n\n");
    }
}

fn done(out: &mut BytesMut) {
    out.put_slice(b"data: [DONE]\n\n");
}

impl ItemWriter {
    fn step(&mut self, out: &mut BytesMut, echo: &ResponseEcho, step: Step<'_>, status: &'static str) {
        self.items.apply(step, &echo.names, status);
        let index = self.items.list.len().saturating_sub(1);
        match step {
            Step::Open(_) => {
                self.item(out, "response.output_item.added", index, true);
                self.part(out, "response.content_part.added", index, true);
            }
            Step::Add(text) => {
                let event = match self.items.list[index].kind {
                    Kind::Message => "response.output_text.delta",
                    Kind::Reasoning => "response.reasoning_text.delta",
                    Kind::Call { .. } => "response.function_call_arguments.delta",
                };
                out.reserve(text.len() + 256);
                self.about(out, event, index);
                out.put_slice(b",\"delta\":\"");
                write_escaped(out, text);
                out.put_slice(b"\"}\n\n");
            }
            Step::Close => {
                let (event, member) = match self.items.list[index].kind {
                    Kind::Message => ("response.output_text.done", "text"),
                    Kind::Reasoning => ("response.reasoning_text.done", "text"),
                    Kind::Call { .. } => ("response.function_call_arguments.done", "arguments"),
                };
                self.about(out, event, index);
                let item = &self.items.list[index];
                if let Kind::Call { name, .. } = &item.kind {
                    out.put_slice(b",\"name\":");
                    write_string(out, name);
                }
                out.put_slice(b",\"");
                out.put_slice(member.as_bytes());
                out.put_slice(b"\":");
                write_string(out, &item.text);
                out.put_slice(b"}\n\n");
                self.part(out, "response.content_part.done", index, false);
                self.item(out, "response.output_item.done", index, false);
            }
        }
    }

    fn item(&mut self, out: &mut BytesMut, event: &str, index: usize, is_new: bool) {
        self.open(out, event);
        out.put_slice(b",\"output_index\":");
        write_u64(out, index as u64);
        out.put_slice(b",\"item\":");
        self.items.list[index].write(out, is_new);
        out.put_slice(b"}\n\n");
    }

    /// Calls have no parts.
    fn part(&mut self, out: &mut BytesMut, event: &str, index: usize, is_new: bool) {
        if matches!(self.items.list[index].kind, Kind::Call { .. }) {
            return;
        }
        self.about(out, event, index);
        out.put_slice(b",\"part\":");
        let item: &Item = &self.items.list[index];
        item.write_part(out, if is_new { "" } else { &item.text });
        out.put_slice(b"}\n\n");
    }

    /// Beginning of an event about an item and, where it has parts, its only part.
    fn about(&mut self, out: &mut BytesMut, event: &str, index: usize) {
        self.open(out, event);
        let item = &self.items.list[index];
        out.put_slice(b",\"item_id\":");
        write_string(out, &item.id);
        out.put_slice(b",\"output_index\":");
        write_u64(out, index as u64);
        match item.kind {
            Kind::Call { .. } => {}
            Kind::Reasoning => out.put_slice(b",\"content_index\":0"),
            Kind::Message => {
                out.put_slice(b",\"content_index\":0");
                if event.starts_with("response.output_text") {
                    out.put_slice(b",\"logprobs\":[]");
                }
            }
        }
    }

    /// Name, type and number of an event; its other members and `}` follow.
    fn open(&mut self, out: &mut BytesMut, event: &str) {
        out.put_slice(b"event: ");
        out.put_slice(event.as_bytes());
        out.put_slice(b"\ndata: {\"type\":\"");
        out.put_slice(event.as_bytes());
        out.put_slice(b"\",\"sequence_number\":");
        write_u64(out, self.sequence);
        self.sequence += 1;
    }
}
