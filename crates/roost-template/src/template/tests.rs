use std::time::SystemTime;

use serde_json::{Value, json};

use crate::error::{LoadError, RenderError};
use crate::test_files::{fixture_json, real_template, tiny_template};
use crate::{ChatTemplate, Prompt, RenderInput, ThinkingControls};

/// Renders a request (OpenAI members without `model`) to its text.
pub(crate) fn render(template: &ChatTemplate, request: &Value) -> Result<String, RenderError> {
    render_prompt(template, request).map(|prompt| prompt.text)
}

pub(crate) fn render_prompt(template: &ChatTemplate, request: &Value) -> Result<Prompt, RenderError> {
    let mut kwargs = request["chat_template_kwargs"].as_object().cloned().unwrap_or_default();
    let controls = ThinkingControls {
        reasoning_effort: request["reasoning_effort"].as_str(),
        thinking: request["thinking"]["type"].as_str(),
    };
    controls.apply(&mut kwargs);
    render_with(template, request, &Value::from(kwargs))
}

/// Renders a request with template variables as they are.
fn render_with(template: &ChatTemplate, request: &Value, kwargs: &Value) -> Result<Prompt, RenderError> {
    let messages = request["messages"].to_string();
    let tools = request.get("tools").filter(|_| request["tool_choice"] != "none").map(Value::to_string);
    let kwargs = kwargs.as_object().map(|_| kwargs.to_string());
    let response_format = request.get("response_format").map(Value::to_string);
    let input = RenderInput {
        tools: tools.as_deref(),
        add_generation_prompt: request["add_generation_prompt"].as_bool().unwrap_or(true),
        continue_final_message: request["continue_final_message"].as_bool().unwrap_or(false),
        kwargs: kwargs.as_deref(),
        response_format: response_format.as_deref(),
        ..RenderInput::new(&messages, SystemTime::UNIX_EPOCH)
    };
    template.render(&input)
}

/// The request of a golden case; the longest ones are given by a rule instead.
pub(crate) fn request(case: &Value) -> Value {
    match case["name"].as_str().unwrap() {
        "very_long_single" => {
            let text: String = (0..3000)
                .map(|i| {
                    format!("Line {i}: the quick brown fox {} jumps över the lazy dög 漢{i} 😀\n", i * i)
                })
                .collect();
            json!({"messages": [{"role": "user", "content": text}]})
        }
        "very_many_turns" => {
            let mut messages = vec![json!({"role": "system", "content": "S"})];
            for i in 0..400 {
                let question = format!("question {i} {}", "x ".repeat(20));
                let answer = format!("answer {i} {}", "y ".repeat(30));
                messages.push(json!({"role": "user", "content": question}));
                messages.push(json!({"role": "assistant", "content": answer}));
            }
            messages.push(json!({"role": "user", "content": "end"}));
            json!({"messages": messages})
        }
        _ => case["request"].clone(),
    }
}

pub(crate) fn check_golden(template: &ChatTemplate, golden: &Value, count: usize) {
    use sha2::Digest;
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), count);
    for case in cases {
        let got = render(template, &request(case)).unwrap();
        if let Some(expected) = case["prompt"].as_str() {
            assert_eq!(got, expected, "{}", case["name"]);
        }
        let digest: String = sha2::Sha256::digest(&got).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, case["prompt_sha256"], "{}", case["name"]);
    }
}

#[test]
fn prompts_of_real_templates_equal_the_oracle() {
    for model in ["qwen3", "deepseek_v3", "llama3_1"] {
        let Some(template) = real_template(model) else { continue };
        check_golden(&template, &fixture_json(&format!("http/prompt_{model}.json")), 40);
    }
}

/// Templates that go further than the small ones: separators, macros, long dispatch over roles.
#[test]
fn prompts_of_large_templates_equal_the_oracle() {
    let golden = fixture_json("http/prompt_templates.json");
    let requests = fixture_json("http/prompt_qwen3.json");
    for (model, variant) in [
        ("kimi_k25", "raw_args_null_as_empty"),
        ("minimax_m2", "object_args_null_as_empty"),
        ("minimax_m3", "object_args_null_as_empty"),
    ] {
        let Some(template) = real_template(model) else { continue };
        let cases = golden["models"][model]["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 37);
        for case in cases {
            let named = requests["cases"].as_array().unwrap().iter().find(|c| c["name"] == case["name"]);
            let mut request = request(named.unwrap());
            join_parts(&mut request);
            let variant = case["same_as"][variant].as_str().unwrap_or(variant);
            let expected = case["outputs"][variant].as_str().unwrap();
            let got = render_with(&template, &request, &request["chat_template_kwargs"]).unwrap();
            assert_eq!(got.text, expected, "{model} {}", case["name"]);
        }
    }
}

/// These goldens were made from joined parts, also for templates that read parts.
fn join_parts(request: &mut Value) {
    for message in request["messages"].as_array_mut().unwrap() {
        if let Some(parts) = message["content"].as_array() {
            let texts: Vec<&str> = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
            message["content"] = texts.join("\n").into();
        }
    }
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

fn call(arguments: Value) -> Value {
    json!({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}})
}

fn after_call(content: &Value, arguments: Value) -> Value {
    let mut assistant = json!({"role": "assistant", "tool_calls": [call(arguments)]});
    if *content != json!("absent") {
        assistant["content"] = content.clone();
    }
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "sunny"});
    json!({"messages": [user("x"), assistant, result, user("y")]})
}

