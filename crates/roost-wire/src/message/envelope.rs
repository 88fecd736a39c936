use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Codec, CodecError, msgpack};

/// What a data frame holds: one item, still encoded, or the end of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<B = Bytes> {
    /// The item in the codec of the request.
    pub data: Option<B>,
    /// Whether the answer is complete; comes with no item.
    pub complete_final: bool,
}

/// The envelope as JSON.
#[derive(Deserialize)]
struct JsonEnvelope<'a> {
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    complete_final: bool,
}

impl<'a> Envelope<&'a [u8]> {
    /// Opens an envelope without decoding the item; unknown keys are ignored.
    ///
    /// # Errors
    /// The bytes are no envelope.
    pub fn decode(codec: Codec, bytes: &'a [u8]) -> Result<Self, CodecError> {
        match codec {
            Codec::Json => {
                let JsonEnvelope { data, complete_final } = serde_json::from_slice(bytes)?;
                Ok(Self { data: data.map(|item| item.get().as_bytes()), complete_final })
            }
            Codec::Msgpack => decode_msgpack(bytes).ok_or(CodecError::Malformed("not an envelope")),
        }
    }
}

fn decode_msgpack(bytes: &[u8]) -> Option<Envelope<&[u8]>> {
    let mut scanner = msgpack::Scanner::new(bytes);
    let mut envelope = Envelope { data: None, complete_final: false };
    for _ in 0..scanner.map_len()? {
        match scanner.str()? {
            b"data" => envelope.data = Some(scanner.value()?).filter(|item| *item != [msgpack::NIL]),
            b"complete_final" => envelope.complete_final = scanner.bool()?,
            _ => {
                scanner.value()?;
            }
        }
    }
    Some(envelope)
}

/// Writes the envelope of an item that `item` appends to the buffer.
pub(crate) fn put_item<E>(
    codec: Codec,
    out: &mut Vec<u8>,
    item: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let (before, after) = match codec {
        Codec::Json => (&b"{\"data\":"[..], &b",\"complete_final\":false}"[..]),
        Codec::Msgpack => (&b"\x82\xa4data"[..], &b"\xaecomplete_final\xc2"[..]),
    };
    out.extend_from_slice(before);
    item(out)?;
    out.extend_from_slice(after);
    Ok(())
}

/// The envelope that ends an answer.
pub(crate) fn end(codec: Codec) -> &'static [u8] {
    match codec {
        Codec::Json => b"{\"complete_final\":true}",
        Codec::Msgpack => b"\x81\xaecomplete_final\xc3",
    }
}
