use std::sync::Arc;

use super::Boundaries;
use crate::test_files::{REAL_MODELS, real_tokenizer, tiny_path, tiny_tokenizer};
use crate::{Backend, SegmentCache, Tokenizer};

/// The boundaries of a byte-pair model whose file was changed by `edit`.
fn boundaries_of(edit: impl FnOnce(&mut serde_json::Value)) -> Option<Boundaries> {
    let mut file = serde_json::from_slice(&std::fs::read(tiny_path("tiny-chatml")).unwrap()).unwrap();
    edit(&mut file);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let tokenizer = Tokenizer::load(&path, Backend::Hf, false).unwrap();
    Boundaries::of(&path, &tokenizer.inner.encoder)
}

#[test]
fn real_models_can_be_cut() {
    for model in REAL_MODELS {
        for backend in [Backend::Fast, Backend::Hf] {
            let Some(tokenizer) = real_tokenizer(model, backend) else { continue };
            let boundaries = tokenizer.inner.boundaries.as_ref();
            let boundaries = boundaries.unwrap_or_else(|| panic!("{model} {backend:?}"));
            // Every turn ends in a token that stays one.
            let turns = [("qwen3", "<|im_end|>"), ("llama3_1", "<|eot_id|>"), ("gptoss", "<|end|>")];
            let end = turns.iter().find(|(name, _)| *name == model).map_or("<｜Assistant｜>", |(_, end)| end);
            assert_eq!(
                boundaries.solid_ends(&format!("a{end}b")).collect::<Vec<_>>(),
                [1 + end.len()],
                "{model}"
            );
        }
    }
}

#[test]
fn models_that_look_beyond_a_token_are_not_cut() {
    assert!(boundaries_of(|_| ()).is_some());
    for flag in ["lstrip", "rstrip", "single_word"] {
        assert!(boundaries_of(|file| file["added_tokens"][3][flag] = true.into()).is_none(), "{flag}");
    }
    assert!(boundaries_of(|file| file["pre_tokenizer"]["add_prefix_space"] = true.into()).is_none());
    let metaspace = serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true});
    assert!(boundaries_of(|file| file["pre_tokenizer"] = metaspace).is_none());
    let prepend =
        serde_json::json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}]});
    assert!(boundaries_of(|file| file["normalizer"] = prepend).is_none());
    assert!(boundaries_of(|file| file["model"]["dropout"] = 0.1.into()).is_none());
    assert!(boundaries_of(|file| file["added_tokens"] = serde_json::json!([])).is_none());
}

#[test]
fn such_a_model_encodes_as_before_with_a_cache() {
    let mut file: serde_json::Value =
        serde_json::from_slice(&std::fs::read(tiny_path("tiny-chatml")).unwrap()).unwrap();
    file["added_tokens"][1]["rstrip"] = true.into();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let plain = Tokenizer::load(&path, Backend::Hf, false).unwrap();
    let cached = plain.clone().with_cache(Arc::new(SegmentCache::new(1 << 20)));
    assert!(!cached.is_cached());
    let text = "<|im_start|>   user<|im_end|> x";
    assert_eq!(cached.encode(text, false).unwrap(), plain.encode(text, false).unwrap());
}

#[test]
fn segments_cover_the_text_and_depend_on_what_is_near() {
    let tokenizer = tiny_tokenizer("tiny-chatml", Backend::Fast);
    let boundaries = Boundaries::of(&tiny_path("tiny-chatml"), &tokenizer.inner.encoder).unwrap();
    let long = "x".repeat(300);
    let turn = format!("<|im_start|>user\n{long}<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n");
    let text = format!("{turn}{turn}<|im_start|>");
    let parts: Vec<&str> = boundaries.segments(&text).into_iter().map(|range| &text[range]).collect();
    assert_eq!(parts.concat(), text);
    assert_eq!(parts.len(), 5, "{parts:?}");
    assert_eq!(parts[1], format!("user\n{long}"));
    assert_eq!(parts[3], parts[1]);
    let shifted = format!("<|im_start|>system\nshort<|im_end|>\n{text}");
    let moved: Vec<&str> = boundaries.segments(&shifted).into_iter().map(|range| &shifted[range]).collect();
    assert_eq!(moved[1..], parts[1..]);
    assert!(boundaries.segments("").is_empty());
    let many = "<|im_end|>".repeat(1000);
    assert!(boundaries.segments(&many).iter().all(|range| range.len() < 1100));
}
