use std::sync::Arc;

use super::EncodedPrompt;
use crate::cache::tests::Texts;
use crate::test_files::{REAL_MODELS, real_tokenizer, tiny_tokenizer};
use crate::{Backend, Segment, SegmentCache, Tokenizer};

fn whole(text: &str) -> [Segment<'_>; 1] {
    [Segment { text, special: true }]
}

/// Prompts that go on behind any place of the prompt before, with random texts and places anywhere, have the ids of a
/// fresh encode. Returns how many of the places had a mark.
fn check(name: &str, plain: &Tokenizer, tokenizer: &Tokenizer, conversations: u64) -> (usize, usize) {
    let mut marked = (0, 0);
    for seed in 0..conversations {
        let mut texts = Texts::new(seed, plain);
        let mut before: Option<(String, Vec<usize>, EncodedPrompt)> = None;
        for turn in 0..8 {
            let mut prompt = String::new();
            let mut places = Vec::new();
            let mut keep = 0;
            if let Some((text, ends, encoded)) = &before {
                let usable: Vec<usize> = (0..ends.len()).filter(|at| encoded.marks[*at].is_some()).collect();
                if let Some(at) = texts.random.choice(usable) {
                    keep = at + 1;
                    places.extend_from_slice(&ends[..keep]);
                    prompt.push_str(&text[..ends[at]]);
                }
            }
            let kept = prompt.len();
            for _ in 0..texts.random.usize(1..4) {
                let token = texts.random.choice(&texts.tokens).cloned().unwrap_or_default();
                prompt = prompt + &texts.message() + &token + ["", "\n"][texts.random.usize(..2)];
                places.push(prompt.len());
                if texts.random.u8(..3) == 0 {
                    // Somewhere in the middle of things.
                    prompt = prompt + &texts.message();
                    places.push(prompt.len());
                }
            }
            let previous = before.as_ref().filter(|_| keep > 0).map(|(.., prompt)| prompt);
            let mark = previous.and_then(|prompt| prompt.marks[keep - 1].as_ref());
            let mut encoded = tokenizer
                .encode_prompt(mark, whole(&prompt[kept..]), places[keep..].iter().map(|place| place - kept))
                .unwrap();
            if let (Some(previous), Some(mark)) = (previous, mark) {
                encoded.ids = [&previous.ids[..mark.tokens()], &encoded.ids].concat();
                encoded.marks = [&previous.marks[..keep], &encoded.marks].concat();
            }
            assert_eq!(
                encoded.ids[..],
                plain.encode(&prompt, false).unwrap(),
                "{name} {seed} {turn} {prompt:?}"
            );
            assert_eq!(encoded.marks.len(), places.len());
            marked.0 += encoded.marks.iter().flatten().count();
            marked.1 += places.len();
            before = Some((prompt, places, encoded));
        }
    }
    marked
}

#[test]
fn continued_ids_are_the_ids_of_a_fresh_encode() {
    for model in REAL_MODELS {
        let Some(plain) = real_tokenizer(model, Backend::Fast) else { continue };
        let cached = plain.clone().with_cache(Arc::new(SegmentCache::new(1 << 20)));
        for tokenizer in [&plain, &cached] {
            let (marked, places) = check(model, &plain, tokenizer, 40);
            assert!(marked * 2 > places, "{model}: {marked} of {places}");
        }
        let Some(hf) = real_tokenizer(model, Backend::Hf) else { continue };
        check(model, &hf, &cached, 4);
    }
    let plain = tiny_tokenizer("tiny-chatml", Backend::Fast);
    let (marked, places) = check("tiny-chatml", &plain, &plain, 40);
    assert!(marked * 2 > places, "{marked} of {places}");
}

#[test]
fn without_safe_cuts_there_are_no_marks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let file = std::fs::read_to_string(crate::test_files::tiny_path("tiny-chatml")).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&file).unwrap();
    file["added_tokens"][2]["lstrip"] = true.into();
    std::fs::write(&path, file.to_string()).unwrap();
    let tokenizer = Tokenizer::load(&path, Backend::Hf, false).unwrap();
    let text = "<|im_start|>a<|im_end|>\n";
    let encoded = tokenizer.encode_prompt(None, whole(text), [text.len()]).unwrap();
    assert_eq!(encoded.marks, [None]);
    assert_eq!(encoded.ids[..], tokenizer.encode(text, false).unwrap());
}

/// A token that may become a longer one is no place to go on.
#[test]
fn a_token_that_begins_another_is_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let file = std::fs::read_to_string(crate::test_files::tiny_path("tiny-chatml")).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&file).unwrap();
    file["added_tokens"][3]["content"] = "<|im_end|>>".into();
    file["added_tokens"][4]["content"] = "xx".into();
    file["added_tokens"][4]["normalized"] = true.into();
    file["added_tokens"][5]["content"] = "x>y".into();
    std::fs::write(&path, file.to_string()).unwrap();
    let tokenizer = Tokenizer::load(&path, Backend::Hf, false).unwrap();
    let padding = "p".repeat(100);
    for (first, rest) in [("<|im_end|>", ">"), ("xx", ">y"), ("<|im_start|>", ">")] {
        let text = padding.clone() + first;
        let encoded = tokenizer.encode_prompt(None, whole(&text), [text.len()]).unwrap();
        assert_eq!(encoded.marks[0].is_some(), first == "<|im_start|>", "{first}");
        if let Some(mark) = &encoded.marks[0] {
            let rest_ids = tokenizer.encode_prompt(Some(mark), whole(rest), []).unwrap().ids;
            let ids = [&encoded.ids[..mark.tokens()], &rest_ids].concat();
            assert_eq!(ids, tokenizer.encode(&(text + rest), false).unwrap());
        }
    }
}
