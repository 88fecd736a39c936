use super::super::{PackedIds, Packer, PromptTokens};

/// Ids of all lengths.
fn ids(random: &mut fastrand::Rng, count: usize) -> Vec<u32> {
    (0..count).map(|_| random.u32(..) >> random.u32(..32)).collect()
}

fn packed(ids: &[u32]) -> Packer {
    let mut packer = Packer::default();
    packer.put(ids);
    packer
}

fn bytes(ids: &PackedIds) -> Vec<u8> {
    ids.pieces().flat_map(|piece| piece.to_vec()).collect()
}

/// What a MessagePack library writes for the ids, one by one.
fn expected(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| rmp_serde::to_vec(id).unwrap()).collect()
}

#[test]
fn sequences_that_go_on_behind_beginnings_of_others_are_right() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut plain: Vec<u32> = Vec::new();
        let mut sequence = PackedIds::default();
        for _ in 0..60 {
            let keep = if random.u8(..4) == 0 { random.usize(..=plain.len()) } else { plain.len() };
            let offset = expected(&plain[..keep]).len();
            let count = random.usize(..40);
            let more = ids(&mut random, count);
            plain.truncate(keep);
            plain.extend_from_slice(&more);
            sequence = sequence.grown(keep, offset, packed(&more));
            assert_eq!(bytes(&sequence), expected(&plain));
            assert_eq!((sequence.len(), sequence.byte_len()), (plain.len(), expected(&plain).len()));
            assert_eq!(sequence.ids_from(0).collect::<Vec<_>>(), plain);
            let from = random.usize(..=plain.len());
            let rest: Vec<u32> = sequence.ids_from(expected(&plain[..from]).len()).collect();
            assert_eq!(rest, plain[from..]);
            assert!(sequence.pieces().count() <= 16);
            // A third may be held for nothing, and each piece has its own bookkeeping.
            assert!(sequence.memory() <= sequence.byte_len() * 4 / 3 + 16 * 64);
        }
    }
}

#[test]
fn a_packed_prompt_is_its_ids() {
    let mut random = fastrand::Rng::with_seed(1);
    for count in [0, 1, 63, 64, 65, 1000] {
        let ids = ids(&mut random, count);
        let plain = PromptTokens::from(ids.clone());
        let packed = PromptTokens::packed(PackedIds::new(&ids), &ids);
        assert_eq!((packed.len(), packed.is_empty()), (count, count == 0));
        for tokens in [&plain, &packed] {
            assert_eq!(*tokens.tail(), ids[count.saturating_sub(64)..]);
            assert_eq!(tokens[..], ids);
            assert_eq!(bytes(tokens.pack()), expected(&ids));
            assert_eq!(*tokens.tail(), ids[count.saturating_sub(64)..]);
        }
        assert_eq!(plain, packed);
    }
    assert_ne!(PromptTokens::from([1, 2]), PromptTokens::from([1, 3]));
}
