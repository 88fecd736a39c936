//! Names and guesses.

use super::support::spec;
use crate::{ParserSpec, PromptEnd, UnknownName};

/// Names Dynamo 1.6.1 accepts.
const TOOL: &str = "deepseek-v4 deepseek_v3 deepseek_v3_1 deepseek_v3_2 deepseek_v4 deepseek_v41 deepseekv4 default \
    gemma-4 gemma4 glm45 glm47 harmony hermes inkling jamba kimi-k3 kimi_k2 kimi_k25 kimi_k3 llama3_json minimax-m3 \
    minimax-m3-nom minimax_m2 minimax_m3 minimax_m3_nom mistral muse muse_glimmer nemotron_deci nemotron_nano phi4 \
    pythonic qwen25 qwen3 qwen3_coder";
const REASONING: &str = "basic deepseek-v4 deepseek_r1 deepseek_v3 deepseek_v3_1 deepseek_v3_2 deepseek_v4 \
    deepseek_v41 deepseekv4 gemma-4 gemma4 glm45 glm47 gpt_oss granite inkling kimi kimi-k3 kimi_k2 kimi_k25 kimi_k3 \
    minimax-m3 minimax_append_think minimax_m2 minimax_m3 mistral muse muse_glimmer nemotron3 nemotron_deci \
    nemotron_nano nemotron_v3 qwen3 qwen3_coder step3";

#[test]
fn every_name_of_the_peer_is_known() {
    let mut missing = 0;
    for name in TOOL.split_whitespace() {
        match ParserSpec::by_name(Some(name), None) {
            Ok(spec) => assert_eq!(spec.tool_name(), Some(name)),
            Err(error) => {
                assert_eq!(error, UnknownName::ToolNotBuilt(name.to_owned()));
                missing += 1;
            }
        }
    }
    for name in REASONING.split_whitespace() {
        match ParserSpec::by_name(None, Some(name)) {
            Ok(spec) => assert_eq!(spec.reasoning_name(), Some(name)),
            Err(error) => {
                assert_eq!(error, UnknownName::ReasoningNotBuilt(name.to_owned()));
                missing += 1;
            }
        }
    }
    assert_eq!(missing, 13 + 8);
}

#[test]
fn wrong_names_are_named() {
    let error = ParserSpec::by_name(Some("herms"), None).unwrap_err();
    assert_eq!(error.to_string(), "unknown tool parser `herms`");
    let error = ParserSpec::by_name(None, Some("x")).unwrap_err();
    assert_eq!(error.to_string(), "unknown reasoning parser `x`");
    let error = ParserSpec::by_name(Some("hermes"), Some("gpt_oss")).unwrap_err();
    assert!(matches!(error, UnknownName::Pair { .. }), "{error}");
    assert!(ParserSpec::by_name(Some("harmony"), Some("qwen3")).is_err());
    let off = ParserSpec::by_name(None, None).unwrap();
    assert!(off.is_off() && !off.reasons() && !off.needs_special_tokens());
}

#[test]
fn special_tokens_are_asked_for_where_marks_are_special() {
    let needs = |tool: &str, reasoning: &str| spec(tool, reasoning).needs_special_tokens();
    for tool in ["kimi_k2", "harmony", "deepseek_v41"] {
        assert!(needs(tool, ""), "{tool}");
    }
    for tool in ["hermes", "qwen3_coder", "deepseek_v4", "deepseek_v3_1", "glm47", "minimax_m2"] {
        assert!(!needs(tool, ""), "{tool}");
    }
    assert!(needs("", "gpt_oss") && needs("", "mistral"));
    assert!(needs("", "deepseek_v41") && needs("", "kimi_k25"));
    assert!(!needs("hermes", "qwen3"));
}

#[test]
fn prompts_say_where_an_answer_begins() {
    let end = |reasoning: &str, prompt: &str| spec("", reasoning).prompt_end(prompt);
    assert_eq!(end("qwen3", "x<think>\n"), PromptEnd::Reasoning);
    assert_eq!(end("qwen3", "x<think>\n\n</think>\n\n"), PromptEnd::Answer);
    assert_eq!(end("qwen3", "x"), PromptEnd::Plain);
    assert_eq!(end("minimax_m3", "x<mm:think>"), PromptEnd::Reasoning);
    assert_eq!(end("gpt_oss", "x<|start|>assistant"), PromptEnd::Plain);
    assert_eq!(spec("hermes", "").prompt_end("x<think>"), PromptEnd::Plain);
}

#[test]
fn guesses() {
    let guess = |model_type: &str, template: &str| {
        let spec = ParserSpec::auto(model_type, template);
        (spec.tool_name(), spec.reasoning_name())
    };
    assert_eq!(guess("deepseek_v4", ""), (Some("deepseek_v4"), Some("deepseek_v4")));
    assert_eq!(guess("gpt_oss", ""), (Some("harmony"), Some("gpt_oss")));
    assert_eq!(guess("qwen3", "<tool_call>\n{\"name\": … <think>"), (Some("hermes"), Some("qwen3")));
    assert_eq!(guess("qwen3_moe", "<tool_call>\n<function=f>"), (Some("qwen3_coder"), None));
    assert_eq!(guess("x", "<minimax:tool_call><think>"), (Some("minimax_m2"), Some("minimax_m2")));
    assert_eq!(guess("x", "<|tool_calls_section_begin|><think></think>"), (Some("kimi_k2"), Some("kimi_k2")));
    assert_eq!(guess("x", "]<]minimax[>[<tool_call>"), (None, Some("minimax_m3")));
    assert_eq!(guess("x", "<|tool_calls_section_begin|>"), (Some("kimi_k2"), None));
    assert_eq!(guess("x", "<tool_call>{name}<arg_key>"), (Some("glm47"), None));
    assert_eq!(guess("deepseek_v3", "<｜tool▁call▁begin｜>…```json"), (Some("deepseek_v3"), None));
    assert_eq!(
        guess("deepseek_v3", "<｜tool▁call▁begin｜></think><think>"),
        (Some("deepseek_v3_1"), Some("qwen3"))
    );
    assert_eq!(guess("x", "<｜DSML｜ calls>"), (Some("deepseek_v41"), Some("deepseek_v41")));
    assert_eq!(guess("x", "<|start|><|channel|><|message|>"), (Some("harmony"), Some("gpt_oss")));
    assert_eq!(guess("llama", "{{ messages }}"), (None, None));
}
