//! Global functions of transformers' environment and of Jinja.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::errors::Raised;
use super::methods;

/// Context variable that carries the time of the request, in seconds since the epoch.
pub(crate) const NOW: &str = "__now";

pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_function("joiner", joiner);
    environment.add_function("cycler", cycler);
    environment.add_function(crate::syntax::MODULO, modulo);
    environment.add_function(crate::syntax::VARIADIC, variadic);
}

/// Whether a value changes when it is called, unlike a function or macro.
pub(crate) fn is_stateful(value: &Value) -> bool {
    value.downcast_object_ref::<Joiner>().is_some() || value.downcast_object_ref::<Cycler>().is_some()
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// Local time of the request.
fn strftime_now(state: &State<'_, '_>, format: String) -> Result<String, Error> {
    let invalid = |e: jiff::Error| Error::new(ErrorKind::InvalidOperation, e.to_string());
    let seconds = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or_default();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0) as u64);
    let now =
        jiff::Timestamp::try_from(now).map_err(invalid)?.to_zoned_datetime(jiff::tz::TimeZone::system());
    jiff::fmt::strtime::format(format, &now).map_err(invalid)
}

/// `a % b`: remainder of numbers with the sign of the divisor, or printf formatting when `a` is text.
fn modulo(left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(format) = left.as_str() {
        let arguments = if right.is_tuple() { right.try_iter()?.collect() } else { vec![right.clone()] };
        return methods::printf(format, &arguments).map(Value::from);
    }
    let operands = (left.is_integer() || left.kind() == ValueKind::Bool)
        && (right.is_integer() || right.kind() == ValueKind::Bool);
    if operands && let (Ok(a), Ok(b)) = (i128::try_from(left.clone()), i128::try_from(right.clone())) {
        let remainder = a.checked_rem(b).ok_or_else(|| unsupported("integer modulo by zero"))?;
        let wrong_sign = remainder != 0 && (remainder < 0) != (b < 0);
        return Ok(int(if wrong_sign { remainder + b } else { remainder }));
    }
    match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
        (Ok(_), Ok(0.0)) => Err(unsupported("float modulo by zero")),
        (Ok(a), Ok(b)) => Ok(Value::from(a - b * (a / b).floor())),
        _ => Err(unsupported(&format!(
            "unsupported operand types for %: {} and {}",
            left.kind(),
            right.kind()
        ))),
    }
}

fn int(value: i128) -> Value {
    i64::try_from(value).map_or_else(|_| Value::from(value), Value::from)
}

/// `joiner(', ')`: nothing at the first call, the separator afterwards.
fn joiner(separator: Option<String>) -> Value {
    Value::from_object(Joiner {
        separator: separator.unwrap_or_else(|| ", ".into()),
        used: AtomicBool::new(false),
    })
}

#[derive(Debug)]
struct Joiner {
    separator: String,
    used: AtomicBool,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, _: &[Value]) -> Result<Value, Error> {
        Ok(Value::from(if self.used.swap(true, Ordering::Relaxed) { self.separator.as_str() } else { "" }))
    }
}

/// `cycler(a, b)`: `next()` gives the values in turn.
fn cycler(items: Rest<Value>) -> Value {
    Value::from_object(Cycler { items: items.0, position: std::sync::atomic::AtomicUsize::new(0) })
}

#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    position: std::sync::atomic::AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str()? == "current").then(|| self.at(self.position.load(Ordering::Relaxed)))
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        _: &[Value],
    ) -> Result<Value, Error> {
        match method {
            "next" => Ok(self.at(self.position.fetch_add(1, Ordering::Relaxed))),
            "reset" => {
                self.position.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

impl Cycler {
    fn at(&self, position: usize) -> Value {
        self.items.get(position % self.items.len().max(1)).cloned().unwrap_or_default()
    }
}

/// Wraps a macro that reads `varargs` or `kwargs`: surplus arguments are handed to it under those names.
fn variadic(target: Value, parameters: Vec<String>) -> Value {
    Value::from_object(Variadic { target, parameters })
}

#[derive(Debug)]
struct Variadic {
    target: Value,
    parameters: Vec<String>,
}

impl Object for Variadic {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let (positional, named) = match args.split_last() {
            Some((last, rest)) if last.is_kwargs() => (rest, Some(last)),
            _ => (args, None),
        };
        let split = positional.len().min(self.parameters.len());
        let mut call: Vec<(String, Value)> =
            self.parameters.iter().cloned().zip(positional.iter().cloned()).collect();
        let mut surplus = Vec::new();
        if let Some(named) = named {
            for key in named.try_iter()? {
                let value = named.get_item(&key)?;
                let known = key
                    .as_str()
                    .is_some_and(|name| name == "caller" || self.parameters.iter().any(|p| p == name));
                if known { call.push((key.to_string(), value)) } else { surplus.push((key, value)) }
            }
        }
        call.push(("varargs".into(), Value::from(Tuple::from(&positional[split..]))));
        call.push(("kwargs".into(), Value::from_pairs(surplus)));
        self.target.call(state, &[Value::from(call.into_iter().collect::<Kwargs>())])
    }
}

fn unsupported(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}
