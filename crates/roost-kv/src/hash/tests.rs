use serde_json::Value;

use super::*;
use crate::fixtures::{array, hash, hashes, tokens, uint};

fn vectors() -> Value {
    crate::fixtures::load("routing/hashes.json")
}

#[test]
fn blocks_and_sequences_are_those_of_the_peer() {
    for case in array(&vectors()["blocks"]) {
        let local = block_hashes(&tokens(&case["tokens"]), uint(&case["block_size"]), BASE_SEED);
        assert_eq!(local, hashes(&case["local"], BlockHash), "local of {}", case["name"]);
        let sequence = sequence_hashes(&local);
        assert_eq!(sequence, hashes(&case["sequence"], SequenceHash), "sequence of {}", case["name"]);
    }
}

#[test]
fn namespaces_have_the_seeds_of_the_peer() {
    for case in array(&vectors()["namespaces"]) {
        let seed = seed(case["lora_name"].as_str(), case["cache_salt"].as_str());
        assert_eq!(seed.to_string(), case["seed"].as_str().unwrap());
        let local = block_hashes(&tokens(&case["tokens"]), uint(&case["block_size"]), seed);
        assert_eq!(local, hashes(&case["local"], BlockHash));
        assert_eq!(sequence_hashes(&local), hashes(&case["sequence"], SequenceHash));
    }
}

#[test]
fn eagle_windows_are_those_of_the_peer() {
    for case in array(&vectors()["eagle_windows"]) {
        let local = eagle_block_hashes(&tokens(&case["tokens"]), uint(&case["block_size"]), BASE_SEED);
        assert_eq!(local, hashes(&case["local"], BlockHash), "{} tokens", array(&case["tokens"]).len());
    }
}

#[test]
fn multimodal_blocks_are_those_of_the_peer() {
    for case in array(&vectors()["multimodal"]) {
        let objects: Vec<Vec<u64>> = array(&case["block_mm_hashes"])
            .iter()
            .map(|block| block.as_array().into_iter().flatten().map(hash).collect())
            .collect();
        let local = multimodal::block_hashes(
            &tokens(&case["tokens"]),
            uint(&case["block_size"]),
            BASE_SEED,
            &objects,
        );
        assert_eq!(local, hashes(&case["local"], BlockHash), "{}", case["name"]);
    }
}

#[test]
fn object_names_and_pad_values_are_those_of_the_peer() {
    for case in array(&vectors()["mm_identifier_hash"]) {
        let wanted = (!case["mm_hash"].is_null()).then(|| hash(&case["mm_hash"]));
        assert_eq!(multimodal::object_hash(case["identifier"].as_str().unwrap()), wanted);
    }
    for case in array(&vectors()["mm_pad_value"]) {
        assert_eq!(multimodal::pad_value(hash(&case["mm_hash"])), uint(&case["pad_value"]));
    }
}

#[test]
fn a_block_size_of_zero_has_no_blocks() {
    assert!(block_hashes(&[1, 2, 3], 0, BASE_SEED).is_empty());
    assert!(eagle_block_hashes(&[1, 2, 3], 0, BASE_SEED).is_empty());
    assert!(multimodal::block_hashes(&[1, 2, 3], 0, BASE_SEED, &[]).is_empty());
}
