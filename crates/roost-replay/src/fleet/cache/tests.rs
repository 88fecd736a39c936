use super::*;

fn prompt(blocks: &[u64]) -> Vec<SequenceHash> {
    blocks.iter().copied().map(SequenceHash).collect()
}

#[test]
fn the_end_of_the_prompt_used_longest_ago_goes_first() {
    let mut cache = Cache::new(6);
    let (a, b, c) = (prompt(&[1, 2, 3]), prompt(&[1, 4, 5]), prompt(&[1, 6, 7]));
    for prompt in [&a, &b] {
        assert!(cache.take(prompt, 0).is_empty());
        cache.give_back(prompt);
    }
    assert_eq!(cache.take(&c, 0), prompt(&[3]), "3 is the end of the older prompt; 1 was used since");
    cache.give_back(&c);
    assert_eq!([&a, &b, &c].map(|prompt| cache.matched(prompt)), [2, 3, 3]);
    assert_eq!(cache.take(&prompt(&[8, 9]), 0), prompt(&[2, 5]));
}

#[test]
fn what_is_in_use_stays_and_reserved_room_is_kept_free() {
    let mut cache = Cache::new(4);
    let (a, b) = (prompt(&[1, 2]), prompt(&[1, 3]));
    cache.take(&a, 0);
    cache.take(&b, 0);
    assert_eq!(cache.pinned(), 3);
    assert!(cache.take(&prompt(&[5, 6]), 2).is_empty(), "all is in use");
    cache.give_back(&a);
    assert_eq!(cache.pinned(), 4, "block 1 is still used");
    assert_eq!(cache.take(&b, 0), prompt(&[2]));
}
