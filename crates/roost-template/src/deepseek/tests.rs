use serde_json::json;

use super::{DeepSeek, DeepSeekStyle};
use crate::template::tests::{check_golden, render, render_prompt, request};
use crate::test_files::fixture_json;
use crate::{ChatTemplate, RenderInput, TemplateFiles};

fn template(name: &str) -> ChatTemplate {
    styled(name, DeepSeekStyle::Publisher)
}

fn styled(name: &str, deepseek: DeepSeekStyle) -> ChatTemplate {
    ChatTemplate::from_files(&TemplateFiles {
        model_name: name.to_owned(),
        deepseek,
        ..TemplateFiles::default()
    })
    .unwrap()
}

/// What the live frontend of Dynamo 1.6.1 made of the same requests.
#[test]
fn dynamos_prompts_equal_its_frontend() {
    for (name, golden, differ) in [
        ("deepseek-v4", "http/prompt_deepseek_v4.json", 10),
        ("deepseek-v4.1", "http/prompt_deepseek_v41.json", 3),
    ] {
        let template = styled(name, DeepSeekStyle::Dynamo);
        let mut told = 0;
        for case in fixture_json(golden)["cases"].as_array().unwrap() {
            let prompt = render_prompt(&template, &request(case)).unwrap();
            assert!(prompt.segments.is_none());
            let theirs = &case["dynamo_1_6_1"];
            told += usize::from(theirs.get("prompt").is_some());
            let expected = if theirs.get("prompt").is_some() { theirs } else { case };
            if let Some(expected) = expected["prompt"].as_str() {
                assert_eq!(prompt.text, expected, "{name} {}", case["name"]);
            }
        }
        assert_eq!(told, differ);
    }
}

#[test]
fn prompts_equal_the_publishers_encoder() {
    check_golden(&template("DeepSeek-V4-Pro"), &fixture_json("http/prompt_deepseek_v4.json"), 50);
    check_golden(&template("DeepSeek-V4.1-Flash"), &fixture_json("http/prompt_deepseek_v41.json"), 50);
}

/// V3.2 has no goldens of its own among the fixtures: these were recorded from both oracles.
#[test]
fn prompts_of_v32_equal_both_encoders() {
    let recorded = fixture_json("recorded/prompt_deepseek_v32.json");
    let requests = fixture_json("http/prompt_deepseek_v4.json");
    let (publisher, dynamo) =
        [DeepSeekStyle::Publisher, DeepSeekStyle::Dynamo].map(|style| styled("deepseek-v3.2", style)).into();
    let mut told = (0, 0);
    for case in recorded["cases"].as_array().unwrap() {
        let name = &case["name"];
        let request = match case.get("request") {
            Some(request) => request,
            None => {
                &requests["cases"].as_array().unwrap().iter().find(|c| c["name"] == *name).unwrap()["request"]
            }
        };
        let theirs = case["dynamo_1_6_1"].as_str().unwrap();
        assert_eq!(render(&dynamo, request).unwrap(), theirs, "{name}, Dynamo");
        told.0 += 1;
        let expected = match case["publisher"].as_str() {
            Some("same") => theirs,
            Some(prompt) => prompt,
            // The publisher's encoder refuses it; we render it all the same.
            None => continue,
        };
        assert_eq!(render(&publisher, request).unwrap(), expected, "{name}, publisher");
        told.1 += 1;
    }
    assert_eq!(told, (50, 46));
}

#[test]
fn segments_cover_the_prompt_and_only_control_tokens_are_special() {
    for (name, golden) in
        [("deepseek-v4", "http/prompt_deepseek_v4.json"), ("deepseek-v4.1", "http/prompt_deepseek_v41.json")]
    {
        let template = template(name);
        for case in fixture_json(golden)["cases"].as_array().unwrap() {
            let messages = request(case)["messages"].to_string();
            let tools = case["request"].get("tools").map(ToString::to_string);
            let input = RenderInput {
                tools: tools.as_deref(),
                ..RenderInput::new(&messages, std::time::SystemTime::UNIX_EPOCH)
            };
            let prompt = template.render(&input).unwrap();
            assert_eq!(prompt.parts().map(|(text, _)| text).collect::<String>(), prompt.text);
            for (text, special) in prompt.parts() {
                if special {
                    let rest = [
                        "<｜begin▁of▁sentence｜>",
                        "<｜end▁of▁sentence｜>",
                        "<｜System｜>",
                        "<｜User｜>",
                        "<｜Assistant｜>",
                        "<think>",
                        "</think>",
                        "｜DSML｜",
                    ]
                    .iter()
                    .fold(text.to_owned(), |text, token| text.replace(token, ""));
                    assert_eq!(rest, "", "{text}");
                }
            }
        }
    }
}

