//! Guessing a model's parsers where nobody named them.

use crate::spec::ParserSpec;

/// Names of a family's tool and reasoning parsers.
type Names = (Option<&'static str>, Option<&'static str>);

/// `model_type` of the model's `config.json`, from its beginning, most specific first.
static MODEL_TYPES: &[(&str, Names)] = &[
    ("deepseek_v41", (Some("deepseek_v41"), Some("deepseek_v41"))),
    ("deepseek_v4", (Some("deepseek_v4"), Some("deepseek_v4"))),
    ("deepseek_v32", (Some("deepseek_v3_2"), Some("deepseek_v4"))),
    ("deepseek_v3_2", (Some("deepseek_v3_2"), Some("deepseek_v4"))),
    ("gpt_oss", (Some("harmony"), Some("gpt_oss"))),
    ("kimi_k25", (Some("kimi_k2"), Some("kimi_k25"))),
    ("glm4_moe", (Some("glm47"), Some("glm45"))),
    ("glm_moe", (Some("glm47"), Some("glm45"))),
    ("minimax_m2", (Some("minimax_m2"), Some("minimax_m2"))),
];

/// Texts in a chat template that give a call syntax away, most specific first.
static PROBES: &[(&str, &str)] = &[
    ("<｜DSML｜ calls>", "deepseek_v41"),
    ("<｜DSML｜tool_calls>", "deepseek_v4"),
    ("<｜DSML｜function_calls>", "deepseek_v3_2"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("<arg_key>", "glm47"),
    ("<function=", "qwen3_coder"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<TOOLCALL>", "nemotron_deci"),
    ("<|python_tag|>", "llama3_json"),
];

/// Texts in a chat template that give reasoning marks away. The prompt decides whether they are open.
static REASONING_PROBES: &[(&str, &str)] =
    &[("◁think▷", "kimi"), ("<mm:think>", "minimax_m3"), ("[THINK]", "mistral"), ("<think>", "qwen3")];

impl ParserSpec {
    /// Guesses the parsers from the model's `model_type` and, where that says nothing, from its chat template.
    ///
    /// A worker that names its parsers comes first: see [`ParserSpec::by_name`]. What is not recognised is off.
    pub fn auto(model_type: &str, template: &str) -> Self {
        let known = MODEL_TYPES.iter().find(|(prefix, _)| model_type.starts_with(prefix));
        let (tool, reasoning) = known.map_or_else(|| probe(template), |(_, names)| *names);
        ParserSpec::by_name(tool, reasoning).expect("the tables name pairs that exist")
    }
}

fn probe(template: &str) -> Names {
    if template.contains("<|channel|>") && template.contains("<|message|>") {
        return (Some("harmony"), Some("gpt_oss"));
    }
    if template.contains("]<]minimax[>[") {
        // Its calls look like those of others from afar and are not built.
        return (None, Some("minimax_m3"));
    }
    let find = |table: &[(&str, &'static str)]| {
        table.iter().find(|(text, _)| template.contains(text)).map(|(_, name)| *name)
    };
    let tool = find(PROBES).or_else(|| {
        // Two generations share the tokens: the older one wraps arguments in a code block.
        let tokens = template.contains("<｜tool▁call▁begin｜>");
        let fenced = template.contains("```json");
        tokens.then_some(if fenced { "deepseek_v3" } else { "deepseek_v3_1" })
    });
    let reasoning = match tool {
        Some(name @ ("deepseek_v4" | "deepseek_v41")) => Some(name),
        // Their calls may interrupt the reasoning.
        Some(name @ ("kimi_k2" | "minimax_m2")) => template.contains("<think>").then_some(name),
        _ => find(REASONING_PROBES),
    };
    (tool, reasoning)
}
