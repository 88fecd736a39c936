use proptest::prelude::*;

use super::*;
use crate::fixtures::{array, hashes, tokens, uint};
use crate::hash::{BASE_SEED, sequence_hashes};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn extending_equals_computing(
        tokens in prop::collection::vec(any::<u32>(), 0..200),
        cut in 0_usize..=200,
        cut_as in cuts(0..20),
        seed in any::<u64>(),
    ) {
        let before = &tokens[..cut.min(tokens.len())];
        let prev = Blocks::compute(before, cut_as, seed);
        prop_assert_eq!(Blocks::extend(&prev, &tokens), Blocks::compute(&tokens, cut_as, seed));
    }

    #[test]
    fn extending_a_diverged_prompt_keeps_only_the_shared_blocks(
        tokens in prop::collection::vec(0_u32..4, 0..100),
        other in prop::collection::vec(0_u32..4, 0..100),
        cut_as in cuts(1..9),
    ) {
        let shared = tokens.iter().zip(&other).take_while(|(a, b)| a == b).count();
        let prev = Blocks::compute(&tokens, cut_as, BASE_SEED);
        let extended = Blocks::extend_shared(&prev, &other, shared);
        prop_assert_eq!(extended, Blocks::compute(&other, cut_as, BASE_SEED));
    }
}

fn cuts(block_sizes: std::ops::Range<u32>) -> impl Strategy<Value = Cut> {
    (block_sizes, any::<bool>()).prop_map(|(block_size, eagle)| Cut { block_size, eagle })
}

#[test]
fn blocks_for_eagle_are_those_of_the_peer() {
    let vectors = crate::fixtures::load("routing/hashes.json");
    for case in array(&vectors["eagle_windows"]) {
        let tokens = tokens(&case["tokens"]);
        let cut = Cut { block_size: uint(&case["block_size"]), eagle: true };
        let blocks = Blocks::compute(&tokens, cut, BASE_SEED);
        assert_eq!(*blocks.local, hashes(&case["local"], BlockHash), "{} tokens", tokens.len());
        assert_eq!(blocks.len(), cut.blocks(tokens.len()));
        assert_eq!(*blocks.sequence, sequence_hashes(&blocks.local));
    }
}

#[test]
fn only_new_blocks_are_hashed() {
    // The old blocks are taken over as they are, even if they are not those of the tokens.
    let prev = Blocks::compute(&[9; 32], 16, BASE_SEED);
    let extended = Blocks::extend(&prev, &[1; 64]);
    assert_eq!(extended.local[..2], prev.local[..]);
    assert_eq!(extended.sequence[..2], prev.sequence[..]);
    assert_eq!(extended.len(), 4);
}

#[test]
fn an_unchanged_prompt_is_not_copied() {
    let prev = Blocks::compute(&[9; 40], 16, BASE_SEED);
    let extended = Blocks::extend(&prev, &[9; 41]);
    assert!(Arc::ptr_eq(&extended.sequence, &prev.sequence));
}
