use std::sync::Arc;

use super::SegmentCache;
use crate::test_files::{REAL_MODELS, real_tokenizer, tiny_tokenizer};
use crate::{Backend, Segment, Tokenizer};

/// Pieces that like to merge with what stands beside them.
const PIECES: [&str; 22] = [
    " ",
    "\n",
    "\n\n",
    "\t",
    "  ",
    " the",
    "the ",
    "e\u{301}",
    "\u{301}",
    "'s",
    "don't",
    "12",
    "3456",
    "漢字",
    "😀",
    "\u{200d}",
    "fn main() {\n    let x = 1;\n",
    "</",
    "<|",
    "|>",
    "<",
    "ſ",
];

pub(crate) struct Texts {
    pub(crate) random: fastrand::Rng,
    pub(crate) tokens: Vec<String>,
}

impl Texts {
    pub(crate) fn new(seed: u64, tokenizer: &Tokenizer) -> Self {
        let tokens = tokenizer.inner.encoder.added_tokens().into_iter().map(|token| token.content).collect();
        Self { random: fastrand::Rng::with_seed(seed), tokens }
    }

    /// A message: pieces, spellings of control tokens, broken spellings, and now and then a long run.
    pub(crate) fn message(&mut self) -> String {
        let random = &mut self.random;
        let mut text = String::new();
        for _ in 0..random.usize(..30) {
            match random.u8(..12) {
                0 => text += random.choice(&self.tokens).map_or("", String::as_str),
                1 => {
                    let token = random.choice(&self.tokens).map_or("", String::as_str);
                    text.extend(token.chars().take(random.usize(..6)));
                }
                2 if random.u8(..6) == 0 => {
                    let piece = random.choice(PIECES).unwrap_or_default();
                    text += &piece.repeat(random.usize(..400));
                }
                _ => text += random.choice(PIECES).unwrap_or_default(),
            }
        }
        text
    }
}

/// Growing conversations, branches of them and unrelated texts give the ids of a fresh encode, warm and cold, within
/// the budget.
fn check(
    name: &str,
    plain: &Tokenizer,
    cached: &Tokenizer,
    cache: &SegmentCache,
    budget: usize,
    conversations: u64,
) {
    for seed in 0..conversations {
        let mut texts = Texts::new(seed, plain);
        let mut prompt = String::new();
        for turn in 0..8 {
            let kept = prompt.clone();
            for _ in 0..2 {
                let token = texts.random.choice(&texts.tokens).cloned().unwrap_or_default();
                prompt = prompt + &token + &texts.message();
            }
            let expected = plain.encode(&prompt, false).unwrap();
            assert_eq!(cached.encode(&prompt, false).unwrap(), expected, "{name} {seed} {turn} {prompt:?}");
            assert_eq!(cached.encode(&prompt, true).unwrap(), plain.encode(&prompt, true).unwrap());
            let forged = texts.message();
            let parts = [
                Segment { text: &prompt, special: true },
                Segment { text: &forged, special: false },
                Segment { text: &prompt, special: false },
            ];
            assert_eq!(
                cached.encode_segments(parts).unwrap(),
                plain.encode_segments(parts).unwrap(),
                "{name} {seed} {turn} {forged:?}"
            );
            if texts.random.u8(..5) == 0 {
                prompt = kept;
            }
            assert!(cache.stats().bytes <= budget);
        }
    }
}

#[test]
fn cached_ids_are_the_ids_of_a_fresh_encode() {
    for model in REAL_MODELS {
        let Some(plain) = real_tokenizer(model, Backend::Fast) else { continue };
        for budget in [64 << 20, 200 << 10] {
            let cache = Arc::new(SegmentCache::new(budget));
            let cached = plain.clone().with_cache(Arc::clone(&cache));
            assert!(cached.is_cached());
            check(model, &plain, &cached, &cache, budget, 60);
        }
    }
    for model in ["tiny-bos", "tiny-chatml"] {
        for backend in [Backend::Fast, Backend::Hf] {
            let plain = tiny_tokenizer(model, backend);
            let cache = Arc::new(SegmentCache::new(64 << 10));
            let cached = plain.clone().with_cache(Arc::clone(&cache));
            assert!(cached.is_cached());
            check(model, &plain, &cached, &cache, 64 << 10, 100);
        }
    }
}

#[test]
fn cached_ids_are_those_of_the_other_backend() {
    for model in REAL_MODELS {
        let (Some(fast), Some(hf)) =
            (real_tokenizer(model, Backend::Fast), real_tokenizer(model, Backend::Hf))
        else {
            continue;
        };
        let cache = Arc::new(SegmentCache::new(1 << 20));
        let cached = fast.with_cache(Arc::clone(&cache));
        check(model, &hf, &cached, &cache, 1 << 20, 4);
    }
}

#[test]
fn growing_conversations_hit() {
    let tokenizer = tiny_tokenizer("tiny-chatml", Backend::Fast);
    let cache = Arc::new(SegmentCache::new(1 << 20));
    let tokenizer = tokenizer.with_cache(Arc::clone(&cache));
    let mut prompt = String::new();
    for turn in 0..50 {
        prompt += &format!("<|im_start|>user\n{turn}{}<|im_end|>\n", "word ".repeat(100));
        tokenizer.encode(&prompt, false).unwrap();
    }
    let stats = cache.stats();
    let all = stats.cached_tokens + stats.uncached_tokens;
    assert!(stats.cached_tokens * 10 > all * 9, "{stats:?}");
    let held = stats.bytes as f64 / stats.uncached_tokens as f64;
    assert!(held <= 6.0, "{held} bytes per token");
}

#[test]
fn two_tokenizers_share_a_cache_and_no_ids() {
    let cache = Arc::new(SegmentCache::new(1 << 20));
    let [a, b] = ["tiny-chatml", "tiny-bos"]
        .map(|model| tiny_tokenizer(model, Backend::Fast).with_cache(Arc::clone(&cache)));
    a.encode("same text", false).unwrap();
    b.encode("same text", false).unwrap();
    b.encode_segments([Segment { text: "same text", special: false }]).unwrap();
    assert_eq!((cache.stats().misses, cache.stats().hits), (3, 0));
    b.encode("same text", false).unwrap();
    assert_eq!(cache.stats().hits, 1);
}

#[test]
fn a_full_cache_keeps_what_is_used() {
    let cache = SegmentCache::new(128 << 10);
    let get = |text: String| {
        let mut ids = Vec::new();
        cache.extend(0, &text, &mut ids, || Ok::<_, ()>(text.bytes().map(u32::from).collect())).unwrap();
        assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
    };
    for n in 0..2000 {
        get(format!("{n} {}", "x".repeat(100)));
        get("used all the time".to_owned());
        assert!(cache.stats().bytes <= 128 << 10);
    }
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.hits), (2001, 1999));
    assert!(stats.bytes > 48 << 10, "{stats:?}");
    get("y".repeat(64 << 10));
    assert_eq!(cache.stats().entries, stats.entries, "too large for its share");
}
