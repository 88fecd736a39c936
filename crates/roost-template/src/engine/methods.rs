//! Methods of Python's str, dict and list.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::repr::to_text;

/// Called by the engine for every method it does not know itself.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => str_method(state, value.as_str().unwrap_or_default(), method, args),
        ValueKind::Map => dict_method(value, method, args),
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// `format % arguments`.
pub(super) fn printf(text: &str, arguments: &[Value]) -> Result<String, Error> {
    format(FormatStyle::Printf, text, arguments)
}

/// White space as `str.strip()` and `str.split()` see it.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1C}'..='\u{1F}')
}

/// `str.strip(chars)`; `start` and `end` choose the sides.
pub(super) fn strip<'a>(text: &'a str, chars: Option<&str>, start: bool, end: bool) -> &'a str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(drop) } else { text };
    if end { text.trim_end_matches(drop) } else { text }
}

fn str_method(state: &State<'_, '_>, s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    Ok(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(s, chars, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => split(s, method == "rsplit", args)?,
        "splitlines" => {
            let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(kwargs.get("keepends")?).unwrap_or(false);
            lines(s, keep).into_iter().map(Value::from).collect()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            non_empty(separator)?;
            let found =
                if method == "partition" { s.split_once(separator) } else { s.rsplit_once(separator) };
            let parts = match found {
                Some((head, tail)) => [head, separator, tail],
                None if method == "partition" => [s, "", ""],
                None => ["", "", s],
            };
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "startswith" | "endswith" => affix(s, method == "startswith", args)?,
        "removeprefix" | "removesuffix" => {
            let (affix,): (&str,) = from_args(args)?;
            let rest = if method == "removeprefix" { s.strip_prefix(affix) } else { s.strip_suffix(affix) };
            Value::from(rest.unwrap_or(s))
        }
        "replace" => replace(state, s, args)?,
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            join(state, items, s)?
        }
        "find" | "rfind" | "index" | "rindex" => find(s, method, args)?,
        "count" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(if what.is_empty() { s.chars().count() + 1 } else { s.matches(what).count() })
        }
        "format" => Value::from(format(FormatStyle::StrFormat, s, args)?),
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
            let zeros = padding(state, width, s)?;
            Value::from([sign, &"0".repeat(zeros), digits].concat())
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let total = padding(state, width, s)?;
            let left = match method {
                "ljust" => 0,
                "rjust" => total,
                // Python puts the odd one to the left when the width is odd.
                _ => total / 2 + (total & width & 1),
            };
            let fill = |count| String::from_iter(std::iter::repeat_n(fill.unwrap_or(' '), count));
            Value::from([fill(left).as_str(), s, fill(total - left).as_str()].concat())
        }
        _ => {
            let () = from_args(args).or_else(|e| if is_plain_method(method) { Err(e) } else { Ok(()) })?;
            plain_str_method(s, method).ok_or_else(|| Error::from(ErrorKind::UnknownMethod))?
        }
    })
}

fn is_plain_method(method: &str) -> bool {
    plain_str_method("", method).is_some()
}

/// Methods without arguments.
fn plain_str_method(s: &str, method: &str) -> Option<Value> {
    let all = |test: fn(char) -> bool| Value::from(!s.is_empty() && s.chars().all(test));
    let cased = |wanted: fn(char) -> bool, other: fn(char) -> bool| {
        Value::from(s.chars().any(wanted) && !s.chars().any(other))
    };
    Some(match method {
        "upper" => Value::from(s.to_uppercase()),
        "lower" | "casefold" => Value::from(s.to_lowercase()),
        "title" => Value::from(title(s)),
        "capitalize" => Value::from(capitalize(s)),
        "swapcase" => Value::from(
            s.chars()
                .flat_map(|c| {
                    if c.is_uppercase() {
                        Cased::Lower(c.to_lowercase())
                    } else {
                        Cased::Upper(c.to_uppercase())
                    }
                })
                .collect::<String>(),
        ),
        "isupper" => cased(char::is_uppercase, char::is_lowercase),
        "islower" => cased(char::is_lowercase, char::is_uppercase),
        "isspace" => all(is_space),
        "isdigit" | "isnumeric" | "isdecimal" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isascii" => Value::from(s.is_ascii()),
        _ => return None,
    })
}

enum Cased {
    Lower(std::char::ToLowercase),
    Upper(std::char::ToUppercase),
}

impl Iterator for Cased {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Self::Lower(chars) => chars.next(),
            Self::Upper(chars) => chars.next(),
        }
    }
}

/// `str.title()`: a letter after a non-letter is upper case, every other one lower case.
fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        match inside {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
        inside = c.is_alphabetic();
    }
    out
}

pub(super) fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars.flat_map(char::to_lowercase)).collect()
}

