use serde_json::Value;

use super::tiny_chat;

const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cases/fixtures/models/tiny-chatml");

fn read(path: impl AsRef<std::path::Path>) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The tokenizer is the one that the cases use, made without a network.
#[test]
fn tokenizer_equals_the_fixture() {
    let dir = tempfile::tempdir().unwrap();
    let files = tiny_chat(dir.path().join("model")).unwrap();
    assert_eq!(read(&files.tokenizer), read(format!("{FIXTURE}/tokenizer.json")));
    let (ours, theirs) = (read(&files.tokenizer_config), read(format!("{FIXTURE}/tokenizer_config.json")));
    for key in ["added_tokens_decoder", "eos_token", "pad_token", "tokenizer_class"] {
        assert_eq!(ours[key], theirs[key], "{key}");
    }
    assert_eq!(read(&files.config)["max_position_embeddings"], 262_144);
    assert_eq!(read(files.generation_config.unwrap()), read(format!("{FIXTURE}/generation_config.json")));
    assert_eq!(files.chat_template, None);
}
