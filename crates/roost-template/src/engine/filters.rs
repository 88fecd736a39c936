//! Filters and tests that differ from the engine's own.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::json_dump::tojson;
use super::methods::{capitalize, is_space, items, join, strip};
use super::repr::to_text;

pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("fromjson", fromjson);
    environment.add_filter("string", string);
    environment.add_filter("trim", trim);
    environment.add_filter("capitalize", |text: &Value| to_text(text).map(|text| capitalize(&text)));
    environment.add_filter("join", join_filter);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("items", items_filter);
    environment.add_filter("sum", sum);
    environment.add_filter("wordcount", wordcount);
    environment.add_test("sequence", is_sequence);
}

/// Parses JSON text. Transformers has no such filter; templates that call it expect this.
fn fromjson(text: &str) -> Result<Value, Error> {
    crate::messages::parse_json(text).map_err(|e| invalid(&format!("invalid JSON: {e}")))
}

fn string(value: &Value) -> Result<String, Error> {
    to_text(value)
}

fn trim(text: &Value, chars: Option<&str>) -> Result<String, Error> {
    match text.as_str() {
        Some(text) => Ok(strip(text, chars, true, true).to_owned()),
        None => Ok(strip(&to_text(text)?, chars, true, true).to_owned()),
    }
}

fn join_filter(
    state: &State<'_, '_>,
    value: &Value,
    separator: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let separator = match separator.or(kwargs.get("d")?) {
        Some(separator) => to_text(&separator)?,
        None => String::new(),
    };
    match kwargs.get::<Option<String>>("attribute")? {
        None => join(state, value, &separator),
        Some(attribute) => {
            let picked: Value = value
                .try_iter()?
                .map(|item| item.get_attr(&attribute))
                .collect::<Result<Vec<_>, _>>()?
                .into();
            join(state, &picked, &separator)
        }
    }
}

fn length(value: &Value) -> Result<usize, Error> {
    match (value.kind(), value.len()) {
        (ValueKind::Undefined, _) => Ok(0),
        (_, Some(length)) => Ok(length),
        (ValueKind::Iterable, None) => Ok(value.try_iter()?.count()),
        (ValueKind::None, None) => Err(invalid("object of type 'NoneType' has no len()")),
        (kind, None) => Err(invalid(&format!("object of type '{kind}' has no len()"))),
    }
}

fn items_filter(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Map => items(value),
        _ => Err(invalid("Can only get item pairs from a mapping.")),
    }
}

fn sum(
    state: &mut State<'_, '_>,
    value: &Value,
    attribute: Option<String>,
    start: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let attribute = attribute.or(kwargs.get("attribute")?);
    let mut total = start.or(kwargs.get("start")?).unwrap_or_else(|| Value::from(0));
    kwargs.assert_all_used()?;
    let add = state.env().compile_expression("a + b")?;
    for item in value.try_iter()?.checked() {
        let item = match &attribute {
            Some(attribute) => item?.get_attr(attribute)?,
            None => item?,
        };
        total = add.eval(minijinja::context! { a => total, b => item })?;
    }
    Ok(total)
}

/// Words as `\w+` finds them.
fn wordcount(text: &Value) -> Result<usize, Error> {
    let text = to_text(text)?;
    Ok(text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty() && !word.contains(is_space))
        .count())
}

/// Python calls everything with a length and items a sequence, mappings included.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String)
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}
