use std::time::Duration;

use roost_kv::BlockHash;
use roost_replay::Start;
use serde_json::Value;

use super::*;

fn turn(kept: u32, content: Content) -> Turn {
    Turn { start: Start::After(Duration::ZERO), prompt_tokens: 0, output_tokens: 1, kept, content }
}

fn given(blocks: &[u64]) -> Content {
    Content::Given(blocks.iter().map(|block| BlockHash(*block)).collect())
}

fn json(conversation: &Conversation) -> Value {
    let mut out = Vec::new();
    conversation.write(&mut out);
    serde_json::from_slice(&out).expect("messages are JSON")
}

fn text(conversation: &Conversation) -> String {
    json(conversation).as_array().expect("a list").iter().filter_map(|one| one["content"].as_str()).collect()
}

fn roles(conversation: &Conversation) -> Vec<String> {
    let messages = json(conversation);
    messages.as_array().expect("a list").iter().map(|one| one["role"].to_string().replace('"', "")).collect()
}

#[test]
fn the_next_turn_begins_with_the_one_before() {
    let mut session = Conversation::new(0, 16, 5);
    session.next(&turn(0, given(&[1, 2, 3])), 2, 0);
    assert_eq!(roles(&session), ["system", "user"]);
    let first = json(&session);
    session.next(&turn(3, Content::Fresh(4)), 0, 1);
    assert_eq!(roles(&session), ["system", "user", "assistant", "user"]);
    let second = json(&session);
    assert_eq!(second[0], first[0]);
    assert_eq!(second[1], first[1]);
}

#[test]
fn equal_blocks_are_equal_text_across_sessions_and_unequal_ones_are_not() {
    let start = |session, salt, last| {
        let mut conversation = Conversation::new(session, 16, salt);
        conversation.next(&turn(0, given(&[1, 2, last])), 2, 0);
        json(&conversation)
    };
    assert_eq!(start(0, 5, 3)[0], start(1, 5, 4)[0]);
    assert_ne!(start(0, 5, 3)[1], start(1, 5, 4)[1]);
    assert_ne!(start(0, 5, 3)[0], start(0, 6, 3)[0], "another run has other text");
}

#[test]
fn what_is_not_kept_is_cut_at_its_block() {
    let mut session = Conversation::new(0, 16, 0);
    session.next(&turn(0, given(&[1, 2, 3, 4])), 1, 0);
    let before = text(&session);
    session.next(&turn(2, given(&[9])), 0, 0);
    assert_eq!(roles(&session), ["system", "user", "user"]);
    let after = text(&session);
    let common = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    let block = before.len() / 4;
    assert!(common >= 2 * block - block / 2 && common < 3 * block, "{common} of {}", before.len());
}

#[test]
fn a_fork_begins_like_its_parent() {
    let mut parent = Conversation::new(0, 16, 0);
    parent.next(&turn(0, given(&[1, 2, 3, 4])), 1, 0);
    let mut child = parent.fork(1, 3);
    child.next(&turn(3, Content::Fresh(1)), 0, 0);
    let (parent, child) = (text(&parent), text(&child));
    assert!(child.starts_with(&parent[..parent.len() / 2]));
    assert_ne!(parent, child);
}
