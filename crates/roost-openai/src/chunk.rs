use bytes::{BufMut, BytesMut};

use crate::json::{write_escaped, write_string, write_u64};
use crate::{ApiError, TokenLogprob, Usage, logprobs};

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

/// The next piece of a chat answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text for the user.
    Content(&'a str),
    /// Text of the reasoning.
    Reasoning(&'a str),
    /// A tool call begins; its arguments follow.
    ToolStart {
        /// Position of the call.
        index: u32,
        /// Id of the call.
        id: &'a str,
        /// Name of the function.
        name: &'a str,
    },
    /// The next characters of a call's arguments.
    ToolArguments {
        /// Position of the call.
        index: u32,
        /// Characters to append.
        fragment: &'a str,
    },
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
    /// One bit per choice whose first chunk has gone.
    begun: u128,
    running_usage: bool,
    reasoning_field: &'static str,
    nvext: Option<Box<str>>,
    request_id: Option<Box<str>>,
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
            begun: 0,
            running_usage: false,
            reasoning_field: "reasoning_content",
            nvext: None,
            request_id: None,
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

    /// Puts none on the chunks that follow.
    pub fn clear_nvext(&mut self) {
        self.nvext = None;
    }

    /// Names the request in error events.
    pub fn set_request_id(&mut self, id: impl Into<Box<str>>) {
        self.request_id = Some(id.into());
    }

    /// Names the member that carries reasoning; the default is `reasoning_content`.
    pub fn set_reasoning_field(&mut self, name: &'static str) {
        self.reasoning_field = name;
    }

    /// Writes a chunk with the next piece of a choice and the log probabilities that come with it, if any; the first
    /// one of a choice carries the role. A text completion has content only.
    pub fn piece(
        &mut self,
        out: &mut BytesMut,
        index: u32,
        piece: Piece<'_>,
        logprobs: &[TokenLogprob],
        usage: &Usage,
    ) {
        out.reserve(self.head.len() + self.tail.len() + 256);
        out.put_slice(&self.head);
        match self.flavor {
            Flavor::Chat => {
                out.put_slice(b"{\"index\":");
                write_u64(out, u64::from(index));
                out.put_slice(b",\"delta\":{");
                self.member(out, piece);
                if self.is_first(index) {
                    out.put_slice(b",\"role\":\"assistant\"");
                }
                out.put_slice(b"},\"finish_reason\":null,\"logprobs\":");
                logprobs::write(out, self.flavor, logprobs);
                out.put_u8(b'}');
            }
            Flavor::Completion => {
                let text = match piece {
                    Piece::Content(text) => text,
                    Piece::Reasoning(_) | Piece::ToolStart { .. } | Piece::ToolArguments { .. } => "",
                };
                out.put_slice(b"{\"text\":\"");
                write_escaped(out, text);
                out.put_slice(b"\",\"index\":");
                write_u64(out, u64::from(index));
                self.completion_logprobs(out, logprobs);
                out.put_u8(b'}');
            }
        }
        self.begin(index);
        self.close(out, usage);
    }

    fn is_first(&self, index: u32) -> bool {
        self.begun & bit(index) == 0
    }

    fn begin(&mut self, index: u32) {
        self.begun |= bit(index);
    }

    fn completion_logprobs(&self, out: &mut BytesMut, logprobs: &[TokenLogprob]) {
        if !logprobs.is_empty() {
            out.put_slice(b",\"logprobs\":");
            logprobs::write(out, self.flavor, logprobs);
        }
    }

    fn member(&self, out: &mut BytesMut, piece: Piece<'_>) {
        match piece {
            Piece::Content(text) => {
                out.put_slice(b"\"content\":\"");
                write_escaped(out, text);
                out.put_u8(b'"');
            }
            Piece::Reasoning(text) => {
                write_string(out, self.reasoning_field);
                out.put_slice(b":\"");
                write_escaped(out, text);
                out.put_u8(b'"');
            }
            Piece::ToolStart { index, id, name } => {
                out.put_slice(b"\"tool_calls\":[{\"index\":");
                write_u64(out, u64::from(index));
                out.put_slice(b",\"id\":");
                write_string(out, id);
                out.put_slice(b",\"type\":\"function\",\"function\":{\"name\":");
                write_string(out, name);
                out.put_slice(b",\"arguments\":\"\"}}]");
            }
            Piece::ToolArguments { index, fragment } => {
                out.put_slice(b"\"tool_calls\":[{\"index\":");
                write_u64(out, u64::from(index));
                out.put_slice(b",\"function\":{\"arguments\":\"");
                write_escaped(out, fragment);
                out.put_slice(b"\"}}]");
            }
        }
    }

    /// Writes the last chunk of a choice, with the log probabilities of tokens that no chunk has shown.
    pub fn finish(
        &mut self,
        out: &mut BytesMut,
        index: u32,
        finish: Finish,
        logprobs: &[TokenLogprob],
        usage: &Usage,
    ) {
        out.put_slice(&self.head);
        match self.flavor {
            Flavor::Chat => {
                out.put_slice(b"{\"index\":");
                write_u64(out, u64::from(index));
                out.put_slice(b",\"delta\":{");
                if self.is_first(index) {
                    out.put_slice(b"\"role\":\"assistant\"");
                }
                out.put_slice(b"},\"finish_reason\":");
                write_string(out, finish.as_str());
                out.put_slice(b",\"logprobs\":");
                logprobs::write(out, self.flavor, logprobs);
                out.put_u8(b'}');
            }
            Flavor::Completion => {
                out.put_slice(b"{\"text\":\"\",\"index\":");
                write_u64(out, u64::from(index));
                self.completion_logprobs(out, logprobs);
                out.put_slice(b",\"finish_reason\":");
                write_string(out, finish.as_str());
                out.put_u8(b'}');
            }
        }
        self.begin(index);
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
        error.write_event(out, self.request_id.as_deref());
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

/// There are at most 128 choices.
fn bit(index: u32) -> u128 {
    1u128.checked_shl(index).unwrap_or_default()
}

#[cfg(test)]
mod tests;
