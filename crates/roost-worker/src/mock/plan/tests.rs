use roost_wire::message::FinishReason;

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
fn what_is_repeated_is_not_written_out() {
    let repeat =
        |times, per| Step { text_repeat: Some(("ab".to_owned(), times)), per: Some(per), ..Step::default() };
    let shape = |step: Step, limit: usize| -> Vec<(usize, usize)> {
        let acts = compile(
            &Script::new([step, Step::finish("stop")]),
            Role::Aggregated,
            &TextCodec::tiny_chat(),
            limit,
        );
        let shape = |act: &Act| match act {
            Act::Emit { ids, times, .. } => (ids.len(), *times),
            Act::Finish { reason, .. } => (usize::from(*reason == FinishReason::Length), 0),
            other => panic!("{other:?}"),
        };
        acts.unwrap().iter().map(shape).collect()
    };
    assert_eq!(shape(repeat(1_000_000, 30), usize::MAX), [(30, 66_666), (20, 1), (0, 0)]);
    assert_eq!(shape(repeat(100, 30), 65), [(30, 2), (5, 1), (1, 0)], "the limit cuts it");
    assert_eq!(shape(repeat(30, 30), 60), [(30, 2), (1, 0)]);
    // Items that cut a repetition are written out.
    assert_eq!(shape(repeat(3, 5), 10), [(5, 1), (1, 1), (0, 0)]);
}

#[test]
fn nonsense_in_a_script_fails_the_request() {
    let codec = TextCodec::tiny_chat();
    assert!(compile(&Script::new([Step::finish("tired")]), Role::Aggregated, &codec, 10).is_err());
    let raw = Step { raw: Some(serde_json::json!({"token_ids": "abc"})), ..Step::default() };
    assert!(compile(&Script::new([raw]), Role::Aggregated, &codec, 10).is_err());
}
