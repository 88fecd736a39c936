use bytes::{Buf, Bytes, BytesMut};

use super::{FrameError, two_part};

/// Everything of a request frame but the body, which is sent from where it lies.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// Dispatch key: instance, namespace, component, endpoint.
    pub path: &'a str,
    /// Headers in the order to be written.
    pub headers: &'a [(&'a str, &'a str)],
    /// Control message, JSON.
    pub control: &'a [u8],
    /// Length of the body that follows.
    pub body_len: usize,
}

impl RequestHead<'_> {
    /// Encodes the part of the frame before the body.
    ///
    /// # Errors
    /// The whole frame would exceed `max` bytes, or path or headers exceed 64 KiB.
    pub fn encode(&self, max: usize) -> Result<Bytes, FrameError> {
        let mut headers = Vec::with_capacity(256);
        put_headers(&mut headers, self.headers);
        let path_len = length(self.path.len(), "path over 64 KiB")?;
        let headers_len = length(headers.len(), "headers over 64 KiB")?;
        let payload_len = 24 + self.control.len() as u64 + self.body_len as u64;
        let len = 8 + self.path.len() as u64 + headers.len() as u64 + payload_len;
        let Some(payload_len) = u32::try_from(payload_len).ok().filter(|_| len <= max as u64) else {
            return Err(FrameError::TooLarge { len, max: max as u64 });
        };
        let mut out = Vec::with_capacity((len - self.body_len as u64) as usize);
        out.extend_from_slice(&path_len.to_be_bytes());
        out.extend_from_slice(self.path.as_bytes());
        out.extend_from_slice(&headers_len.to_be_bytes());
        out.extend_from_slice(&headers);
        out.extend_from_slice(&payload_len.to_be_bytes());
        two_part::put_prefix(&mut out, self.control.len(), self.body_len);
        out.extend_from_slice(self.control);
        Ok(out.into())
    }
}

/// A request frame as a worker reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFrame {
    /// Dispatch key; UTF-8 is not checked yet.
    pub path: Bytes,
    /// Headers, a JSON object or nothing.
    pub headers: Bytes,
    /// The two-part message.
    pub payload: Bytes,
}

impl RequestFrame {
    /// Takes the frame at the front of `bytes`, if all of it is there.
    ///
    /// # Errors
    /// The whole frame would exceed `max` bytes. The connection cannot be read on.
    pub fn decode(bytes: &mut BytesMut, max: usize) -> Result<Option<Self>, FrameError> {
        let Some(path_len) = peek(bytes, 0).map(u16::from_be_bytes) else { return Ok(None) };
        let path_len = usize::from(path_len);
        let Some(headers_len) = peek(bytes, 2 + path_len).map(u16::from_be_bytes) else { return Ok(None) };
        let headers_len = usize::from(headers_len);
        let payload_at = 8 + path_len + headers_len;
        let Some(payload_len) = peek(bytes, payload_at - 4).map(u32::from_be_bytes) else { return Ok(None) };
        let len = payload_at as u64 + u64::from(payload_len);
        if len > max as u64 {
            return Err(FrameError::TooLarge { len, max: max as u64 });
        }
        if (bytes.len() as u64) < len {
            return Ok(None);
        }
        let mut frame = bytes.split_to(len as usize).freeze();
        frame.advance(2);
        let path = frame.split_to(path_len);
        frame.advance(2);
        let headers = frame.split_to(headers_len);
        frame.advance(4);
        Ok(Some(Self { path, headers, payload: frame }))
    }

    /// The headers in the order sent; none when they are not a JSON object of strings.
    #[must_use]
    pub fn headers(&self) -> Vec<(String, String)> {
        match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&self.headers) {
            Ok(headers) => headers
                .into_iter()
                .filter_map(|(name, value)| match value {
                    serde_json::Value::String(value) => Some((name, value)),
                    _ => None,
                })
                .collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Splits the payload into control message and body.
    ///
    /// # Errors
    /// The payload is not one two-part message.
    pub fn parts(&self) -> Result<(Bytes, Bytes), FrameError> {
        match two_part::TwoPart::decode(&self.payload, self.payload.len())? {
            Some((parts, len)) if len == self.payload.len() => {
                Ok((self.payload.slice_ref(parts.header), self.payload.slice_ref(parts.body)))
            }
            _ => Err(FrameError::Malformed("payload is not a two-part message")),
        }
    }
}

fn put_headers(out: &mut Vec<u8>, headers: &[(&str, &str)]) {
    out.push(b'{');
    for (index, (name, value)) in headers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_string(out, name);
        out.push(b':');
        put_string(out, value);
    }
    out.push(b'}');
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("strings are JSON and memory can be written");
}

fn length(len: usize, what: &'static str) -> Result<u16, FrameError> {
    u16::try_from(len).map_err(|_| FrameError::Malformed(what))
}

fn peek<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
