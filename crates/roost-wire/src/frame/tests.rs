use bytes::BytesMut;
use serde_json::Value;

use super::*;
use crate::{
    Codec, fixtures,
    message::{Envelope, envelope},
};

const MAX: usize = DEFAULT_MAX_MESSAGE_BYTES;

#[test]
fn captured_requests_decode_and_encode_to_the_same_bytes() {
    for fixture in fixtures::all("request") {
        let mut inbox = BytesMut::from(&fixture.bytes[..]);
        let frame = RequestFrame::decode(&mut inbox, MAX).unwrap().unwrap();
        assert!(inbox.is_empty(), "{}", fixture.name);
        assert_eq!(frame.path, fixture.json["path"].as_str().unwrap());
        assert_eq!(fixture.bytes.len(), fixture.json["frame_len"].as_u64().unwrap() as usize);
        let headers = frame.headers();
        let map: serde_json::Map<_, _> =
            headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        assert_eq!(Value::from(map), fixture.json["headers"], "{}", fixture.name);

        let (control, body) = frame.parts().unwrap();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let path = std::str::from_utf8(&frame.path).unwrap();
        let head = RequestHead { path, headers: &headers, control: &control, body_len: body.len() };
        let mut written = head.encode(MAX).unwrap().to_vec();
        written.extend_from_slice(&body);
        assert_eq!(written, fixture.bytes, "{}", fixture.name);
    }
}

#[test]
fn captured_answers_encode_to_the_same_bytes() {
    for fixture in fixtures::all("response") {
        let codec: Codec = serde_json::from_value(fixture.json["codec"].clone()).unwrap();
        let mut written = Vec::new();
        for frame in fixtures::two_parts(&fixture.bytes) {
            if frame.body.is_empty() {
                frame.encode(&mut written);
                continue;
            }
            put_data(&mut written, |out| match Envelope::decode(codec, frame.body).unwrap().data {
                Some(item) => envelope::put_item(codec, out, |out| {
                    out.extend_from_slice(item);
                    Ok::<_, ()>(())
                }),
                None => {
                    out.extend_from_slice(envelope::end(codec));
                    Ok(())
                }
            })
            .unwrap();
        }
        assert_eq!(written, fixture.bytes, "{}", fixture.name);
    }
}

#[test]
fn captured_offsets_are_where_frames_begin() {
    for fixture in fixtures::all("response") {
        let mut offset = 0;
        let mut frames = fixture.json["frames"].as_array().unwrap().iter();
        for frame in fixtures::two_parts(&fixture.bytes) {
            let Some(printed) = frames.next().filter(|printed| printed.get("offset").is_some()) else {
                break;
            };
            assert_eq!(printed["offset"], offset, "{}", fixture.name);
            let len = 24 + frame.header.len() + frame.body.len();
            assert_eq!(printed["length"], len, "{}", fixture.name);
            offset += len;
        }
    }
}

#[test]
fn captured_signals_are_the_ones_we_send() {
    use crate::{line::control_frame, message::ControlSignal};
    let mut seen = 0;
    for fixture in fixtures::all("response") {
        let Some(bytes) = fixtures::control(&fixture.name) else { continue };
        let stopped = fixture.json["frontend_to_worker"][0]["header"] == "stop";
        let signal = if stopped { ControlSignal::Stop } else { ControlSignal::Kill };
        assert_eq!(control_frame(signal), bytes, "{}", fixture.name);
        seen += 1;
    }
    assert_eq!(seen, 5);
    let ok = fixtures::read("response", "agg_mocker_ok");
    assert!(ok.bytes.ends_with(&control_frame(ControlSignal::Sentinel)));
}

#[test]
fn captured_acks_decode_and_encode_to_the_same_bytes() {
    let acks = fixtures::json("ack/acks.json");
    for ack in acks["acks"].as_array().unwrap() {
        let bytes = from_hex(ack["hex"].as_str().unwrap());
        let (decoded, len) = Ack::decode(&bytes).unwrap().unwrap();
        assert_eq!(len, bytes.len());
        let expected = match ack["text"].as_str().unwrap() {
            "" => Ack::Accepted,
            "Server overloaded: worker at capacity" => Ack::at_capacity(),
            "Server unavailable: unknown endpoint 0/none/none/none" => {
                Ack::unknown_endpoint("0/none/none/none")
            }
            text if text.starts_with("Read error") => {
                Ack::unreadable(FrameError::TooLarge { len: 67_108_877, max: MAX as u64 })
            }
            text => panic!("unexpected ack {text}"),
        };
        assert_eq!(decoded, expected);
        let mut written = Vec::new();
        expected.encode(&mut written);
        assert_eq!(written, bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Ack::decode(&bytes[..cut]).unwrap(), None);
        }
    }
}

#[test]
fn unknown_ack_text_counts_as_acceptance() {
    let mut bytes = 5u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(b"hello");
    assert_eq!(Ack::decode(&bytes).unwrap(), Some((Ack::Accepted, 9)));
    let mut long = Vec::new();
    Ack::Unavailable("é".repeat(70_000)).encode(&mut long);
    assert!(Ack::decode(&long).unwrap().is_some());
}

