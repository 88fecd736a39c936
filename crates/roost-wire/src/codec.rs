use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// How deeply maps and arrays of a message may nest; bounds the stack that a hostile message can use.
const MAX_DEPTH: usize = 128;

/// How the body of a request and the items of its answer are encoded.
///
/// The field `payload_codec` of the control message carries it; without that field it is JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// JSON text.
    #[default]
    Json,
    /// MessagePack, structures as maps with string keys.
    Msgpack,
}

/// A message that could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Not a JSON document of the expected shape.
    #[error("json: {0}")]
    Json(#[from] serde_json::Error),
    /// Not a MessagePack value of the expected shape.
    #[error("msgpack: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
    /// A value that MessagePack cannot hold.
    #[error("msgpack: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    /// Bytes that break the framing around a message.
    #[error("{0}")]
    Malformed(&'static str),
}

impl Codec {
    /// Decodes one message; bytes after it are ignored in MessagePack and refused in JSON.
    ///
    /// # Errors
    /// The bytes are not a message of this type, or it nests too deeply.
    pub fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, CodecError> {
        match self {
            Self::Json => Ok(serde_json::from_slice(bytes)?),
            Self::Msgpack => {
                let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
                decoder.set_max_depth(MAX_DEPTH);
                Ok(T::deserialize(&mut decoder)?)
            }
        }
    }

    /// Encodes one message.
    ///
    /// # Errors
    /// The value has no representation in this codec.
    pub fn encode<T: Serialize + ?Sized>(self, value: &T) -> Result<Bytes, CodecError> {
        let mut out = Vec::new();
        self.encode_into(value, &mut out)?;
        Ok(out.into())
    }

    /// Encodes one message behind what `out` already holds.
    ///
    /// # Errors
    /// The value has no representation in this codec; `out` may then end in a part of it.
    pub fn encode_into<T: Serialize + ?Sized>(self, value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Json => serde_json::to_writer(out, value)?,
            Self::Msgpack => {
                value.serialize(&mut rmp_serde::Serializer::new(out).with_struct_map())?;
            }
        }
        Ok(())
    }

    /// The name used in control messages and instance records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Msgpack => "msgpack",
        }
    }
}
