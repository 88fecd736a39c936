//! The text protocol: lines, and payloads behind them.

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Deserialize;

use super::NatsError;

/// The server's first line tells about its cluster and can be long.
const MAX_LINE: usize = 64 << 10;
/// No event is larger; servers allow 1 MiB unless told otherwise.
pub(super) const MAX_PAYLOAD: usize = 64 << 20;

/// Something that the server says.
#[derive(Debug, PartialEq)]
pub(super) enum Op {
    Info(Info),
    Message { sid: u64, payload: Bytes },
    Ping,
    Pong,
    Ok,
    Error(String),
}

/// What the server tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    /// What a client with a key must sign.
    pub(super) nonce: Option<String>,
    pub(super) tls_required: bool,
    pub(super) tls_available: bool,
    /// Largest payload it takes, bytes.
    pub(super) max_payload: usize,
    /// It goes down: connect elsewhere.
    pub(super) ldm: bool,
}

/// Splits a stream into what the server says, whatever the pieces it comes in.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// A message whose line was read: its subscription and the length of its payload.
    message: Option<(u64, usize)>,
}

impl Decoder {
    /// Takes the next thing from the front of the buffer; `None` until it is there as a whole.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Op>, NatsError> {
        loop {
            if let Some((sid, length)) = self.message {
                if buffer.len() < length + 2 {
                    return Ok(None);
                }
                let payload = buffer.split_to(length).freeze();
                if buffer[..2] != *b"\r\n" {
                    return Err(NatsError::Malformed("end of a message"));
                }
                buffer.advance(2);
                self.message = None;
                return Ok(Some(Op::Message { sid, payload }));
            }
            let Some(end) = buffer.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
                return match buffer.len() < MAX_LINE {
                    true => Ok(None),
                    false => Err(NatsError::TooLarge { what: "line", size: buffer.len(), limit: MAX_LINE }),
                };
            };
            let line = buffer.split_to(end + 1);
            let line = line.trim_ascii_end();
            let (name, rest) =
                line.split_at(line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len()));
            let rest = rest.trim_ascii_start();
            match &name.to_ascii_uppercase()[..] {
                b"MSG" => self.message = Some(message(rest)?),
                b"PING" => return Ok(Some(Op::Ping)),
                b"PONG" => return Ok(Some(Op::Pong)),
                b"+OK" => return Ok(Some(Op::Ok)),
                b"-ERR" => {
                    let text = String::from_utf8_lossy(rest);
                    return Ok(Some(Op::Error(text.trim_matches('\'').to_owned())));
                }
                b"INFO" => {
                    let info = serde_json::from_slice(rest).map_err(|_| NatsError::Malformed("INFO"))?;
                    return Ok(Some(Op::Info(info)));
                }
                b"" => {}
                _ => return Err(NatsError::Malformed("line: not of a NATS server")),
            }
        }
    }
}

/// `SUBJECT SID [REPLY-TO] LENGTH`.
fn message(line: &[u8]) -> Result<(u64, usize), NatsError> {
    let malformed = || NatsError::Malformed("MSG");
    let line = std::str::from_utf8(line).map_err(|_| malformed())?;
    let parts: Vec<&str> = line.split_ascii_whitespace().collect();
    let (sid, length) = match parts[..] {
        [_, sid, length] | [_, sid, _, length] => (sid, length),
        _ => return Err(malformed()),
    };
    let length: usize = length.parse().map_err(|_| malformed())?;
    if length > MAX_PAYLOAD {
        return Err(NatsError::TooLarge { what: "message", size: length, limit: MAX_PAYLOAD });
    }
    Ok((sid.parse().map_err(|_| malformed())?, length))
}

/// Writes a message for the server.
pub(super) fn encode_publish(out: &mut BytesMut, subject: &str, payload: &[u8]) {
    out.extend_from_slice(format!("PUB {subject} {}\r\n", payload.len()).as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}
