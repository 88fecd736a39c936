//! The tools of a request, as far as parsing and constrained decoding need them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Functions the request offers, in its order.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    list: Vec<Tool>,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Name the model calls it by.
    pub name: String,
    /// JSON schema of its arguments, the client's own bytes; `None` when it takes none.
    pub parameters: Option<String>,
}

/// What the request says about calling tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides; its own call syntax is parsed.
    #[default]
    Auto,
    /// No calls: markup is text.
    None,
    /// At least one call, made by constrained decoding.
    Required,
    /// A call of this function, made by constrained decoding.
    Named(String),
}

impl Tools {
    /// A list of functions.
    pub fn new(list: Vec<Tool>) -> Self {
        Tools { list }
    }

    /// Reads the request's `tools` member: `[{"type":"function","function":{"name":…,"parameters":…}}, …]`.
    ///
    /// Entries without a function (built-in tools of other APIs) are left out.
    ///
    /// # Errors
    /// When the text is not a JSON list of objects or a function has no name.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Entry<'a> {
            #[serde(borrow)]
            function: Option<Function<'a>>,
        }
        #[derive(Deserialize)]
        struct Function<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow)]
            parameters: Option<&'a RawValue>,
        }
        let entries: Vec<Entry<'_>> = serde_json::from_str(json)?;
        let list = entries.into_iter().filter_map(|entry| entry.function);
        Ok(Tools::new(
            list.map(|function| Tool {
                name: function.name.into_owned(),
                parameters: function.parameters.map(|schema| schema.get().to_owned()),
            })
            .collect(),
        ))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them, in the request's order.
    pub fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.list.iter()
    }

    /// The function of that name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.list.iter().find(|tool| tool.name == name)
    }
}
