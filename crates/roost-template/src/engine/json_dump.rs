//! The `tojson` filter with the semantics of Python's `json.dumps`.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::numbers::write_float;
use super::repr::{MAX_DEPTH, number_text};

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as transformers declares it; the
/// last two only by name.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let argument = |positional: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional {
            Some(value) => Some(value),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(ensure_ascii, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = argument(indent, "indent")?;
    let separators = argument(None, "separators")?;
    let sort_keys = argument(None, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;

    let indent = match indent {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(count) => Some(" ".repeat(i64::try_from(count)?.clamp(0, 64) as usize)),
    };
    let (item, key) = match separators {
        Some(pair) => {
            let pair: Vec<Value> = pair.try_iter()?.collect();
            match pair.as_slice() {
                [item, key] => (text(item)?, text(key)?),
                _ => return Err(invalid("separators must be a pair of strings")),
            }
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut dump = Dump { out: String::new(), ensure_ascii, indent, item, key, sort_keys };
    dump.value(value, 0)?;
    // The engine charges for the result only once it exists; walking the value costs more than its bytes.
    state.consume_fuel(dump.out.len() as u64 / 16)?;
    Ok(dump.out)
}

/// `json.dumps(value, ensure_ascii=False)`.
pub(crate) fn dump_json(value: &Value) -> Result<String, Error> {
    let mut dump = Dump {
        out: String::new(),
        ensure_ascii: false,
        indent: None,
        item: ", ".to_owned(),
        key: ": ".to_owned(),
        sort_keys: false,
    };
    dump.value(value, 0)?;
    Ok(dump.out)
}

struct Dump {
    out: String,
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Dump {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("value is nested too deeply for JSON"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Undefined => return Err(invalid("Object of type Undefined is not JSON serializable")),
            kind => return Err(invalid(&format!("Object of type {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
            return Ok(());
        }
        match f64::try_from(value.clone())? {
            number if number.is_nan() => self.out.push_str("NaN"),
            number if number.is_infinite() => {
                self.out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
            }
            number => write_float(number, &mut self.out),
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()?.checked() {
            self.begin_item(empty, depth + 1);
            empty = false;
            self.value(&item?, depth + 1)?;
        }
        self.end(empty, depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.begin_item(index == 0, depth + 1);
            self.map_key(key)?;
            self.out.push_str(&self.key);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.end(keys.is_empty(), depth, '}');
        Ok(())
    }

    /// JSON keys are strings; Python spells other scalars as JSON values in quotes.
    fn map_key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None => self.out.push_str("\"null\""),
            ValueKind::Bool => self.out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" }),
            _ => match number_text(key) {
                Some(number) => {
                    self.out.push('"');
                    self.out.push_str(&number);
                    self.out.push('"');
                }
                None => return Err(invalid("keys must be str, int, float, bool or None")),
            },
        }
        Ok(())
    }

    fn begin_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.item);
        }
        self.line(depth);
    }

    fn end(&mut self, empty: bool, depth: usize, bracket: char) {
        if !empty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut plain = 0;
        for (at, c) in text.char_indices() {
            let escape = match c {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\u{8}' => "\\b",
                '\u{C}' => "\\f",
                '\0'..='\u{1F}' => "",
                _ if self.ensure_ascii && c > '\u{7E}' => "",
                _ => continue,
            };
            self.out.push_str(&text[plain..at]);
            plain = at + c.len_utf8();
            if escape.is_empty() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    self.out.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                self.out.push_str(escape);
            }
        }
        self.out.push_str(&text[plain..]);
        self.out.push('"');
    }
}

fn text(value: &Value) -> Result<String, Error> {
    value.as_str().map(str::to_owned).ok_or_else(|| invalid("separators must be a pair of strings"))
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}
