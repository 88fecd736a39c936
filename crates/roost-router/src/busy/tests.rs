use super::*;

#[test]
fn each_threshold_is_exceeded_only_above_its_value() {
    let thresholds = BusyThresholds {
        active_decode_blocks: Some(0.5),
        active_prefill_tokens: Some(1000),
        active_prefill_tokens_frac: Some(2.0),
    };
    let rank = RankUse {
        prefill_tokens: 1000,
        booked_blocks: 50,
        reported_blocks: Some(50),
        total_blocks: Some(100),
        max_batched_tokens: Some(500),
    };
    assert!(!thresholds.is_busy(rank));
    assert!(thresholds.is_busy(RankUse { prefill_tokens: 1001, ..rank }));
    assert!(thresholds.is_busy(RankUse { max_batched_tokens: Some(499), ..rank }));
    assert!(thresholds.is_busy(RankUse { booked_blocks: 51, ..rank }));
    assert!(thresholds.is_busy(RankUse { reported_blocks: Some(51), ..rank }));
    assert!(!BusyThresholds::default().is_busy(RankUse { booked_blocks: 1_000_000, ..rank }));
}

#[test]
fn unknown_sizes_do_not_make_a_rank_busy() {
    let thresholds = BusyThresholds {
        active_decode_blocks: Some(0.0),
        active_prefill_tokens_frac: Some(1.0),
        ..BusyThresholds::default()
    };
    let rank = RankUse { prefill_tokens: 10_000_000, booked_blocks: 9, ..RankUse::default() };
    assert!(!thresholds.is_busy(rank));
    assert!(thresholds.is_busy(RankUse { prefill_tokens: 10_000_001, ..rank }));
}

#[test]
fn ranges_are_checked() {
    let blocks = |value| BusyThresholds { active_decode_blocks: Some(value), ..BusyThresholds::default() };
    let frac =
        |value| BusyThresholds { active_prefill_tokens_frac: Some(value), ..BusyThresholds::default() };
    assert!(blocks(0.0).validate().is_ok() && blocks(1.0).validate().is_ok() && frac(9.0).validate().is_ok());
    for wrong in [blocks(1.01), blocks(-0.1), blocks(f64::NAN), frac(-1.0), frac(f64::INFINITY)] {
        assert!(wrong.validate().is_err());
    }
}
