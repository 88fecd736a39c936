use bytes::{BufMut, BytesMut};

use crate::json::{write_string, write_u64};

/// One served model as the models routes show it.
#[derive(Debug, Clone, Copy)]
pub struct ModelEntry<'a> {
    /// Served name.
    pub id: &'a str,
    /// Unix seconds; the peer answers the time of the request.
    pub created: u64,
    /// Tokens of prompt and answer together, when known.
    pub context_window: Option<u64>,
    /// Longest answer in tokens, when known.
    pub max_output_tokens: Option<u64>,
}

/// Writes the body of `GET /v1/models/{id}`.
pub fn write_model(out: &mut BytesMut, entry: &ModelEntry<'_>) {
    out.put_slice(b"{\"id\":");
    write_string(out, entry.id);
    out.put_slice(b",\"object\":\"model\",\"created\":");
    write_u64(out, entry.created);
    out.put_slice(b",\"owned_by\":\"nvidia\"");
    if let Some(window) = entry.context_window {
        out.put_slice(b",\"context_window\":");
        write_u64(out, window);
    }
    if let Some(limit) = entry.max_output_tokens {
        out.put_slice(b",\"max_output_tokens\":");
        write_u64(out, limit);
    }
    out.put_u8(b'}');
}

/// Writes the body of `GET /v1/models`.
pub fn write_model_list<'a>(out: &mut BytesMut, entries: impl IntoIterator<Item = ModelEntry<'a>>) {
    out.put_slice(b"{\"object\":\"list\",\"data\":[");
    for (at, entry) in entries.into_iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        write_model(out, &entry);
    }
    out.put_slice(b"]}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded exchange `models`.
    #[test]
    fn equal_to_the_peer() {
        let mut out = BytesMut::new();
        let entry =
            ModelEntry { id: "qwen3", created: 7, context_window: Some(4096), max_output_tokens: None };
        write_model_list(&mut out, [entry]);
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            r#"{"object":"list","data":[{"id":"qwen3","object":"model","created":7,"owned_by":"nvidia","context_window":4096}]}"#
        );
    }
}