#[test]
fn tool_definitions_keep_order_spacing_and_characters() {
    let request = json!({"messages": [user("hi")], "tools": [{"type": "function", "function": {
        "name": "zeta", "description": "it's <b> & é",
        "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}},
        "required": ["z"]}}}]});
    let prompt = render(&tiny_template("tiny-chatml"), &request).unwrap();
    let expected = r#"{"type": "function", "function": {"name": "zeta", "description": "it's <b> & é", "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}, "required": ["z"]}}}"#;
    assert!(prompt.contains(expected), "{prompt}");
}

#[test]
fn null_absent_and_empty_content_give_the_same_prompt() {
    for model in ["tiny-none", "tiny-items", "tiny-chatml"] {
        let template = tiny_template(model);
        let arguments = json!(r#"{"z":1,"a":"é"}"#);
        let prompts: Vec<String> = [json!(null), json!("absent"), json!("")]
            .iter()
            .map(|content| render(&template, &after_call(content, arguments.clone())).unwrap())
            .collect();
        assert_eq!(prompts[0], prompts[1], "{model}");
        assert_eq!(prompts[0], prompts[2], "{model}");
        assert!(!prompts[0].contains("None") && !prompts[0].contains("null"), "{model}");
        let expected = if model == "tiny-items" { "z=1;a=é;" } else { r#"{"z": 1, "a": "é"}"# };
        assert!(prompts[0].contains(expected), "{model}: {}", prompts[0]);
    }
}

#[test]
fn arguments_that_are_no_object_survive_or_are_refused_by_path() {
    let template = tiny_template("tiny-items");
    let rendered = |arguments: Value| render(&template, &after_call(&json!(null), arguments)).unwrap();
    assert!(rendered(json!("")).contains("get_weather|</tool_call>"));
    assert!(rendered(json!("{}")).contains("get_weather|</tool_call>"));
    assert!(rendered(json!({"k": [1]})).contains("get_weather|k=[1];</tool_call>"));
    assert!(rendered(json!("{not json")).contains("get_weather|arguments={not json;</tool_call>"));
    assert!(rendered(json!("[1]")).contains("get_weather|arguments=[1];</tool_call>"));

    for broken in ["{not json", "[1]"] {
        let messages = after_call(&json!(null), json!(broken))["messages"].to_string();
        let strict = RenderInput {
            broken_arguments: crate::BrokenArguments::Refuse,
            ..RenderInput::new(&messages, SystemTime::UNIX_EPOCH)
        };
        let error = template.render(&strict).unwrap_err();
        assert!(error.is_client_fault());
        assert!(error.to_string().starts_with("messages[1].tool_calls[0].function.arguments: "), "{error}");
    }
}

#[test]
fn text_parts_reach_every_template_in_order() {
    let template = tiny_template("tiny-chatml");
    assert!(!template.capabilities(false).unwrap().content_parts);
    let part = |text: &str| json!({"type": "text", "text": text});
    let request = json!({"messages": [
        {"role": "system", "content": [part("sys")]},
        {"role": "user", "content": []},
        {"role": "user", "content": [part("one"), part("two")]}]});
    assert_eq!(
        render(&template, &request).unwrap(),
        "<|im_start|>system\nsys<|im_end|>\n<|im_start|>user\n<|im_end|>\n\
         <|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>assistant\n"
    );

    let looping = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}\
                   {% for p in m.content %}[{{ p.type }}:{{ p.text }}]{% endfor %}{% endif %}{% endfor %}";
    let looping = ChatTemplate::from_source(looping, Vec::new()).unwrap();
    assert!(looping.capabilities(false).unwrap().content_parts);
    assert_eq!(render(&looping, &request).unwrap(), "[text:sys][text:one][text:two]");

    let image = json!({"messages": [{"role": "user", "content": [part("a"), {"type": "image_url"}]}]});
    let error = render(&template, &image).unwrap_err();
    assert!(error.is_client_fault());
    assert!(error.to_string().starts_with("messages[0].content[1]: parts of type 'image_url'"), "{error}");
}

#[test]
fn python_only_syntax_renders_as_in_jinja() {
    let one = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let prompt = render(&tiny_template("tiny-pymeth"), &one(json!("a|@@hello@@"))).unwrap();
    assert!(prompt.contains("<|im_start|>user\n@@hello@@A@@olleh@@|a<|im_end|>"), "{prompt}");
    let parts = json!([{"type": "text", "text": "@@hello@@"}]);
    let prompt = render(&tiny_template("tiny-dotindex"), &one(parts)).unwrap();
    assert!(prompt.contains("<|im_start|>user\n@@hello@@<|im_end|>"), "{prompt}");
    let request = after_call(&json!(null), json!(r#"{"z":1,"a":2}"#));
    let prompt = render(&tiny_template("tiny-fromjson"), &request).unwrap();
    assert!(prompt.contains("get_weather|z=1;a=2;</tool_call>"), "{prompt}");
}

#[test]
fn the_template_tells_the_client_why_it_refuses() {
    let request = json!({"messages": [{"role": "assistant", "content": "pre"}, user("hi")]});
    let error = render(&tiny_template("tiny-raise"), &request).unwrap_err();
    assert!(matches!(&error, RenderError::Raised(_)), "{error:?}");
    assert!(error.is_client_fault());
    assert_eq!(error.to_string(), "first message must be system or user");
}

#[test]
fn bos_and_thinking_variables_reach_the_template() {
    let hi = json!({"messages": [user("hi")]});
    assert!(render(&tiny_template("tiny-bos"), &hi).unwrap().starts_with("<|bos|><|im_start|>"));
    let think = tiny_template("tiny-think");
    assert!(render(&think, &hi).unwrap().ends_with("assistant\n<think>\n"));
    for control in [
        json!({"messages": [user("hi")], "chat_template_kwargs": {"enable_thinking": false}}),
        json!({"messages": [user("hi")], "chat_template_kwargs": {"thinking": false}}),
        json!({"messages": [user("hi")], "reasoning_effort": "none"}),
        json!({"messages": [user("hi")], "thinking": {"type": "disabled"}}),
    ] {
        assert!(render(&think, &control).unwrap().ends_with("<think>\n\n</think>\n\n"), "{control}");
    }
}

#[test]
fn a_template_that_does_not_parse_is_quoted() {
    let error = ChatTemplate::from_source("ok\n{% for x %}\n", Vec::new()).unwrap_err();
    let LoadError::Syntax { line, quote, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*line, quote.as_str()), (2, "{% for x %}"));
    assert!(error.to_string().contains("{% for x %}"));
}

#[test]
fn unknown_names_matter_only_where_they_are_reached() {
    let template = "{% if messages|length > 1 %}{{ 'x' | nofilter }}{% endif %}ok";
    let template = ChatTemplate::from_source(template, Vec::new()).unwrap();
    assert_eq!(render(&template, &json!({"messages": [user("a")]})).unwrap(), "ok");
    let error = render(&template, &json!({"messages": [user("a"), user("b")]})).unwrap_err();
    assert!(matches!(error, RenderError::Template(_)), "{error:?}");
    assert!(!error.is_client_fault());
}

#[test]
fn late_system_messages_and_user_runs_fit_strict_templates() {
    let strict = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
                  {{ raise_exception('system must be first') }}{% endif %}\
                  {% if m.role == 'user' and loop.previtem is defined and loop.previtem.role == 'user' %}\
                  {{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    let strict = ChatTemplate::from_source(strict, Vec::new()).unwrap();
    assert!(strict.capabilities(false).unwrap().refuses_late_system);
    assert!(strict.capabilities(false).unwrap().refuses_user_runs);
    let system = |content: &str| json!({"role": "system", "content": content});
    let assistant = json!({"role": "assistant", "content": "c"});
    let request =
        json!({"messages": [system("a"), system("b"), user("u"), assistant, system("s"), user("v")]});
    assert_eq!(render(&strict, &request).unwrap(), "[system:a\n\nb][user:u][assistant:c][user:s\n\nv]");

    let free = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    let free = ChatTemplate::from_source(free, Vec::new()).unwrap();
    assert_eq!(
        render(&free, &json!({"messages": [user("u"), system("s"), user("v")]})).unwrap(),
        "[user:u][system:s][user:v]"
    );
}

#[test]
fn reasoning_of_history_is_given_under_the_name_the_template_reads() {
    for (read, sent) in [("reasoning_content", "reasoning"), ("reasoning", "reasoning_content")] {
        let source = format!("{{% for m in messages %}}{{{{ m.{read} or '' }}}}{{% endfor %}}");
        let template = ChatTemplate::from_source(&source, Vec::new()).unwrap();
        let request = json!({"messages": [{"role": "assistant", "content": "a", sent: "because"}]});
        assert_eq!(render(&template, &request).unwrap(), "because");
    }
}

#[test]
fn requests_that_are_no_conversation_are_refused_by_path() {
    let template = tiny_template("tiny-chatml");
    for (messages, path) in [
        (json!([]), "messages: "),
        (json!([1]), "messages: "),
        (json!([{"content": "x"}]), "messages[0].role: "),
        (json!([{"role": "user", "content": 5}]), "messages[0].content: "),
    ] {
        let error = render(&template, &json!({"messages": messages})).unwrap_err();
        assert!(error.is_client_fault());
        assert!(error.to_string().starts_with(path), "{error}");
    }
    let continued = json!({"messages": [user("hi"), {"role": "assistant", "content": "x", "tool_calls": null}],
        "continue_final_message": true});
    assert!(render(&template, &continued).unwrap().ends_with("<|im_start|>assistant\nx"));
}
