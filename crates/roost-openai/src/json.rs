use bytes::{BufMut, BytesMut};

/// Writes `text` as a JSON string, quotes included.
pub(crate) fn write_string(out: &mut BytesMut, text: &str) {
    out.reserve(text.len() + 2);
    out.put_u8(b'"');
    write_escaped(out, text);
    out.put_u8(b'"');
}

/// Writes the inside of a JSON string: text without escapes is copied in runs.
pub(crate) fn write_escaped(out: &mut BytesMut, text: &str) {
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            0x00..=0x1f => {
                out.extend_from_slice(&bytes[start..at]);
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.put_u8(HEX[usize::from(byte >> 4)]);
                out.put_u8(HEX[usize::from(byte & 15)]);
                start = at + 1;
                continue;
            }
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..at]);
        out.extend_from_slice(escape);
        start = at + 1;
    }
    out.extend_from_slice(&bytes[start..]);
}

/// Writes a decimal number.
pub(crate) fn write_u64(out: &mut BytesMut, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_char_survives() {
        let mut text: String = (0u32..0x500).filter_map(char::from_u32).collect();
        text.push_str("你好 🚀 \u{2028}");
        let mut out = BytesMut::new();
        write_string(&mut out, &text);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}
