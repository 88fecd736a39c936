//! Bytes captured from the peer, for tests.

use std::path::PathBuf;

use serde_json::Value;

use crate::frame::TwoPart;

/// One captured byte stream and what it holds.
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) json: Value,
}

/// All fixtures of a kind: `request` or `response`.
pub(crate) fn all(kind: &str) -> Vec<Fixture> {
    let mut names: Vec<_> = std::fs::read_dir(folder().join(kind))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    names.iter().map(|name| read(kind, name)).collect()
}

/// One fixture.
pub(crate) fn read(kind: &str, name: &str) -> Fixture {
    let file =
        |extension: &str| std::fs::read(folder().join(kind).join(format!("{name}.{extension}"))).unwrap();
    Fixture {
        name: name.to_owned(),
        bytes: file("bin"),
        json: serde_json::from_slice(&file("json")).unwrap(),
    }
}

/// Bytes of the other direction, when there were any.
pub(crate) fn control(name: &str) -> Option<Vec<u8>> {
    std::fs::read(folder().join("response").join(format!("{name}.control.bin"))).ok()
}

/// The file with this path below the fixtures.
pub(crate) fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder().join(path)).unwrap()).unwrap()
}

/// Splits a byte stream into its two-part messages.
pub(crate) fn two_parts(mut bytes: &[u8]) -> Vec<TwoPart<'_>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (frame, len) = TwoPart::decode(bytes, usize::MAX).unwrap().expect("whole frames");
        frames.push(frame);
        bytes = &bytes[len..];
    }
    frames
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/wire"))
}
