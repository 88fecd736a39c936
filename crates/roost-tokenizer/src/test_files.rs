//! Where the tests find real tokenizers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use crate::{Backend, Tokenizer};

/// Models whose `tokenizer.json` the goldens were made with.
pub(crate) const REAL_MODELS: [&str; 5] = ["qwen3", "deepseek_v3", "deepseek_v4", "llama3_1", "gptoss"];

/// A file of the repository's fixtures.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures")).join(path)
}

pub(crate) fn fixture_json(path: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(fixture(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Loads one of [`REAL_MODELS`], once per process; `None`, with a message, where the files are not installed
/// (`tests/fixtures/fetch_tokenizers.sh` installs them).
pub(crate) fn real_tokenizer(model: &str, backend: Backend) -> Option<Tokenizer> {
    type Loaded = Vec<(String, Backend, Tokenizer)>;
    static LOADED: OnceLock<Mutex<Loaded>> = OnceLock::new();
    let path = real_path(model)?;
    let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap();
    if let Some((.., tokenizer)) = loaded.iter().find(|(m, b, _)| m == model && *b == backend) {
        return Some(tokenizer.clone());
    }
    let tokenizer = Tokenizer::load(&path, backend, false).unwrap();
    loaded.push((model.to_owned(), backend, tokenizer.clone()));
    Some(tokenizer)
}

/// The file of one of [`REAL_MODELS`]; `None`, with a message, where it is not installed.
pub(crate) fn real_path(model: &str) -> Option<PathBuf> {
    installed(&format!("{model}/tokenizer.json"))
}

/// A file of the tokenizers' folder; `None`, with a message, where it is not installed.
pub(crate) fn installed(file: &str) -> Option<PathBuf> {
    let folder = match option_env!("ROOST_TOKENIZERS") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::home_dir()?.join(".cache/roost-peers/tokenizers"),
    };
    let path = folder.join(file);
    if !path.exists() {
        println!("skipped: {} is not installed", path.display());
        return None;
    }
    Some(path)
}

/// Loads one of the small models of the fixtures.
pub(crate) fn tiny_tokenizer(model: &str, backend: Backend) -> Tokenizer {
    Tokenizer::load(&tiny_path(model), backend, false).unwrap()
}

/// The file of one of the small models of the fixtures.
pub(crate) fn tiny_path(model: &str) -> PathBuf {
    fixture("cases/fixtures/models").join(model).join("tokenizer.json")
}
