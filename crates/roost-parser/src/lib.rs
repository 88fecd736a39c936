//! Model text to ordered reasoning, content and tool-call deltas.
//!
//! One machine reads an answer from beginning to end, so thoughts, text and calls come out in the order the model
//! wrote them, and where the text was cut into pieces cannot change the result. Knows nothing of HTTP, workers, tokens
//! or async.
//!
//! ```
//! use roost_parser::{Delta, ParserSpec, ToolContext, Tools};
//!
//! // Per model: names from the worker's card, or `ParserSpec::auto(model_type, template)`.
//! let spec = ParserSpec::by_name(Some("hermes"), Some("qwen3")).expect("both names exist");
//! // Per choice of a request.
//! let tools = Tools::parse(r#"[{"type":"function","function":{"name":"f"}}]"#).expect("a list of tools");
//! let context = ToolContext {
//!     tools: tools.into(),
//!     prompt_end: spec.prompt_end("<|im_start|>assistant\n<think>\n"),
//!     ..ToolContext::default()
//! };
//! let mut parser = spec.start(&context);
//! // Per piece of text.
//! let mut deltas = Vec::new();
//! parser.push("hm</think><tool_call>{\"name\": \"f\", ", &mut deltas);
//! parser.push("\"arguments\": {}}</tool_call>", &mut deltas);
//! parser.finish(false, &mut deltas);
//! assert_eq!(deltas[0], Delta::Reasoning("hm".into()));
//! assert_eq!(deltas[1], Delta::ToolStart { index: 0, name: "f".into(), id: None });
//! assert_eq!(parser.calls(), 1); // finish reason `stop` becomes `tool_calls`
//! ```
//!
//! Rules, where families and peers differ:
//!
//! - Arguments are passed on as they are written. A call is announced only when its name is known and its arguments
//!   begin like arguments; until then its text is held back.
//! - Text that turns out to be no call is content, markup included. Text behind a block is content. The layout around
//!   blocks (line breaks before them, white space between and behind them) is not.
//! - Of a call written as a JSON object, members other than the name and the arguments are not passed on. Arguments
//!   that stop being JSON in the middle are passed on as they are, up to the end of the call.
//! - A call that is cut off ends with what was written; it has no [`Delta::ToolEnd`].
//! - Calls are read only when the request has tools and `tool_choice` is not `none`. The function need not be one of
//!   them.
//! - Whether an answer begins inside the reasoning is decided by the prompt ([`ParserSpec::prompt_end`]), then by the
//!   family's habit. Later, reasoning opens only where nothing but white space precedes it.
//! - With `tool_choice` required or named the answer is the JSON of constrained decoding ([`guided_schema`]) and is
//!   read as such; if it is not JSON, as the model's own syntax.

mod args;
mod auto;
mod block;
mod channels;
mod delta;
mod dialect;
mod guided;
mod json;
mod names;
mod parser;
mod scan;
mod schema;
mod spec;
#[cfg(test)]
mod tests;
mod tools;

pub use delta::Delta;
pub use guided::guided_schema;
pub use parser::Parser;
pub use spec::{ParserSpec, PromptEnd, ToolContext, UnknownName};
pub use tools::{Tool, ToolChoice, Tools};
