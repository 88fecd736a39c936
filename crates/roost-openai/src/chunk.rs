use bytes::{BufMut, BytesMut};

use crate::json::{write_escaped, write_string, write_u64};
use crate::{ApiError, Usage};

/// Which API the answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

/// Why a choice ended, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// End of sequence, stop string or stop token.
    Stop,
    /// The token limit.
    Length,
    /// The engine's content filter.
    ContentFilter,
    /// Complete tool calls.
    ToolCalls,
}

impl Finish {
    /// The wire word.
    pub fn as_str(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::ContentFilter => "content_filter",
            Finish::ToolCalls => "tool_calls",
        }
    }
}

/// Writes the events of one streamed answer into a byte buffer.
///
/// The parts that never change (id, model, time) are rendered once; an event costs a few copies and no
/// allocation beyond the buffer's own growth. Each method appends one complete event.
#[derive(Debug)]
pub struct ChunkWriter {
    flavor: Flavor,
    head: Box<[u8]>,
    tail: Box<[u8]>,
    role_sent: bool,
    running_usage: bool,
    nvext: Option<Box<str>>,
}

impl ChunkWriter {
    /// A writer for the answer `id` (with its `chatcmpl-`/`cmpl-` prefix), created at `created` (Unix seconds).
    pub fn new(flavor: Flavor, id: &str, model: &str, created: u64) -> Self {
        let mut head = BytesMut::new();
        head.put_slice(b"data: {\"id\":");
        write_string(&mut head, id);
        head.put_slice(b",\"choices\":[");
        let mut tail = BytesMut::new();
        tail.put_slice(b"],\"created\":");
        write_u64(&mut tail, created);
        tail.put_slice(b",\"model\":");
        write_string(&mut tail, model);
        tail.put_slice(match flavor {
            Flavor::Chat => b",\"object\":\"chat.completion.chunk\"".as_slice(),
            Flavor::Completion => b",\"system_fingerprint\":null,\"object\":\"text_completion\"".as_slice(),
        });
        ChunkWriter {
            flavor,
            head: head[..].into(),
            tail: tail[..].into(),
            role_sent: false,
            running_usage: false,
            nvext: None,
        }
    }

    /// Puts running usage on every chunk (`continuous_usage_stats`).
    pub fn set_running_usage(&mut self, on: bool) {
        self.running_usage = on;
    }

    /// Puts an `nvext` member, a complete JSON object, on every chunk.
    pub fn set_nvext(&mut self, json: impl Into<Box<str>>) {
        self.nvext = Some(json.into());
    }

    /// Whether the first chunk, the one with the role, has been written.
    pub fn started(&self) -> bool {
        self.role_sent
    }

    /// Writes a chunk with new text; the first one carries the role.
    pub fn text(&mut self, out: &mut BytesMut, text: &str, usage: &Usage) {
        out.reserve(self.head.len() + self.tail.len() + text.len() + 128);
        out.put_slice(&self.head);
        match self.flavor {
            Flavor::Chat => {
                out.put_slice(b"{\"index\":0,\"delta\":{\"content\":\"");
                write_escaped(out, text);
                out.put_slice(if self.role_sent { b"\"}" } else { b"\",\"role\":\"assistant\"}".as_slice() });
                out.put_slice(b",\"finish_reason\":null,\"logprobs\":null}");
            }
            Flavor::Completion => {
                out.put_slice(b"{\"text\":\"");
                write_escaped(out, text);
                out.put_slice(b"\",\"index\":0}");
            }
        }
        self.role_sent = true;
        self.close(out, usage);
    }

    /// Writes the last chunk of the choice.
    pub fn finish(&mut self, out: &mut BytesMut, finish: Finish, usage: &Usage) {
        out.put_slice(&self.head);
        match self.flavor {
            Flavor::Chat => {
                out.put_slice(b"{\"index\":0,\"delta\":{");
                if !self.role_sent {
                    out.put_slice(b"\"role\":\"assistant\"");
                }
                out.put_slice(b"},\"finish_reason\":");
                write_string(out, finish.as_str());
                out.put_slice(b",\"logprobs\":null}");
            }
            Flavor::Completion => {
                out.put_slice(b"{\"text\":\"\",\"index\":0,\"finish_reason\":");
                write_string(out, finish.as_str());
                out.put_u8(b'}');
            }
        }
        self.role_sent = true;
        self.close(out, usage);
    }

    /// Writes the chunk with empty `choices` that carries the usage.
    pub fn usage(&mut self, out: &mut BytesMut, usage: &Usage) {
        out.put_slice(&self.head);
        out.put_slice(&self.tail);
        out.put_slice(b",\"usage\":");
        usage.write(out);
        out.put_slice(b"}\n\n");
    }

    /// Writes an error event; `[DONE]` still follows.
    pub fn error(&mut self, out: &mut BytesMut, error: &ApiError) {
        error.write_event(out);
    }

    /// Writes the end mark.
    pub fn done(&mut self, out: &mut BytesMut) {
        out.put_slice(b"data: [DONE]\n\n");
    }

    /// Writes a comment line that keeps intermediaries from closing an idle stream.
    pub fn keep_alive(out: &mut BytesMut) {
        out.put_slice(b":\n\n");
    }

    fn close(&self, out: &mut BytesMut, usage: &Usage) {
        out.put_slice(&self.tail);
        if self.running_usage {
            out.put_slice(b",\"usage\":");
            usage.write(out);
        } else if self.flavor == Flavor::Completion {
            out.put_slice(b",\"usage\":null");
        }
        if let Some(nvext) = &self.nvext {
            out.put_slice(b",\"nvext\":");
            out.put_slice(nvext.as_bytes());
        }
        out.put_slice(b"}\n\n");
    }
}

#[cfg(test)]
mod tests;
