//! Bytes to messages and back.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::ZmtpError;

/// Length of the greeting that both sides send first.
pub(crate) const GREETING_BYTES: usize = 64;
/// Largest message that is accepted, all frames together. The peer's batches are far below one megabyte.
pub(crate) const MAX_MESSAGE_BYTES: u64 = 64 << 20;
/// Most frames of one message; events have four.
const MAX_FRAMES: usize = 16;
/// Most bytes that are reserved ahead of their arrival.
const RESERVE_BYTES: usize = 256 << 10;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Our greeting: version 3.1, mechanism NULL, not a server.
pub(crate) fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[0] = 0xff;
    bytes[8] = 1;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = 1;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// Checks a peer's greeting and returns its minor version.
pub(crate) fn check_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<u8, ZmtpError> {
    let mechanism = &bytes[12..32];
    let null = mechanism.starts_with(b"NULL") && mechanism[4..].iter().all(|&byte| byte == 0);
    if bytes[0] != 0xff || bytes[9] & 1 == 0 || bytes[10] < 3 || !null {
        return Err(ZmtpError::Greeting);
    }
    Ok(if bytes[10] == 3 { bytes[11] } else { 1 })
}

/// What a peer sent.
#[derive(Debug, PartialEq)]
pub(crate) enum Item {
    Message(Vec<Bytes>),
    Command { name: Bytes, body: Bytes },
}

/// Splits received bytes into items. Never looks at more than was received and never reserves what a length claims.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    frames: Vec<Bytes>,
    size: u64,
}

impl Decoder {
    /// Takes one item from `buffer`; `None` when more bytes are needed.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Item>, ZmtpError> {
        loop {
            let Some(&flags) = buffer.first() else { return Ok(None) };
            if flags & !(MORE | LONG | COMMAND) != 0 {
                return Err(ZmtpError::Malformed("frame flags"));
            }
            let header = if flags & LONG != 0 { 9 } else { 2 };
            if buffer.len() < header {
                return Ok(None);
            }
            let size = match flags & LONG {
                0 => u64::from(buffer[1]),
                _ => u64::from_be_bytes(buffer[1..9].try_into().expect("the slice has eight bytes")),
            };
            let whole = self.size.saturating_add(size);
            if whole > MAX_MESSAGE_BYTES {
                return Err(ZmtpError::TooLarge { what: "message", size: whole, limit: MAX_MESSAGE_BYTES });
            }
            let size_here = usize::try_from(size).expect("below the message limit");
            let missing = (header + size_here).saturating_sub(buffer.len());
            if missing > 0 {
                buffer.reserve(missing.min(RESERVE_BYTES));
                return Ok(None);
            }
            buffer.advance(header);
            let body = buffer.split_to(size_here).freeze();
            if flags & COMMAND != 0 {
                return command(body).map(Some);
            }
            self.frames.push(body);
            self.size = whole;
            if flags & MORE == 0 {
                self.size = 0;
                return Ok(Some(Item::Message(std::mem::take(&mut self.frames))));
            }
            if self.frames.len() >= MAX_FRAMES {
                return Err(ZmtpError::Malformed("message: too many frames"));
            }
        }
    }
}

fn command(mut body: Bytes) -> Result<Item, ZmtpError> {
    let length = usize::from(*body.first().ok_or(ZmtpError::Malformed("empty command"))?);
    if body.len() <= length {
        return Err(ZmtpError::Malformed("command name"));
    }
    body.advance(1);
    let name = body.split_to(length);
    Ok(Item::Command { name, body })
}

/// Appends a command frame.
pub(crate) fn encode_command(out: &mut BytesMut, name: &str, body: &[u8]) {
    let mut frame = BytesMut::with_capacity(1 + name.len() + body.len());
    frame.put_u8(u8::try_from(name.len()).expect("command names are a few letters long"));
    frame.put_slice(name.as_bytes());
    frame.put_slice(body);
    encode_frame(out, COMMAND, &frame);
}

/// One multipart message as sent.
pub fn encode_message(frames: &[&[u8]]) -> Bytes {
    let mut out = BytesMut::with_capacity(frames.iter().map(|frame| frame.len() + 9).sum());
    for (index, frame) in frames.iter().enumerate() {
        encode_frame(&mut out, if index + 1 < frames.len() { MORE } else { 0 }, frame);
    }
    out.freeze()
}

fn encode_frame(out: &mut BytesMut, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(short) => {
            out.put_u8(flags);
            out.put_u8(short);
        }
        Err(_) => {
            out.put_u8(flags | LONG);
            out.put_u64(body.len() as u64);
        }
    }
    out.put_slice(body);
}

/// Body of a READY command that names only the socket type.
pub(crate) fn ready(socket_type: &str) -> BytesMut {
    let mut body = BytesMut::new();
    let key = b"Socket-Type";
    body.put_u8(key.len() as u8);
    body.put_slice(key);
    body.put_u32(socket_type.len() as u32);
    body.put_slice(socket_type.as_bytes());
    body
}

/// The socket type in the body of a READY command.
pub(crate) fn socket_type(mut body: Bytes) -> Result<String, ZmtpError> {
    let malformed = ZmtpError::Malformed("ready command");
    while body.has_remaining() {
        let key_length = usize::from(body.get_u8());
        if body.len() < key_length + 4 {
            return Err(malformed);
        }
        let key = body.split_to(key_length);
        let value_length = body.get_u32() as usize;
        if body.len() < value_length {
            return Err(malformed);
        }
        let value = body.split_to(value_length);
        if key.eq_ignore_ascii_case(b"Socket-Type") {
            return Ok(String::from_utf8_lossy(&value).into_owned());
        }
    }
    Err(malformed)
}
