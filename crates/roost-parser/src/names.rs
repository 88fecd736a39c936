//! The names of the parsers.

use crate::dialect::{self as d, Dialect, ReasoningTags};
use crate::spec::UnknownName;

/// Tool parsers: our spelling, the other spellings, the syntax.
static TOOL: &[(&str, &[&str], &Dialect)] = &[
    ("hermes", &["qwen25", "qwen"], &d::HERMES),
    ("qwen3_coder", &["qwen3", "nemotron_nano"], &d::QWEN3_CODER),
    ("deepseek_v3", &["deepseekv3"], &d::DEEPSEEK_V3),
    ("deepseek_v3_1", &["deepseekv31"], &d::DEEPSEEK_V3_1),
    ("deepseek_v3_2", &["deepseekv32"], &d::DEEPSEEK_V3_2),
    ("deepseek_v4", &["deepseek-v4", "deepseekv4"], &d::DEEPSEEK_V4),
    ("deepseek_v41", &["deepseek-v41", "deepseekv41"], &d::DEEPSEEK_V41),
    ("kimi_k2", &["kimi_k25"], &d::KIMI_K2),
    ("glm47", &["glm45"], &d::GLM),
    ("minimax_m2", &["minimax-m2"], &d::MINIMAX_M2),
    ("harmony", &["gpt-oss", "gpt_oss"], &d::HARMONY),
    ("nemotron_deci", &[], &d::NEMOTRON_DECI),
    ("llama3_json", &["llama3"], &d::LLAMA3),
    ("mistral", &[], &d::MISTRAL),
    ("phi4", &[], &d::PHI4),
    ("jamba", &[], &d::JAMBA),
];

/// Tool parsers of Dynamo 1.6.1 that are not built.
static TOOL_NOT_BUILT: &[&str] = &[
    "default",
    "gemma-4",
    "gemma4",
    "inkling",
    "kimi-k3",
    "kimi_k3",
    "minimax-m3",
    "minimax-m3-nom",
    "minimax_m3",
    "minimax_m3_nom",
    "muse",
    "muse_glimmer",
    "pythonic",
];

/// Reasoning parsers: our spelling, the other spellings, the marks.
static REASONING: &[(&str, &[&str], &ReasoningTags)] = &[
    ("qwen3", &["basic", "qwen3_coder", "glm45", "glm47", "nemotron_deci"], &d::PLAIN_THINK),
    (
        "deepseek_r1",
        &[
            "deepseek-r1",
            "deepseek_v3",
            "deepseek_v3_1",
            "deepseek_v3_2",
            "nemotron_nano",
            "step3",
            "qwen3-thinking",
        ],
        &d::FORCED_THINK,
    ),
    ("deepseek_v4", &["deepseek-v4", "deepseekv4", "deepseek-v3", "kimi_k2"], &d::CALLING_THINK),
    ("deepseek_v41", &["deepseek-v41", "deepseekv41"], &d::DEEPSEEK_V41_THINK),
    ("kimi", &[], &d::KIMI_THINK),
    ("minimax_m2", &["minimax", "nemotron3", "nemotron_v3"], &d::FORCED_CALLING_THINK),
    ("kimi_k25", &[], &d::KIMI_K25_THINK),
    ("mistral", &[], &d::MISTRAL_THINK),
    ("granite", &[], &d::GRANITE_THINK),
    ("minimax_m3", &["minimax-m3"], &d::MINIMAX_M3_THINK),
    ("gpt_oss", &["gpt-oss"], &d::CHANNELS),
];

/// Reasoning parsers of Dynamo 1.6.1 that are not built.
static REASONING_NOT_BUILT: &[&str] =
    &["gemma-4", "gemma4", "inkling", "kimi-k3", "kimi_k3", "minimax_append_think", "muse", "muse_glimmer"];

pub(crate) fn tool(name: &str) -> Result<(&'static str, &'static Dialect), UnknownName> {
    match find(TOOL, name) {
        Some(found) => Ok(found),
        None if TOOL_NOT_BUILT.contains(&name) => Err(UnknownName::ToolNotBuilt(name.to_owned())),
        None => Err(UnknownName::Tool(name.to_owned())),
    }
}

pub(crate) fn reasoning(name: &str) -> Result<(&'static str, &'static ReasoningTags), UnknownName> {
    match find(REASONING, name) {
        Some(found) => Ok(found),
        None if REASONING_NOT_BUILT.contains(&name) => Err(UnknownName::ReasoningNotBuilt(name.to_owned())),
        None => Err(UnknownName::Reasoning(name.to_owned())),
    }
}

/// Looks a name up; the answer carries the spelling that was asked for.
fn find<T>(
    table: &'static [(&'static str, &'static [&'static str], &'static T)],
    name: &str,
) -> Option<(&'static str, &'static T)> {
    table.iter().find_map(|(own, aliases, value)| {
        let known = std::iter::once(own).chain(*aliases).find(|known| **known == name)?;
        Some((*known, *value))
    })
}
