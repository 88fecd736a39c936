//! The values of one command, by name.

use std::{collections::HashMap, net::IpAddr, path::PathBuf, time::Duration};

use crate::value::Value;

/// Every supported option that has a value. The typed getters hold the table to what the builders read: a name
/// or a type that is not in the table would fail in every test that parses the command.
#[derive(Debug, Default)]
pub(crate) struct Values {
    by_name: HashMap<&'static str, Option<Value>>,
    #[cfg(test)]
    read: std::cell::RefCell<std::collections::BTreeSet<String>>,
}

impl Values {
    pub(crate) fn insert(&mut self, name: &'static str, value: Option<Value>) {
        self.by_name.insert(name, value);
    }

    /// Names that were asked for so far.
    #[cfg(test)]
    pub(crate) fn names_read(&self) -> std::collections::BTreeSet<String> {
        self.read.borrow().clone()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        #[cfg(test)]
        self.read.borrow_mut().insert(name.to_owned());
        self.by_name.get(name).expect("every option that is read is in the table of its command").as_ref()
    }

    fn has_default(&self, name: &str) -> &Value {
        self.get(name).expect("an option with a default always has a value")
    }

    pub(crate) fn switch(&self, name: &str) -> bool {
        matches!(self.has_default(name), Value::Switch(true))
    }

    pub(crate) fn optional_integer(&self, name: &str) -> Option<u64> {
        self.get(name).map(|value| match value {
            Value::Integer(value) | Value::Bytes(value) => *value,
            other => unreachable!("the table says that {name} is a whole number, it is {other:?}"),
        })
    }

    pub(crate) fn integer(&self, name: &str) -> u64 {
        self.optional_integer(name).expect("an option with a default always has a value")
    }

    pub(crate) fn optional_size(&self, name: &str) -> Option<usize> {
        self.optional_integer(name).map(|value| usize::try_from(value).unwrap_or(usize::MAX))
    }

    pub(crate) fn size(&self, name: &str) -> usize {
        self.optional_size(name).expect("an option with a default always has a value")
    }

    pub(crate) fn optional_u32(&self, name: &str) -> Option<u32> {
        self.optional_integer(name)
            .map(|value| u32::try_from(value).expect("the table's range is within 32 bits"))
    }

    pub(crate) fn u32(&self, name: &str) -> u32 {
        self.optional_u32(name).expect("an option with a default always has a value")
    }

    pub(crate) fn optional_port(&self, name: &str) -> Option<u16> {
        self.optional_integer(name)
            .map(|value| u16::try_from(value).expect("the table's range is within 16 bits"))
    }

    pub(crate) fn port(&self, name: &str) -> u16 {
        self.optional_port(name).expect("an option with a default always has a value")
    }

    pub(crate) fn optional_number(&self, name: &str) -> Option<f64> {
        self.get(name).map(|value| match value {
            Value::Number(value) => *value,
            other => unreachable!("the table says that {name} is a number, it is {other:?}"),
        })
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.optional_number(name).expect("an option with a default always has a value")
    }

    pub(crate) fn optional_duration(&self, name: &str) -> Option<Duration> {
        self.get(name).map(|value| match value {
            Value::Duration(value) => *value,
            other => unreachable!("the table says that {name} is a duration, it is {other:?}"),
        })
    }

    pub(crate) fn duration(&self, name: &str) -> Duration {
        self.optional_duration(name).expect("an option with a default always has a value")
    }

    /// A duration of which zero means "off".
    pub(crate) fn duration_or_off(&self, name: &str) -> Option<Duration> {
        self.optional_duration(name).filter(|value| !value.is_zero())
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| match value {
            Value::Text(value) => value.clone(),
            other => unreachable!("the table says that {name} is a text, it is {other:?}"),
        })
    }

    /// The texts of an option that can be given several times.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        text.lines().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect()
    }

    /// The words of an option; commas separate them as well.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        text.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    pub(crate) fn required_text(&self, name: &str) -> String {
        self.text(name).expect("an option with a default always has a value")
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(|value| match value {
            Value::Path(value) => value.clone(),
            other => unreachable!("the table says that {name} is a path, it is {other:?}"),
        })
    }

    pub(crate) fn ip(&self, name: &str) -> IpAddr {
        match self.has_default(name) {
            Value::Ip(value) => *value,
            other => unreachable!("the table says that {name} is an address, it is {other:?}"),
        }
    }

    pub(crate) fn choice(&self, name: &str) -> &'static str {
        match self.has_default(name) {
            Value::Choice(value) => value,
            other => unreachable!("the table says that {name} is a choice, it is {other:?}"),
        }
    }
}
