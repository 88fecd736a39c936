//! Where the template and its surroundings come from.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::deepseek::DeepSeekStyle;
use crate::error::LoadError;

/// The files of a model that matter for rendering. Files that do not exist are left out (`None`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateFiles {
    /// A template given by the operator; goes before all others.
    pub custom: Option<PathBuf>,
    /// `chat_template.jinja`.
    pub chat_template_jinja: Option<PathBuf>,
    /// `chat_template.json`: an object with a member `chat_template`.
    pub chat_template_json: Option<PathBuf>,
    /// `tokenizer_config.json`: special tokens, and a template as string or as list of named templates.
    pub tokenizer_config: Option<PathBuf>,
    /// `config.json`: the model type.
    pub config: Option<PathBuf>,
    /// Name of the model; tells its family only where there is no `config.json`.
    pub model_name: String,
    /// How DeepSeek's conversations are rendered.
    pub deepseek: DeepSeekStyle,
}

impl TemplateFiles {
    /// The files that exist in a model folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        let existing = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        Self {
            custom: None,
            chat_template_jinja: existing("chat_template.jinja"),
            chat_template_json: existing("chat_template.json"),
            tokenizer_config: existing("tokenizer_config.json"),
            config: existing("config.json"),
            model_name: String::new(),
            deepseek: DeepSeekStyle::default(),
        }
    }

    pub(crate) fn read(&self) -> Result<Sources, LoadError> {
        let tokenizer_config = self.tokenizer_config.as_deref().map(read_json).transpose()?;
        let config = self.config.as_deref().map(read_json).transpose()?;
        let templates = match self.custom.as_ref().or(self.chat_template_jinja.as_ref()) {
            Some(path) => Templates { default: Some(read(path)?), tool_use: None },
            None => {
                let json = self.chat_template_json.as_deref().map(read_json).transpose()?;
                [json.as_ref(), tokenizer_config.as_ref()]
                    .into_iter()
                    .flatten()
                    .map(|file| Templates::from_json(&file["chat_template"]))
                    .find(|templates| templates.default.is_some())
                    .unwrap_or_default()
            }
        };
        Ok(Sources {
            templates,
            special_tokens: tokenizer_config.as_ref().map(special_tokens).unwrap_or_default(),
            model_type: config
                .as_ref()
                .and_then(|config| config["model_type"].as_str())
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

/// What was found in the files.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) templates: Templates,
    /// Variables such as `bos_token`.
    pub(crate) special_tokens: Vec<(String, String)>,
    pub(crate) model_type: String,
}

/// Template texts by use.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    pub(crate) default: Option<String>,
    /// For requests with tools; the default one serves if there is none.
    pub(crate) tool_use: Option<String>,
}

impl Templates {
    fn from_json(value: &Value) -> Self {
        let Some(list) = value.as_array() else {
            return Self { default: value.as_str().map(str::to_owned), tool_use: None };
        };
        let named = |name: &str| {
            let entry = list.iter().find(|entry| entry["name"] == name)?;
            entry["template"].as_str().map(str::to_owned)
        };
        let tool_use = named("tool_use");
        // A list without `default` still names the only template there is.
        let default = named("default").or_else(|| match list.as_slice() {
            [only] => only["template"].as_str().map(str::to_owned),
            _ => tool_use.clone(),
        });
        Self { default, tool_use }
    }
}

/// Members `*_token` of `tokenizer_config.json`, given as text or as an object with the text in `content`.
fn special_tokens(config: &Value) -> Vec<(String, String)> {
    let members = config.as_object().into_iter().flatten();
    members
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, token)| {
            let text = token.as_str().or_else(|| token["content"].as_str())?;
            Some((name.clone(), text.to_owned()))
        })
        .collect()
}

fn read(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })
}

fn read_json(path: &Path) -> Result<Value, LoadError> {
    serde_json::from_str(&read(path)?)
        .map_err(|e| LoadError::Json { path: path.to_owned(), reason: e.to_string() })
}

#[cfg(test)]
mod tests;
