//! Values as Python prints them.

use minijinja::value::{ValueIter, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};

use super::numbers::{float, write_float};

/// Nesting that is still printed; deeper values are an error instead of a stack overflow.
pub(super) const MAX_DEPTH: usize = 128;

/// What `{{ value }}` writes.
pub(super) fn write_value(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return out.write_str(text).map_err(Error::from);
    }
    out.write_str(&to_text(value)?).map_err(Error::from)
}

/// `str(value)`.
pub(super) fn to_text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    write_repr(value, &mut text, 0)?;
    Ok(text)
}

/// Appends `repr(value)`.
fn write_repr(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => write_float(f64::try_from(value.clone())?, out),
        ValueKind::String => write_str(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                separate(index, out);
                write_repr(&key, out, depth + 1)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Seq if value.is_tuple() => {
            out.push('(');
            write_items(value.try_iter()?, out, depth)?;
            out.push_str(if value.len() == Some(1) { ",)" } else { ")" });
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            write_items(value.try_iter()?, out, depth)?;
            out.push(']');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn write_items(items: ValueIter, out: &mut String, depth: usize) -> Result<(), Error> {
    for (index, item) in items.checked().enumerate() {
        separate(index, out);
        write_repr(&item?, out, depth + 1)?;
    }
    Ok(())
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push_str(", ");
    }
}

/// `repr(str)`: single quotes unless only they occur inside; what does not print is escaped.
fn write_str(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if is_printable(c) => out.push(c),
            _ => match c as u32 {
                code @ ..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ ..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// Separators, controls, format characters, private use and unassigned planes are not printable in Python. The
/// common ranges are listed; Unicode's full category table is not worth its weight for printing lists.
fn is_printable(c: char) -> bool {
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{180E}'
                | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
                | '\u{E000}'..='\u{F8FF}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{FFFE}' | '\u{FFFF}'
                | '\u{E0000}'..='\u{10FFFF}'))
}

/// `str(number)` where a filter needs it.
pub(super) fn number_text(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number {
        return None;
    }
    if value.is_integer() { Some(value.to_string()) } else { f64::try_from(value.clone()).ok().map(float) }
}
