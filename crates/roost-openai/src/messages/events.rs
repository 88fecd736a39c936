use bytes::{BufMut, BytesMut};

use super::{SIGNATURE, stop_reason, tool_use_id, usage};
use crate::blocks::{Block, Blocks, Step};
use crate::json::{write_escaped, write_string, write_u64};
use crate::{ApiError, Finish, Piece, Usage};

/// Writes the events of one streamed message into a byte buffer. Each method appends complete events.
#[derive(Debug)]
pub struct MessageEvents {
    id: Box<str>,
    model: Box<str>,
    begun: bool,
    blocks: Blocks,
    writer: BlockWriter,
    stop_reason: &'static str,
    stop_sequence: Option<Box<str>>,
}

/// Where the list of blocks stands.
#[derive(Debug, Default)]
struct BlockWriter {
    index: u32,
    reasoning: bool,
    call: bool,
}

impl MessageEvents {
    /// A writer for the message `id` (with its `msg_` prefix).
    pub fn new(id: &str, model: &str) -> Self {
        MessageEvents {
            id: id.into(),
            model: model.into(),
            begun: false,
            blocks: Blocks::default(),
            writer: BlockWriter::default(),
            stop_reason: "end_turn",
            stop_sequence: None,
        }
    }

    /// Writes the first event, once; only the prompt's tokens are known by then.
    pub fn begin(&mut self, out: &mut BytesMut, counts: &Usage) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        open(out, "message_start");
        out.put_slice(b",\"message\":{\"id\":");
        write_string(out, &self.id);
        out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":");
        write_string(out, &self.model);
        out.put_slice(b",\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
        usage::write(out, counts, 0);
        out.put_slice(b"}}\n\n");
    }

    /// Writes the next piece.
    pub fn piece(&mut self, out: &mut BytesMut, piece: Piece<'_>) {
        let writer = &mut self.writer;
        self.blocks.push(piece, |step| writer.step(out, step));
    }

    /// Closes what is open and remembers why the message ended; `stop` is the stop string that was met.
    pub fn finish(&mut self, out: &mut BytesMut, finish: Finish, stop: Option<&str>) {
        let writer = &mut self.writer;
        self.blocks.end(|step| writer.step(out, step));
        self.stop_reason = stop_reason(finish, stop);
        self.stop_sequence = stop.filter(|_| finish == Finish::Stop).map(Into::into);
    }

    /// Writes the last events.
    pub fn end(&mut self, out: &mut BytesMut, counts: &Usage) {
        open(out, "message_delta");
        out.put_slice(b",\"delta\":{\"stop_reason\":");
        write_string(out, self.stop_reason);
        out.put_slice(b",\"stop_sequence\":");
        match &self.stop_sequence {
            Some(stop) => write_string(out, stop),
            None => out.put_slice(b"null"),
        }
        out.put_slice(b"},\"usage\":");
        usage::write(out, counts, counts.completion_tokens);
        out.put_slice(b"}\n\n");
        open(out, "message_stop");
        out.put_slice(b"}\n\n");
    }

    /// Writes an error, the last event of a message that was cut.
    pub fn error(&mut self, out: &mut BytesMut, error: &ApiError) {
        out.put_slice(b"event: error\ndata: ");
        error.write_anthropic(out);
        out.put_slice(b"\n\n");
    }

    /// Writes what keeps an idle stream open.
    pub fn keep_alive(&mut self, out: &mut BytesMut, counts: &Usage) {
        self.begin(out, counts);
        open(out, "ping");
        out.put_slice(b"}\n\n");
    }
}

/// Name and type of an event; its other members and `}` follow.
fn open(out: &mut BytesMut, event: &str) {
    out.put_slice(b"event: ");
    out.put_slice(event.as_bytes());
    out.put_slice(b"\ndata: {\"type\":\"");
    out.put_slice(event.as_bytes());
    out.put_u8(b'"');
}

impl BlockWriter {
    fn step(&mut self, out: &mut BytesMut, step: Step<'_>) {
        match step {
            Step::Open(block) => {
                (self.reasoning, self.call) =
                    (block == Block::Reasoning, matches!(block, Block::Call { .. }));
                self.event(out, "content_block_start");
                out.put_slice(b",\"content_block\":");
                match block {
                    Block::Text => out.put_slice(b"{\"type\":\"text\",\"text\":\"\"}"),
                    Block::Reasoning => {
                        out.put_slice(b"{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
                    }
                    Block::Call { id, name } => {
                        out.put_slice(b"{\"type\":\"tool_use\",\"id\":");
                        write_string(out, &tool_use_id(id));
                        out.put_slice(b",\"name\":");
                        write_string(out, name);
                        out.put_slice(b",\"input\":{}}");
                    }
                }
                out.put_slice(b"}\n\n");
            }
            Step::Add(text) => {
                let (kind, member) = match (self.reasoning, self.call) {
                    (true, _) => ("thinking_delta", "thinking"),
                    (_, true) => ("input_json_delta", "partial_json"),
                    _ => ("text_delta", "text"),
                };
                self.delta(out, kind, member, text);
            }
            Step::Close => {
                if self.reasoning {
                    self.delta(out, "signature_delta", "signature", SIGNATURE);
                }
                self.event(out, "content_block_stop");
                out.put_slice(b"}\n\n");
                self.index += 1;
            }
        }
    }

    fn event(&self, out: &mut BytesMut, event: &str) {
        open(out, event);
        out.put_slice(b",\"index\":");
        write_u64(out, u64::from(self.index));
    }

    fn delta(&self, out: &mut BytesMut, kind: &str, member: &str, text: &str) {
        out.reserve(text.len() + 192);
        self.event(out, "content_block_delta");
        out.put_slice(b",\"delta\":{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"");
        out.put_slice(member.as_bytes());
        out.put_slice(b"\":\"");
        write_escaped(out, text);
        out.put_slice(b"\"}}\n\n");
    }
}
