use super::{Act, compile, reserved_tokens};
use crate::mock::TextCodec;
use crate::{Role, Script, Step};

#[test]
fn a_prefill_engine_only_pauses_and_fails() {
    let pause = std::time::Duration::from_secs(1);
    let script =
        Script::new([Step::sleep(pause), Step::text("x"), Step::raise("boom"), Step::finish("stop")]);
    let acts = compile(&script, Role::Prefill, &TextCodec::tiny_chat(), 10).unwrap();
    assert!(matches!(acts[..], [Act::Pause(_), Act::Fail(_)]), "{acts:?}");
}

#[test]
fn chunks_are_separated_by_gaps_only() {
    let gap = std::time::Duration::from_millis(5);
    let script = Script::new([Step::text("abcde").paced(2, gap)]);
    let acts = compile(&script, Role::Decode, &TextCodec::tiny_chat(), 10).unwrap();
    let kinds: Vec<usize> =
        acts.iter().map(|act| if let Act::Emit { ids, .. } = act { ids.len() } else { 0 }).collect();
    assert_eq!(kinds, [2, 0, 2, 0, 1]);
    assert_eq!(reserved_tokens(&acts), 5);
}

#[test]
fn nonsense_in_a_script_fails_the_request() {
    let codec = TextCodec::tiny_chat();
    assert!(compile(&Script::new([Step::finish("tired")]), Role::Aggregated, &codec, 10).is_err());
    let raw = Step { raw: Some(serde_json::json!({"token_ids": "abc"})), ..Step::default() };
    assert!(compile(&Script::new([raw]), Role::Aggregated, &codec, 10).is_err());
}
