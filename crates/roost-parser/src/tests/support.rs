//! Running a parser over a text and folding what comes out.

use crate::{Delta, ParserSpec, PromptEnd, ToolChoice, ToolContext, Tools};

/// An answer put together from its deltas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Folded {
    pub(super) reasoning: String,
    pub(super) content: String,
    /// Name, arguments, whether complete, in order.
    pub(super) calls: Vec<(String, String, bool)>,
    pub(super) ids: Vec<Option<String>>,
}

impl Folded {
    /// Names and arguments, as JSON values.
    pub(super) fn json_calls(&self) -> Vec<(String, serde_json::Value)> {
        let value =
            |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("arguments `{text}`: {e}"));
        self.calls.iter().map(|(name, arguments, _)| (name.clone(), value(arguments))).collect()
    }
}

pub(super) fn spec(tool: &str, reasoning: &str) -> ParserSpec {
    let name = |name: &'static str| (!name.is_empty()).then_some(name);
    let tool: &'static str = Box::leak(tool.to_owned().into_boxed_str());
    let reasoning: &'static str = Box::leak(reasoning.to_owned().into_boxed_str());
    ParserSpec::by_name(name(tool), name(reasoning)).unwrap()
}

/// A request with the tools of the shared cases.
pub(super) fn context() -> ToolContext {
    ToolContext { tools: tools().into(), ..ToolContext::default() }
}

pub(super) fn without_tools() -> ToolContext {
    ToolContext::default()
}

pub(super) fn with_choice(tool_choice: ToolChoice) -> ToolContext {
    ToolContext { tool_choice, ..context() }
}

/// A request whose prompt opened the reasoning.
pub(super) fn thinking(context: ToolContext) -> ToolContext {
    ToolContext { prompt_end: PromptEnd::Reasoning, ..context }
}

pub(super) fn tools() -> Tools {
    Tools::parse(
        r#"[
          {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
            "city":{"type":"string"},"days":{"type":"integer"},"opts":{"type":"object"}}}}},
          {"type":"function","function":{"name":"get_time","parameters":{"type":"object","properties":{
            "tz":{"type":"string"}}}}},
          {"type":"function","function":{"name":"search"}},
          {"type":"function","function":{"name":"set_timer","parameters":{"type":"object","properties":{
            "seconds":{"type":"integer"},"loud":{"type":"boolean"},"label":{"type":"string"},
            "when":{"type":"integer"},"tags":{"type":"array"}}}}}
        ]"#,
    )
    .unwrap()
}

/// Deltas of a text cut into the given pieces.
pub(super) fn deltas<'a>(
    spec: &ParserSpec,
    context: &ToolContext,
    pieces: impl IntoIterator<Item = &'a str>,
    cut: bool,
) -> Vec<Delta> {
    let mut parser = spec.start(context);
    let mut out = Vec::new();
    for piece in pieces {
        parser.push(piece, &mut out);
    }
    parser.finish(cut, &mut out);
    let starts = out.iter().filter(|delta| matches!(delta, Delta::ToolStart { .. })).count();
    assert_eq!(parser.calls() as usize, starts);
    out
}

/// Folds deltas and checks that calls are numbered and announced in order.
pub(super) fn fold(deltas: &[Delta]) -> Folded {
    let mut folded = Folded::default();
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) => folded.reasoning.push_str(text),
            Delta::Content(text) => folded.content.push_str(text),
            Delta::ToolStart { index, name, id } => {
                assert_eq!(*index as usize, folded.calls.len());
                assert!(!name.is_empty());
                folded.calls.push((name.clone(), String::new(), false));
                folded.ids.push(id.clone());
            }
            Delta::ToolArguments { index, fragment } => {
                assert_eq!(*index as usize + 1, folded.calls.len());
                let call = folded.calls.last_mut().unwrap();
                assert!(!call.2, "arguments behind the end of a call");
                call.1.push_str(fragment);
            }
            Delta::ToolEnd { index } => {
                assert_eq!(*index as usize + 1, folded.calls.len());
                let call = folded.calls.last_mut().unwrap();
                assert!(!std::mem::replace(&mut call.2, true), "a call ended twice");
            }
        }
    }
    folded
}

/// Parses a text in one piece, and checks that character by character gives the same deltas.
pub(super) fn parse(spec: &ParserSpec, context: &ToolContext, text: &str) -> Folded {
    let whole = deltas(spec, context, [text], false);
    let single = deltas(spec, context, text.split("").filter(|c| !c.is_empty()), false);
    assert_eq!(whole, single, "cut into characters: {text}");
    fold(&whole)
}

pub(super) fn fixture(name: &str) -> serde_json::Value {
    let path = format!("{}/../../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