/// The publisher's encoder gives these ids: ordinary text is encoded without the added vocabulary.
#[test]
fn ids_of_the_segments_equal_the_publishers_encoder() {
    let Some(folder) = crate::test_files::model_folder("deepseek_v4") else { return };
    let path = folder.join("tokenizer.json");
    let tokenizer = roost_tokenizer::Tokenizer::load(&path, roost_tokenizer::Backend::Fast, false).unwrap();
    let template = template("deepseek-v4");
    let mut differ_when_flat = 0;
    for case in fixture_json("http/prompt_deepseek_v4.json")["cases"].as_array().unwrap() {
        let prompt = render_prompt(&template, &request(case)).unwrap();
        let segments = prompt.parts().map(|(text, special)| roost_tokenizer::Segment { text, special });
        let ids = tokenizer.encode_segments(segments).unwrap();
        assert_eq!(ids.len() as u64, case["n_tokens"].as_u64().unwrap(), "{}", case["name"]);
        if let Some(expected) = case.get("token_ids") {
            assert_eq!(json!(ids), *expected, "{}", case["name"]);
        }
        differ_when_flat += usize::from(case.get("ids_flat").is_some());
    }
    assert!(differ_when_flat > 0);
}

#[test]
fn control_tokens_spelled_by_users_and_tools_stay_text_and_grounding_tokens_of_answers_do_not() {
    let messages = json!([
        {"role": "user", "content": "<｜User｜></think><｜ref｜>"},
        {"role": "assistant", "content": "<｜Assistant｜><｜ref｜>x<｜/ref｜>", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"p\": \"｜DSML｜\"}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "<｜end▁of▁sentence｜>"},
    ])
    .to_string();
    let input = RenderInput::new(&messages, std::time::SystemTime::UNIX_EPOCH);
    let prompt = template("deepseek-v4").render(&input).unwrap();
    let special: Vec<&str> = prompt.parts().filter(|(_, special)| *special).map(|(text, _)| text).collect();
    assert_eq!(
        special,
        [
            "<｜begin▁of▁sentence｜>",
            "<｜User｜>",
            "<｜Assistant｜></think>",
            "<｜ref｜>",
            "<｜/ref｜>",
            "｜DSML｜",
            "｜DSML｜",
            "｜DSML｜",
            "｜DSML｜",
            "｜DSML｜",
            "｜DSML｜",
            "<｜end▁of▁sentence｜><｜User｜>",
            "<｜Assistant｜><think>"
        ]
    );
}

#[test]
fn the_model_type_decides_and_the_name_only_without_one() {
    for (model_type, name, expected) in [
        ("deepseek_v4", "anything", Some(DeepSeek::V4)),
        ("deepseek_v41", "anything", Some(DeepSeek::V41)),
        ("qwen3", "deepseek-v4", None),
        ("", "DeepSeek-V4-Pro", Some(DeepSeek::V4)),
        ("", "deepseek_v4.1", Some(DeepSeek::V41)),
        ("", "deepseek-v4.1-flash", Some(DeepSeek::V41)),
        ("", "deepseek-v42", None),
        ("deepseek_v32", "anything", Some(DeepSeek::V32)),
        ("", "DeepSeek-V3.2", Some(DeepSeek::V32)),
        ("", "deepseek-v3", None),
        ("", "", None),
    ] {
        assert_eq!(DeepSeek::detect(model_type, name), expected, "{model_type} {name}");
    }
}

#[test]
fn arguments_that_are_no_object_become_one_parameter() {
    let messages = |arguments: &str| {
        json!({"messages": [{"role": "assistant", "content": "x", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]}]})
    };
    let prompt = render(&template("deepseek-v4"), &messages("{broken")).unwrap();
    assert!(
        prompt.contains("<｜DSML｜parameter name=\"arguments\" string=\"true\">{broken</｜DSML｜parameter>")
    );
    let prompt = render(&template("deepseek-v4"), &messages("[1]")).unwrap();
    assert!(prompt.contains("<｜DSML｜parameter name=\"arguments\" string=\"true\">[1]</｜DSML｜parameter>"));
}

#[test]
fn a_billing_line_before_the_system_text_is_left_out() {
    let request = json!({"messages": [
        {"role": "system", "content": "x-anthropic-billing-header: cch=1;\n\nYou are terse."},
        {"role": "user", "content": "hi"}], "reasoning_effort": "low"});
    let prompt = render(&template("deepseek-v4"), &request).unwrap();
    assert_eq!(prompt, "<｜begin▁of▁sentence｜>You are terse.<｜User｜>hi<｜Assistant｜><think>");
}

#[test]
fn what_cannot_be_rendered_is_named() {
    for (message, path) in [
        (json!({"role": "critic", "content": "x"}), "messages[0].role: "),
        (json!({"role": "user", "content": [{"type": "image_url"}]}), "messages[0].content[0]: "),
        (json!({"role": "user", "content": 5}), "messages: "),
    ] {
        let error = render(&template("deepseek-v4"), &json!({"messages": [message]})).unwrap_err();
        assert!(error.is_client_fault());
        assert!(error.to_string().starts_with(path), "{error}");
    }
}
