use serde_json::Value;

use crate::test_files::{REAL_MODELS, fixture_json, real_tokenizer, tiny_tokenizer};
use crate::{Backend, DecodeStream, Tokenizer};

fn steps(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> (Vec<Option<String>>, String) {
    let mut stream = tokenizer.decode_stream(&[], skip_special);
    let steps = ids.iter().map(|&id| step(&mut stream, id)).collect();
    let mut rest = String::new();
    stream.finish(&mut rest);
    (steps, rest)
}

fn step(stream: &mut DecodeStream, id: u32) -> Option<String> {
    let mut text = String::new();
    stream.push(id, &mut text);
    (!text.is_empty()).then_some(text)
}

#[test]
fn every_step_equals_the_oracle() {
    let golden = fixture_json("http/detokenize.json");
    let encoded = fixture_json("http/tokenize.json");
    for model in REAL_MODELS {
        let Some(tokenizer) = real_tokenizer(model, Backend::Fast) else { continue };
        let cases = golden["models"][model].as_array().unwrap();
        assert!(cases.len() > 32, "{model}");
        for case in cases {
            let ids = match case["text"].as_str() {
                Some(name) => &encoded["models"][model]["ids"][name],
                None => &case["ids"],
            };
            let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
            let (got, rest) = steps(&tokenizer, &ids, case["skip_special_tokens"].as_bool().unwrap());
            let expected: Vec<Option<String>> = serde_json::from_value(case["steps"].clone()).unwrap();
            assert_eq!(got, expected, "{model} {}", case["text"]);
            let full = got.into_iter().flatten().collect::<String>() + &rest;
            assert_eq!(Value::from(full), case["full"], "{model} {}", case["text"]);
        }
    }
}

#[test]
fn a_character_split_over_several_tokens_comes_out_whole() {
    let tokenizer = tiny_tokenizer("tiny-chatml", Backend::Fast);
    let ids: Vec<u32> = "ok \u{1F600} \u{e9}\u{4f60}".bytes().map(u32::from).collect();
    let (got, rest) = steps(&tokenizer, &ids, true);
    assert!(got.iter().flatten().all(|text| !text.contains('\u{FFFD}')));
    assert_eq!(got.into_iter().flatten().collect::<String>(), "ok \u{1F600} \u{e9}\u{4f60}");
    assert_eq!(rest, "");
}

#[test]
fn what_is_held_back_is_flushed_at_the_end() {
    let tokenizer = tiny_tokenizer("tiny-chatml", Backend::Fast);
    let mut stream = tokenizer.decode_stream(&[], true);
    let mut text = String::new();
    stream.push_all(&[97, 240, 159], &mut text);
    assert_eq!((text.as_str(), stream.pending_bytes()), ("a", 2));
    stream.finish(&mut text);
    assert_eq!((text.as_str(), stream.pending_bytes()), ("a\u{FFFD}", 0));
}

#[test]
fn invalid_bytes_are_held_back_only_up_to_a_bound() {
    let tokenizer = tiny_tokenizer("tiny-chatml", Backend::Fast);
    let mut stream = tokenizer.decode_stream(&[], true);
    let mut text = String::new();
    for _ in 0..10_000 {
        stream.push(255, &mut text);
        assert!(stream.pending_bytes() <= 64);
    }
    // A character that begins right at the bound is not torn.
    stream.push_all(&[0xF0, 0x9F, 0x98, 0x80, 97], &mut text);
    stream.finish(&mut text);
    assert_eq!(text, "\u{FFFD}".repeat(10_000) + "\u{1F600}a");
}

#[test]
fn unknown_ids_are_no_text() {
    let tokenizer = tiny_tokenizer("tiny-chatml", Backend::Fast);
    assert_eq!(steps(&tokenizer, &[97, 100_000, u32::MAX, 98], true).0.len(), 4);
    assert_eq!(tokenizer.decode(&[97, 100_000, u32::MAX, 98], true), "ab");
}

/// Byte-fallback model in the manner of Llama 2: spaces are `▁`, unknown characters are bytes.
fn sentencepiece(decoder: &str, backend: Backend) -> Tokenizer {
    let mut vocab: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
    vocab.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    vocab.extend(["\u{2581}Hello", "\u{2581}", "\u{2581}\u{2581}", "lo", "a"].map(str::to_owned));
    let vocab: serde_json::Map<String, Value> =
        vocab.into_iter().enumerate().map(|(id, token)| (token, id.into())).collect();
    let added = |id: u32, content: &str| {
        serde_json::json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
    };
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "decoder": serde_json::from_str::<Value>(decoder).unwrap(),
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": []},
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).unwrap();
    Tokenizer::load(&path, backend, false).unwrap()
}

