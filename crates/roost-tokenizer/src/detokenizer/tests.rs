use serde_json::json;

use super::plan::{InvalidBytes, Plan};

fn bytes(plan: &Plan, token: &str, first: bool) -> Vec<u8> {
    let mut out = Vec::new();
    plan.bytes(token, first, &mut out);
    out
}

#[test]
fn byte_level_alphabet_is_complete_and_one_to_one() {
    let plan = Plan::from_json(&json!({"type": "ByteLevel"})).unwrap();
    assert_eq!(plan.invalid, InvalidBytes::PerSequence);
    let mut seen: Vec<u8> =
        ('\u{21}'..='\u{143}').flat_map(|c| bytes(&plan, &c.to_string(), false)).collect();
    // Characters outside the alphabet stand for their own spelling, which has two bytes.
    let outside = ('\u{7F}'..='\u{A0}').count() + 1;
    assert_eq!(seen.len(), 256 + 2 * outside - 1);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 256);
    assert_eq!(bytes(&plan, "\u{120}a", false), b" a");
    assert_eq!(bytes(&plan, "\u{10A}", false), b"\n");
}

#[test]
fn an_added_token_outside_the_alphabet_stands_for_itself() {
    let plan = Plan::from_json(&json!({"type": "ByteLevel"})).unwrap();
    for token in ["<\u{FF5C}User\u{FF5C}>", "<|a b|>"] {
        assert_eq!(bytes(&plan, token, false), token.as_bytes());
    }
}

#[test]
fn sequences_without_a_rule_per_token_are_refused() {
    let word_piece = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    let strip_end = json!({"type": "Strip", "content": " ", "start": 0, "stop": 1});
    let regex = json!({"type": "Replace", "pattern": {"Regex": "x"}, "content": ""});
    let fuse = json!({"type": "Fuse"});
    let replace = json!({"type": "Replace", "pattern": {"String": "x"}, "content": ""});
    for decoders in [vec![word_piece], vec![strip_end], vec![regex], vec![fuse, replace]] {
        assert_eq!(Plan::from_json(&json!({"type": "Sequence", "decoders": decoders})), None);
    }
}

#[test]
fn a_cut_before_fusing_applies_to_every_token() {
    let plan = Plan::from_json(&json!({"type": "Sequence", "decoders": [
        {"type": "Strip", "content": "_", "start": 2, "stop": 0}, {"type": "Fuse"},
    ]}))
    .unwrap();
    assert_eq!(plan.strip_start, None);
    assert_eq!(bytes(&plan, "___a_", false), b"_a_");
}
