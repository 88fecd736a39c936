//! Types of parameters, for call syntaxes that carry every value as text.

use serde_json::{Map, Value};

/// How deep unions and references are followed.
const MAX_DEPTH: u8 = 8;

/// JSON types a parameter may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Types {
    pub(crate) string: bool,
    pub(crate) integer: bool,
    pub(crate) number: bool,
    pub(crate) boolean: bool,
    pub(crate) null: bool,
    pub(crate) object: bool,
    pub(crate) array: bool,
}

/// The schema of one function's arguments.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    root: Value,
}

impl Parameters {
    /// Reads a schema; one that is no JSON knows no types.
    pub(crate) fn parse(schema: Option<&str>) -> Self {
        Parameters { root: schema.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default() }
    }

    /// Types the parameter may have; `None` when the schema does not say.
    pub(crate) fn types(&self, name: &str) -> Option<Types> {
        let mut types = Types::default();
        self.collect(self.root.get("properties")?.get(name)?, &mut types, MAX_DEPTH);
        (types != Types::default()).then_some(types)
    }

    fn collect(&self, schema: &Value, types: &mut Types, depth: u8) {
        let Some(schema) = schema.as_object().filter(|_| depth > 0) else { return };
        match schema.get("type") {
            Some(Value::String(name)) => types.add(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| types.add(name))
            }
            _ => self.infer(schema, types, depth),
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            types.null = true;
        }
    }

    /// A schema without `type`: what its union, reference or values say.
    fn infer(&self, schema: &Map<String, Value>, types: &mut Types, depth: u8) {
        for union in ["anyOf", "oneOf", "allOf"] {
            for member in schema.get(union).and_then(Value::as_array).into_iter().flatten() {
                self.collect(member, types, depth - 1);
            }
        }
        let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
        if let Some(target) = pointer.and_then(|pointer| self.root.pointer(pointer)) {
            self.collect(target, types, depth - 1);
        }
        let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        for value in values.chain(schema.get("const")) {
            types.add(match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            });
        }
        if schema.contains_key("properties") {
            types.object = true;
        }
        if schema.contains_key("items") {
            types.array = true;
        }
    }
}

impl Types {
    /// Everything: the value is JSON when it reads as JSON.
    pub(crate) const ANY: Types = Types {
        string: true,
        integer: true,
        number: true,
        boolean: true,
        null: true,
        object: true,
        array: true,
    };

    /// A list or an object when it reads as one, else text.
    pub(crate) const CONTAINERS: Types = Types {
        string: true,
        integer: false,
        number: false,
        boolean: false,
        null: false,
        object: true,
        array: true,
    };

    fn add(&mut self, name: &str) {
        match name {
            "string" | "str" | "text" | "enum" => self.string = true,
            "integer" | "int" => self.integer = true,
            "number" | "float" | "double" => self.number = true,
            "boolean" | "bool" => self.boolean = true,
            "null" => self.null = true,
            "object" | "dict" => self.object = true,
            "array" | "list" => self.array = true,
            _ => {}
        }
    }

    /// Whether the value can only be text, so that it need not be seen whole.
    pub(crate) fn only_string(self) -> bool {
        self == Types { string: true, ..Types::default() }
    }

    /// Whether a value beginning with this character may be passed on before it is complete.
    pub(crate) fn may_open(self, c: char) -> bool {
        (c == '{' && self.object) || (c == '[' && self.array)
    }

    /// The JSON spelling of a complete value, which `is_json` says reads as JSON; `None` when it fits no type but text.
    pub(crate) fn coerce(self, text: &str, is_json: bool) -> Option<String> {
        let text = text.trim();
        let first = text.chars().next()?;
        let fits = is_json
            && match first {
                '{' => self.object,
                '[' => self.array,
                '-' | '0'..='9' => self.number || (self.integer && is_integer(text)),
                't' | 'f' => self.boolean,
                'n' => self.null,
                // Quoted text where no text is allowed stays what the model wrote.
                _ => self == Types::ANY,
            };
        if fits {
            return Some(text.to_owned());
        }
        // Python's spellings of the same values.
        match text {
            "True" | "TRUE" if self.boolean => Some("true".to_owned()),
            "False" | "FALSE" if self.boolean => Some("false".to_owned()),
            "None" | "Null" | "NULL" if self.null && !self.string => Some("null".to_owned()),
            _ => None,
        }
    }
}

/// Whether a JSON number has no fraction: `30`, `-3`, `30.0`.
fn is_integer(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    !whole.is_empty()
        && whole.bytes().all(|b| b.is_ascii_digit())
        && !fraction.is_empty()
        && fraction.bytes().all(|b| b == b'0')
}