const LLAMA2: &str = r#"{"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
    {"type":"Strip","content":" ","start":1,"stop":0}]}"#;
const METASPACE: &str = r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#;
/// A cut at the end of the text cannot be done per token.
const STRIP_END: &str = r#"{"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"Fuse"},
    {"type":"Strip","content":" ","start":0,"stop":1}]}"#;

/// Ids of the model above.
const HELLO: u32 = 259;
const SPACE: u32 = 260;
const TWO_SPACES: u32 = 261;
const LO: u32 = 262;

fn byte(value: u8) -> u32 {
    3 + u32::from(value)
}

/// Compares with the library's own incremental decoder.
fn check_against_library(decoder: &str, ids: &[u32], skip_special: bool) {
    let tokenizer = sentencepiece(decoder, Backend::Hf);
    let mut generic = crate::decode_stream::Window::default();
    let reference: Vec<Option<String>> = ids
        .iter()
        .map(|&id| {
            let mut text = String::new();
            generic.push(&tokenizer, skip_special, id, &mut text);
            (!text.is_empty()).then_some(text)
        })
        .collect();
    assert_eq!(steps(&tokenizer, ids, skip_special).0, reference, "{decoder} {ids:?}");
}

#[test]
fn sentencepiece_rules_agree_with_decoding_whole_sequences() {
    let sequences: [&[u32]; 6] = [
        &[HELLO, HELLO, LO, SPACE, LO],
        &[1, HELLO, SPACE, 2],
        &[SPACE, HELLO, TWO_SPACES, LO],
        &[TWO_SPACES, LO],
        &[LO, byte(0xE4), byte(0xBD), byte(0xA0), LO],
        &[SPACE, SPACE, byte(0xC3), byte(0xA9), 0, LO],
    ];
    for ids in sequences {
        for decoder in [LLAMA2, METASPACE] {
            if decoder == METASPACE && ids.contains(&byte(0xC3)) || ids.contains(&byte(0xE4)) {
                continue;
            }
            check_against_library(decoder, ids, true);
        }
        check_against_library(LLAMA2, ids, false);
    }
}

#[test]
fn bytes_that_are_no_character_count_one_by_one_in_byte_fallback_models() {
    for backend in [Backend::Fast, Backend::Hf] {
        let tokenizer = sentencepiece(LLAMA2, backend);
        let ids = [LO, byte(0xE4), byte(0xBD), LO];
        let (got, rest) = steps(&tokenizer, &ids, true);
        assert_eq!(got, [Some("lo".into()), None, None, Some("\u{FFFD}\u{FFFD}lo".into())]);
        assert_eq!(rest, "");
    }
}

#[test]
fn a_leading_space_is_dropped_only_at_the_start_of_the_text() {
    for (decoder, start) in [(LLAMA2, "Hello"), (METASPACE, "Hello"), (STRIP_END, " Hello")] {
        let tokenizer = sentencepiece(decoder, Backend::Hf);
        for (prompt, expected) in [(&[][..], start), (&[1][..], start), (&[1, LO][..], " Hello")] {
            let mut text = String::new();
            let mut stream = tokenizer.decode_stream(prompt, true);
            stream.push_all(&[HELLO, LO], &mut text);
            stream.finish(&mut text);
            assert_eq!(text, format!("{expected}lo"), "{decoder} {prompt:?}");
        }
    }
}

#[test]
fn decoders_without_a_rule_per_token_are_asked_for_whole_sequences() {
    let tokenizer = sentencepiece(STRIP_END, Backend::Hf);
    assert!(tokenizer.inner.detokenizer.plan().is_none());
    let mut text = String::new();
    let mut stream = tokenizer.decode_stream(&[LO], true);
    stream.push_all(&[HELLO, SPACE, HELLO], &mut text);
    stream.finish(&mut text);
    assert_eq!(text, " Hello  Hello");
    assert_eq!(tokenizer.id_to_bytes(LO), Some(&b"lo"[..]));
}
