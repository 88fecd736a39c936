use serde_json::{Value, json};

use super::read;
use crate::test_files::{fixture_json, installed};
use crate::{Backend, Error, Segment, Tokenizer};

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Kimi's pattern and tokens over public vocabularies, one for each backend; expected is what Python's tiktoken gives.
#[test]
fn ids_and_texts_equal_the_oracle() {
    let golden = fixture_json("recorded/tiktoken_kimi.json");
    let texts = fixture_json("http/tokenize.json");
    for (model, backend) in golden["models"].as_array().unwrap().iter().zip([Backend::Hf, Backend::Fast]) {
        let Some(path) = installed(model["file"].as_str().unwrap()) else { continue };
        let tokenizer_config = json!({"added_tokens_decoder": model["added_tokens_decoder"]});
        let config = json!({"model_type": "kimi_k2"});
        let tokenizer = Tokenizer::load_tiktoken(&path, Some(&config), Some(&tokenizer_config)).unwrap();
        assert_eq!(tokenizer.backend(), backend, "{path:?}");
        assert!(tokenizer.inner.boundaries.is_some(), "prompts can be cached");
        let expected = model["ids"].as_object().unwrap();
        assert_eq!(expected.len(), 60);
        for (name, expected) in expected {
            let text = texts["texts"].get(name).unwrap_or(&model["mixed"][name]).as_str().unwrap();
            let expected = ids(expected);
            assert_eq!(tokenizer.encode(text, false).unwrap(), expected, "{name} {backend:?}");
            assert_eq!(tokenizer.decode(&expected, false), text, "{name} {backend:?}");
        }
        let added = |content: &str| tokenizer.token_to_id(content).unwrap();
        assert!(tokenizer.is_special(added("<|im_end|>")) && !tokenizer.is_special(added("<think>")));
        let last = added("[BOS]") + 255;
        assert_eq!(tokenizer.id_to_token(last), Some(format!("<|reserved_token_{last}|>")));
        assert_eq!(tokenizer.id_to_bytes(last + 1), None);
        let ordinary = [Segment { text: "<|im_end|>", special: false }];
        assert!(!tokenizer.encode_segments(ordinary).unwrap().contains(&added("<|im_end|>")));
    }
}

/// Another pattern over the same ranks, and the fixtures' own goldens.
#[test]
fn the_pattern_decides_how_text_is_cut() {
    let Some(path) = installed("qwen3_6/qwen3_6.tiktoken") else { return };
    let golden = fixture_json("http/tokenize.json");
    let model = &golden["models"]["qwen3_6"];
    let ranks = read(&path).unwrap();
    let tokenizer = Tokenizer::of_ranks(&path, &ranks, model["pattern"].as_str().unwrap(), &[]).unwrap();
    let mut compared = 0;
    for (name, expected) in model["ids"].as_object().unwrap() {
        let expected = ids(expected);
        if expected.iter().any(|id| *id >= super::bound(&ranks)) {
            // Has added tokens, which the fixture does not name.
            continue;
        }
        let text = golden["texts"][name].as_str().unwrap();
        assert_eq!(tokenizer.encode(text, false).unwrap(), expected, "{name}");
        compared += 1;
    }
    assert!(compared >= 35, "{compared}");
}

#[test]
fn the_family_is_known_by_type_or_by_the_module_of_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiktoken.model");
    // All bytes, and one merge.
    let mut text: String = (0..=255u8).map(|byte| format!("{} {byte}\n", base64(&[byte]))).collect();
    text += &format!("{} 256\n", base64(b"ab"));
    std::fs::write(&path, text).unwrap();
    let load = |config: Value, tokenizer_config: Value| {
        Tokenizer::load_tiktoken(&path, Some(&config), Some(&tokenizer_config))
    };
    let kimi = json!({"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]}});
    for (config, tokenizer_config) in
        [(json!({"model_type": "kimi_k25"}), json!({})), (json!({"model_type": "other"}), kimi)]
    {
        let tokenizer = load(config, tokenizer_config).unwrap();
        assert_eq!(tokenizer.encode("aab", false).unwrap(), [97, 256]);
    }
    let error = load(json!({"model_type": "qwen"}), json!({})).unwrap_err();
    assert!(matches!(&error, Error::Load { reason, .. } if reason.contains("\"qwen\"")), "{error}");
    std::fs::write(&path, "no base64!").unwrap();
    assert!(matches!(load(json!({"model_type": "kimi"}), json!({})), Err(Error::Load { .. })));
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let word = bytes.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
    let digit = |at: usize| ALPHABET[(word >> (18 - 6 * at)) as usize & 63] as char;
    (0..4).map(|at| if at <= bytes.len() { digit(at) } else { '=' }).collect()
}
