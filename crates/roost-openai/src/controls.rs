//! Control characters in JSON strings, which some clients send as they are.

use bytes::{Bytes, BytesMut};

use crate::json::write_escaped;

/// A body with the control characters inside of its strings escaped, as the grammar of JSON wants them; `None` when
/// there are none. For bodies that cannot be read otherwise: it is one more pass and a copy.
pub fn escape_controls(body: &Bytes) -> Option<Bytes> {
    let (mut inside, mut escaped) = (false, false);
    let mut out: Option<BytesMut> = None;
    let mut copied = 0;
    for (at, &byte) in body.iter().enumerate() {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            0..=0x1f if inside => {
                let out = out.get_or_insert_with(|| BytesMut::with_capacity(body.len() + 64));
                out.extend_from_slice(&body[copied..at]);
                write_escaped(out, char::from(byte).encode_utf8(&mut [0; 4]));
                copied = at + 1;
            }
            _ => {}
        }
    }
    let mut out = out?;
    out.extend_from_slice(&body[copied..]);
    Some(out.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_inside_of_strings() {
        let check = |text: &'static str| escape_controls(&Bytes::from_static(text.as_bytes()));
        assert_eq!(check("{\n\t\"a\": 1\r\n}"), None);
        assert_eq!(check(r#"{"a": "b\n\" c"}"#), None);
        let fixed = check("{\n\"a\": \"b\tc\u{1}d\\\"\n\"}").expect("something to escape");
        let value: serde_json::Value = serde_json::from_slice(&fixed).expect("JSON now");
        assert_eq!(value["a"], "b\tc\u{1}d\"\n");
    }
}
