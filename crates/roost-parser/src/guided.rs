//! The schema that makes an engine write calls.

use crate::tools::{ToolChoice, Tools};

/// JSON schema for constrained decoding (`guided_decoding.json`) of an answer that must be calls; `None` when the model
/// decides.
///
/// The schemas of the tools are inserted byte for byte. A named function that is not among the tools, or any function
/// without a schema, takes any object.
pub fn guided_schema(tools: &Tools, choice: &ToolChoice) -> Option<String> {
    const ANY: &str = r#"{"type":"object"}"#;
    match choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Named(name) => {
            let schema = tools.get(name).and_then(|tool| tool.parameters.as_deref());
            Some(schema.unwrap_or(ANY).to_owned())
        }
        ToolChoice::Required => {
            let mut schema =
                String::from(r#"{"type":"array","minItems":1,"items":{"type":"object","anyOf":["#);
            for (at, tool) in tools.iter().enumerate() {
                if at > 0 {
                    schema.push(',');
                }
                schema.push_str(r#"{"properties":{"name":{"type":"string","enum":["#);
                schema.push_str(&serde_json::Value::from(tool.name.as_str()).to_string());
                schema.push_str(r#"]},"parameters":"#);
                schema.push_str(tool.parameters.as_deref().unwrap_or(ANY));
                schema.push_str(r#"},"required":["name","parameters"]}"#);
            }
            schema.push_str("]}}");
            Some(schema)
        }
    }
}
