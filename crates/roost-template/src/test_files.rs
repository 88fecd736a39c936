//! Where the tests find fixtures and real model files.

use std::path::{Path, PathBuf};

use crate::{ChatTemplate, TemplateFiles};

pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures")).join(path)
}

pub(crate) fn fixture_json(path: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(fixture(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The folder of a real model; `None`, with a message, where its files are not installed
/// (`tests/fixtures/fetch_tokenizers.sh` installs them).
pub(crate) fn model_folder(model: &str) -> Option<PathBuf> {
    let folder = match option_env!("ROOST_TOKENIZERS") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::home_dir()?.join(".cache/roost-peers/tokenizers"),
    }
    .join(model);
    if !folder.exists() {
        println!("skipped: {} is not installed", folder.display());
        return None;
    }
    Some(folder)
}

pub(crate) fn real_template(model: &str) -> Option<ChatTemplate> {
    let files = TemplateFiles::in_folder(&model_folder(model)?);
    Some(ChatTemplate::from_files(&files).unwrap())
}

/// The template of one of the small models of the fixtures.
pub(crate) fn tiny_template(model: &str) -> ChatTemplate {
    let folder = fixture("cases/fixtures/models").join(model);
    ChatTemplate::from_files(&TemplateFiles::in_folder(&folder)).unwrap()
}
