use bytes::{BufMut, BytesMut};

use crate::Usage;
use crate::json::write_u64;

/// Writes counts as Anthropic splits them: `input_tokens` are those that no cache served.
pub(super) fn write(out: &mut BytesMut, usage: &Usage, output_tokens: u64) {
    let cached = usage.cached_tokens.unwrap_or(0).min(usage.prompt_tokens);
    out.put_slice(b"{\"input_tokens\":");
    write_u64(out, usage.prompt_tokens - cached);
    out.put_slice(b",\"output_tokens\":");
    write_u64(out, output_tokens);
    out.put_slice(b",\"cache_creation_input_tokens\":0");
    if cached > 0 {
        out.put_slice(b",\"cache_read_input_tokens\":");
        write_u64(out, cached);
    }
    out.put_u8(b'}');
}
