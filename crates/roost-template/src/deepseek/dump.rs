//! JSON as the two formats write it.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::engine::write_float;

/// How floats are spelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Floats {
    /// Shortest, `1e-6` (V4).
    Short,
    /// As Python, `1e-06` (V4.1).
    Python,
}

/// JSON with a space after commas and colons.
pub(super) fn json(value: &serde_json::Value, floats: Floats) -> String {
    let mut out = Vec::with_capacity(128);
    let mut serializer = Serializer::with_formatter(&mut out, Spaced { floats });
    value.serialize(&mut serializer).expect("a JSON value serializes to memory");
    String::from_utf8(out).expect("JSON text is UTF-8")
}

struct Spaced {
    floats: Floats,
}

impl Formatter for Spaced {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        match self.floats {
            Floats::Short => serde_json::ser::CompactFormatter.write_f64(writer, value),
            Floats::Python => {
                let mut text = String::new();
                write_float(value, &mut text);
                writer.write_all(text.as_bytes())
            }
        }
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
