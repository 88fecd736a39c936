use bytes::{BufMut, BytesMut};

use crate::json::write_u64;

/// Token counts of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Prompt tokens (ISL).
    pub prompt_tokens: u64,
    /// Generated tokens (OSL), summed over choices.
    pub completion_tokens: u64,
    /// Prompt tokens served from the worker's KV cache, when it reported them.
    pub cached_tokens: Option<u64>,
    /// Generated tokens that were reasoning, where reasoning is parsed.
    pub reasoning_tokens: Option<u64>,
}

impl Usage {
    pub(crate) fn write(&self, out: &mut BytesMut) {
        out.put_slice(b"{\"prompt_tokens\":");
        write_u64(out, self.prompt_tokens);
        out.put_slice(b",\"completion_tokens\":");
        write_u64(out, self.completion_tokens);
        out.put_slice(b",\"total_tokens\":");
        write_u64(out, self.prompt_tokens.saturating_add(self.completion_tokens));
        if let Some(cached) = self.cached_tokens {
            out.put_slice(b",\"prompt_tokens_details\":{\"cached_tokens\":");
            write_u64(out, cached);
            out.put_u8(b'}');
        }
        if let Some(reasoning) = self.reasoning_tokens {
            out.put_slice(b",\"completion_tokens_details\":{\"reasoning_tokens\":");
            write_u64(out, reasoning);
            out.put_u8(b'}');
        }
        out.put_u8(b'}');
    }
}