fn split(s: &str, from_end: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get("sep")?).filter(|value| !value.is_none());
    let limit = limit.or(kwargs.get("maxsplit")?).and_then(|limit| usize::try_from(limit).ok());
    kwargs.assert_all_used()?;
    let mut parts: Vec<&str> = match &separator {
        Some(separator) => {
            let separator =
                separator.as_str().ok_or_else(|| invalid("the separator of split() must be a string"))?;
            non_empty(separator)?;
            match (limit, from_end) {
                (None, _) => s.split(separator).collect(),
                (Some(limit), false) => s.splitn(limit.saturating_add(1), separator).collect(),
                (Some(limit), true) => s.rsplitn(limit.saturating_add(1), separator).collect(),
            }
        }
        None => split_at_space(s, limit.unwrap_or(usize::MAX), from_end),
    };
    // Both searches from the end, where they were limited, found the parts in reverse.
    if from_end && (limit.is_some() || separator.is_none()) {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// `split()` without separator: runs of white space separate, none remains at the ends.
fn split_at_space(s: &str, limit: usize, from_end: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(s, None, !from_end, from_end);
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(rest);
            break;
        }
        let cut =
            if from_end { rest.rfind(is_space).map(|at| next_char(rest, at)) } else { rest.find(is_space) };
        let (head, tail) = match cut {
            Some(at) => rest.split_at(at),
            None if from_end => ("", rest),
            None => (rest, ""),
        };
        let (part, left) = if from_end { (tail, head) } else { (head, tail) };
        parts.push(part);
        rest = strip(left, None, !from_end, from_end);
    }
    parts
}

fn next_char(s: &str, at: usize) -> usize {
    at + s[at..].chars().next().map_or(0, char::len_utf8)
}

/// `str.splitlines()`: ends of lines as Python knows them.
fn lines(s: &str, keep: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = s.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let is_end = matches!(
            c,
            '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{1C}'..='\u{1E}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        );
        if !is_end {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && chars.next_if(|(_, next)| *next == '\n').is_some() {
            end += 1;
        }
        lines.push(&s[start..if keep { end } else { at }]);
        start = end;
    }
    if start < s.len() {
        lines.push(&s[start..]);
    }
    lines
}

fn affix(s: &str, prefix: bool, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&Value,) = from_args(args)?;
    let test = |value: &Value| match value.as_str() {
        Some(text) => Ok(if prefix { s.starts_with(text) } else { s.ends_with(text) }),
        None => Err(invalid("startswith() and endswith() take a string or a tuple of strings")),
    };
    if what.kind() == ValueKind::Seq {
        for item in what.try_iter()? {
            if test(&item)? {
                return Ok(Value::from(true));
            }
        }
        return Ok(Value::from(false));
    }
    test(what).map(Value::from)
}

fn replace(state: &State<'_, '_>, s: &str, args: &[Value]) -> Result<Value, Error> {
    let (old, new, count, kwargs): (&str, &str, Option<i64>, Kwargs) = from_args(args)?;
    let count = count.or(kwargs.get("count")?).and_then(|count| usize::try_from(count).ok());
    // The result can be much longer than what goes in: pay before it exists.
    let matches = (s.len() / old.len().max(1) + 1).min(count.unwrap_or(usize::MAX));
    state.consume_fuel((matches.saturating_mul(new.len().saturating_sub(old.len())) / 64) as u64)?;
    Ok(Value::from(match count {
        None => s.replace(old, new),
        Some(count) => s.replacen(old, new, count),
    }))
}

/// Joins the printed items.
pub(super) fn join(state: &State<'_, '_>, items: &Value, separator: &str) -> Result<Value, Error> {
    let mut out = String::new();
    for (index, item) in items.try_iter()?.checked().enumerate() {
        if index > 0 {
            state.consume_fuel(separator.len() as u64 / 64)?;
            out.push_str(separator);
        }
        match item? {
            item if item.as_str().is_some() => out.push_str(item.as_str().unwrap_or_default()),
            item => out.push_str(&to_text(&item)?),
        }
    }
    Ok(Value::from(out))
}

fn find(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&str,) = from_args(args)?;
    let at = if method.starts_with('r') { s.rfind(what) } else { s.find(what) };
    match at {
        Some(at) => Ok(Value::from(s[..at].chars().count())),
        None if method.ends_with("find") => Ok(Value::from(-1)),
        None => Err(invalid("substring not found")),
    }
}

/// Characters missing to `width`, paid for in advance.
fn padding(state: &State<'_, '_>, width: usize, s: &str) -> Result<usize, Error> {
    let missing = width.saturating_sub(s.chars().count());
    state.consume_fuel(missing as u64)?;
    Ok(missing)
}

fn dict_method(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            let found = value.get_item(key)?;
            Ok(if found.is_undefined() { default.unwrap_or_else(|| Value::from(())) } else { found })
        }
        "keys" => {
            let () = from_args(args)?;
            Ok(value.try_iter()?.collect())
        }
        "values" => {
            let () = from_args(args)?;
            value.try_iter()?.map(|key| value.get_item(&key)).collect()
        }
        "items" => {
            let () = from_args(args)?;
            items(value)
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(value.clone())
        }
        "update" | "pop" | "popitem" | "clear" | "setdefault" => Err(unsafe_method("dict", method)),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// `dict.items()` as a list of pairs.
pub(super) fn items(value: &Value) -> Result<Value, Error> {
    let pair = |key: Value| Ok(Value::from(Tuple::from([key.clone(), value.get_item(&key)?])));
    value.try_iter()?.map(pair).collect()
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "count" | "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let mut items = value.try_iter()?;
            if method == "count" {
                return Ok(Value::from(items.filter(|item| item == what).count()));
            }
            items
                .position(|item| item == *what)
                .map(Value::from)
                .ok_or_else(|| invalid("value is not in list"))
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(value.clone())
        }
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => {
            Err(unsafe_method("list", method))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// The reference sandbox refuses methods that change a value.
fn unsafe_method(kind: &str, method: &str) -> Error {
    invalid(&format!("access to attribute '{method}' of '{kind}' object is unsafe."))
}

fn non_empty(separator: &str) -> Result<(), Error> {
    if separator.is_empty() { Err(invalid("empty separator")) } else { Ok(()) }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}
