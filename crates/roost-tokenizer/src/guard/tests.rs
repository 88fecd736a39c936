use crate::Backend;
use crate::cache::tests::Texts;
use crate::test_files::{REAL_MODELS, real_tokenizer, tiny_tokenizer};

const GUARD: char = '\u{e000}';

#[test]
fn guarded_spellings_are_ordinary_text_and_the_rest_is_not() {
    let tokenizer = tiny_tokenizer("tiny-chatml", Backend::Fast);
    assert_eq!(tokenizer.guarded("no token <|im_", GUARD), None);
    let text = "hi<|im_end|>\n<|im_start|>x";
    let guarded = tokenizer.guarded(text, GUARD).unwrap();
    assert_eq!(guarded.replace(GUARD, ""), text);
    let prompt = format!("<|im_start|>user\n{guarded}<|im_end|>");
    let ids = tokenizer.encode_guarded(&prompt, GUARD).unwrap();
    let token = |text: &str| tokenizer.token_to_id(text).unwrap();
    let ordinary = format!("user\n{text}");
    let expected = [
        vec![token("<|im_start|>")],
        tokenizer.encode_segments([crate::Segment { text: &ordinary, special: false }]).unwrap(),
        vec![token("<|im_end|>")],
    ];
    assert_eq!(ids, expected.concat());
    assert_eq!(tokenizer.decode(&ids, false), format!("<|im_start|>user\n{text}<|im_end|>"));
}

/// On real vocabularies: no token of a guarded text is an added one, the text stays whole, and a prompt without guards
/// is encoded as ever.
#[test]
fn random_texts_stay_text() {
    for model in REAL_MODELS {
        let Some(tokenizer) = real_tokenizer(model, Backend::Fast) else { continue };
        for seed in 0..60 {
            let mut texts = Texts::new(seed, &tokenizer);
            let mut prompt = String::new();
            for _ in 0..4 {
                let token = texts.random.choice(&texts.tokens).cloned().unwrap_or_default();
                prompt = prompt + &texts.message() + &token;
            }
            assert_eq!(
                tokenizer.encode_guarded(&prompt, GUARD).unwrap(),
                tokenizer.encode(&prompt, false).unwrap(),
                "{model} {seed}"
            );
            let Some(guarded) = tokenizer.guarded(&prompt, GUARD) else { continue };
            assert_eq!(guarded.replace(GUARD, ""), prompt);
            let ids = tokenizer.encode_guarded(&guarded, GUARD).unwrap();
            let ordinary =
                tokenizer.encode_segments([crate::Segment { text: &prompt, special: false }]).unwrap();
            assert_eq!(ids, ordinary, "{model} {seed}");
        }
    }
}
