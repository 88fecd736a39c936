//! Text to token ids and back, as somebody else's tokenizer does it.

use std::fmt;
use std::sync::Arc;

use crate::models::ADDED_TOKENS;

/// Encodes text without adding special tokens.
pub type EncodeFn = Arc<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// Decodes ids to text, special tokens included.
pub type DecodeFn = Arc<dyn Fn(&[u32]) -> String + Send + Sync>;

/// A tokenizer as two functions, so that this crate needs none.
#[derive(Clone)]
pub struct TextCodec {
    encode: EncodeFn,
    decode: DecodeFn,
}

impl TextCodec {
    /// Wraps a tokenizer.
    pub fn new(
        encode: impl Fn(&str) -> Vec<u32> + Send + Sync + 'static,
        decode: impl Fn(&[u32]) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { encode: Arc::new(encode), decode: Arc::new(decode) }
    }

    /// The codec of [`tiny_chat`](crate::tiny_chat) models: one id per byte, and the added tokens.
    pub fn tiny_chat() -> Self {
        Self::new(encode_bytes, decode_bytes)
    }

    /// Encodes `text`.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        (self.encode)(text)
    }

    /// Decodes `ids`.
    pub fn decode(&self, ids: &[u32]) -> String {
        (self.decode)(ids)
    }
}

impl fmt::Debug for TextCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextCodec")
    }
}

fn encode_bytes(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let added = (256..).zip(ADDED_TOKENS).find(|(_, (token, _))| rest.starts_with(token));
        let used = match added {
            Some((id, (token, _))) => {
                ids.push(id);
                token.len()
            }
            None => {
                ids.extend(rest.bytes().take(letter.len_utf8()).map(u32::from));
                letter.len_utf8()
            }
        };
        rest = &rest[used..];
    }
    ids
}

fn decode_bytes(ids: &[u32]) -> String {
    let mut bytes = Vec::with_capacity(ids.len());
    for id in ids {
        if let Ok(byte) = u8::try_from(*id) {
            bytes.push(byte);
        } else if let Some((token, _)) = ADDED_TOKENS.get(*id as usize - 256) {
            bytes.extend_from_slice(token.as_bytes());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::TextCodec;

    #[test]
    fn tiny_chat_codec_knows_bytes_and_added_tokens() {
        let codec = TextCodec::tiny_chat();
        let ids = codec.encode("é<|im_end|><tool>");
        assert_eq!(ids[..3], [0xc3, 0xa9, 258]);
        assert_eq!(codec.decode(&ids), "é<|im_end|><tool>");
        assert_eq!(codec.decode(&[104, 105, 9999]), "hi");
    }
}
