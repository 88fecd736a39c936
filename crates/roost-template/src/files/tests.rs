use std::path::Path;

use serde_json::json;

use super::TemplateFiles;
use crate::error::LoadError;
use crate::{ChatTemplate, RenderInput};

const CONFIG: &str = "tokenizer_config.json";

/// Renders "hi" with the files given as (name, text), with and without a tool.
fn render(files: &[(&str, &str)], custom: bool) -> Result<(String, String), LoadError> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let mut found = TemplateFiles::in_folder(folder.path());
    if custom {
        found.custom = Some(folder.path().join("custom.jinja"));
    }
    let template = ChatTemplate::from_files(&found)?;
    let plain = RenderInput::new(r#"[{"role":"user","content":"hi"}]"#, std::time::SystemTime::UNIX_EPOCH);
    let tools = RenderInput { tools: Some(r#"[{"type":"function","function":{"name":"f"}}]"#), ..plain };
    Ok((template.render(&plain).unwrap().text, template.render(&tools).unwrap().text))
}

#[test]
fn the_first_source_that_exists_is_taken() {
    let config = json!({"chat_template": "config"}).to_string();
    let json_file = json!({"chat_template": "json"}).to_string();
    let mut files = vec![(CONFIG, config.as_str())];
    let text = |files: &[(&str, &str)], custom| render(files, custom).unwrap().0;
    assert_eq!(text(&files, false), "config");
    files.push(("chat_template.json", &json_file));
    assert_eq!(text(&files, false), "json");
    files.push(("chat_template.jinja", "jinja"));
    assert_eq!(text(&files, false), "jinja");
    files.push(("custom.jinja", "custom"));
    assert_eq!(text(&files, true), "custom");
    files.push(("config.json", r#"{"model_type":"deepseek_v4"}"#));
    assert!(text(&files, false).starts_with("<｜begin▁of▁sentence｜>"));
    assert_eq!(text(&files, true), "custom");
}

#[test]
fn requests_with_tools_have_their_own_template_if_there_is_one() {
    let list = |templates: serde_json::Value| json!({"chat_template": templates}).to_string();
    let both = list(json!([{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]));
    assert_eq!(render(&[(CONFIG, &both)], false).unwrap(), ("d".into(), "t".into()));
    let other = list(json!([{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]));
    assert_eq!(render(&[(CONFIG, &other)], false).unwrap(), ("d".into(), "d".into()));
    let only = list(json!([{"name": "special", "template": "s"}]));
    assert_eq!(render(&[(CONFIG, &only)], false).unwrap(), ("s".into(), "s".into()));
}

#[test]
fn special_tokens_are_text_or_objects() {
    let config = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null, "add_bos_token": true,
        "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"});
    assert_eq!(render(&[(CONFIG, &config.to_string())], false).unwrap().0, "<s></s>False");
}

#[test]
fn a_model_without_template_says_so() {
    assert!(matches!(render(&[], false), Err(LoadError::Missing)));
    assert!(matches!(render(&[(CONFIG, "{}")], false), Err(LoadError::Missing)));
    let error = render(&[(CONFIG, "{")], false).unwrap_err();
    assert!(matches!(&error, LoadError::Json { path, .. } if path.ends_with(CONFIG)), "{error}");
    let files = TemplateFiles { custom: Some("/no/such/file.jinja".into()), ..TemplateFiles::default() };
    let error = ChatTemplate::from_files(&files).unwrap_err();
    assert!(
        matches!(&error, LoadError::Read { path, .. } if path == Path::new("/no/such/file.jinja")),
        "{error}"
    );
}