#[test]
fn frames_are_taken_one_by_one_from_any_split() {
    let one = fixtures::read("request", "chat_plain").bytes;
    let two = fixtures::read("request", "chat_json_codec").bytes;
    let stream = [one.as_slice(), &two].concat();
    for piece in [1, 7, 100, 1000] {
        let mut inbox = BytesMut::new();
        let mut frames = Vec::new();
        for bytes in stream.chunks(piece) {
            inbox.extend_from_slice(bytes);
            while let Some(frame) = RequestFrame::decode(&mut inbox, MAX).unwrap() {
                frames.push(frame.path);
            }
        }
        assert_eq!(frames.len(), 2);
        assert!(inbox.is_empty());
    }
}

#[test]
fn hostile_lengths_are_refused_before_anything_is_allocated() {
    let mut frame = BytesMut::from(&b"\0\x03abc\0\x02{}\x04\0\0\0"[..]);
    let capacity = frame.capacity();
    let refused = RequestFrame::decode(&mut frame, MAX).unwrap_err();
    assert_eq!(refused, FrameError::TooLarge { len: 67_108_877, max: MAX as u64 });
    assert_eq!(frame.capacity(), capacity);

    for (header, body) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 40, 1)] {
        let mut prefix = header.to_be_bytes().to_vec();
        prefix.extend_from_slice(&body.to_be_bytes());
        prefix.extend_from_slice(&[0; 8]);
        assert!(matches!(TwoPart::decode(&prefix, MAX), Err(FrameError::TooLarge { .. })));
    }
    assert!(matches!(Ack::decode(&u32::MAX.to_be_bytes()), Err(FrameError::TooLarge { .. })));
}

#[test]
fn a_frame_over_the_limit_is_not_encoded() {
    let head = RequestHead { path: "p", headers: &[], control: b"{}", body_len: MAX };
    assert!(matches!(head.encode(MAX), Err(FrameError::TooLarge { len, .. }) if len > MAX as u64));
    // Exactly at the limit it is: 8 bytes of lengths, path, `{}` for headers, 24 of prefix, control.
    let fits = MAX - 8 - 1 - 2 - 24 - 2;
    assert!(RequestHead { body_len: fits, ..head }.encode(MAX).is_ok());
    assert!(RequestHead { body_len: fits + 1, ..head }.encode(MAX).is_err());
    let path = "p".repeat(65_536);
    assert!(matches!(RequestHead { path: &path, ..head }.encode(usize::MAX), Err(FrameError::Malformed(_))));
}

#[test]
fn headers_that_need_escapes_survive() {
    let headers = [("a\"b", "c\\\n"), ("é", "")];
    let head = RequestHead { path: "p", headers: &headers, control: b"", body_len: 0 };
    let mut inbox = BytesMut::from(&head.encode(MAX).unwrap()[..]);
    let frame = RequestFrame::decode(&mut inbox, MAX).unwrap().unwrap();
    let expected: Vec<_> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(frame.headers(), expected);
    // No headers at all are legal, and so is nonsense: a worker must not need any.
    let bare = RequestFrame { headers: bytes::Bytes::new(), ..frame.clone() };
    assert_eq!(bare.headers(), []);
    assert_eq!(RequestFrame { headers: "[1".into(), ..frame }.headers(), []);
}

/// A small generator that needs no seed from outside: the same bytes in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }
}

#[test]
fn damaged_input_never_panics_nor_allocates_beyond_the_limit() {
    let mut noise = Noise(1);
    let requests = fixtures::all("request");
    let responses = fixtures::all("response");
    for round in 0..4_000 {
        let source = if round % 2 == 0 { &requests } else { &responses };
        let bytes = &source[noise.next() as usize % source.len()].bytes;
        let start = noise.next() as usize % bytes.len();
        let len = noise.next() as usize % (bytes.len() - start).min(2048);
        let mut damaged = bytes[start..start + len].to_vec();
        for _ in 0..noise.next() % 8 {
            if !damaged.is_empty() {
                let at = noise.next() as usize % damaged.len();
                damaged[at] = noise.next() as u8;
            }
        }
        let max = 4096;
        let mut inbox = BytesMut::from(&damaged[..]);
        while let Ok(Some(frame)) = RequestFrame::decode(&mut inbox, max) {
            assert!(frame.payload.len() <= max);
            let _ = (frame.headers(), frame.parts());
        }
        assert!(inbox.capacity() <= damaged.len().max(64));
        if let Ok(Some((frame, len))) = TwoPart::decode(&damaged, max) {
            assert_eq!(len, 24 + frame.header.len() + frame.body.len());
        }
        let _ = Ack::decode(&damaged);
        for codec in [Codec::Msgpack, Codec::Json] {
            if let Ok(Envelope { data: Some(item), .. }) = Envelope::decode(codec, &damaged) {
                assert!(item.len() < damaged.len());
            }
            let _ = codec.decode::<crate::message::EngineRequest>(&damaged);
            let _ = codec.decode::<crate::message::Annotated<crate::message::EngineOutput>>(&damaged);
        }
    }
}

#[test]
fn damaged_items_never_panic() {
    let mut noise = Noise(2);
    for fixture in fixtures::all("response") {
        let codec: Codec = serde_json::from_value(fixture.json["codec"].clone()).unwrap();
        for frame in fixtures::two_parts(&fixture.bytes).into_iter().filter(|frame| frame.body.len() < 1024) {
            for _ in 0..16 {
                let mut body = frame.body.to_vec();
                if !body.is_empty() {
                    let at = noise.next() as usize % body.len();
                    body[at] = noise.next() as u8;
                }
                if let Ok(Envelope { data: Some(item), .. }) = Envelope::decode(codec, &body) {
                    let _ = codec.decode::<crate::message::Annotated<crate::message::EngineOutput>>(item);
                }
            }
        }
    }
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}
