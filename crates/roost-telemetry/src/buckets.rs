//! Upper bounds of histogram buckets.

/// Bounds at equal ratios from `min` to `max`, rounded to two significant digits, the first one replaced by 0: the
/// form of the sets that `DYN_METRICS_*_{MIN,MAX,COUNT}` describe. Bounds that become equal by rounding are given once.
///
/// # Panics
/// If not `0 < min < max`, or if `count` is below 2: the option table does not let such values through.
pub fn logarithmic(min: f64, max: f64, count: usize) -> Vec<f64> {
    assert!(0.0 < min && min < max && count >= 2, "bounds of {count} buckets from {min} to {max}");
    let last = count - 1;
    let mut bounds = vec![0.0];
    for step in 1..=last {
        let fraction = step as f64 / last as f64;
        bounds.push(two_digits(min * (max / min).powf(fraction)));
    }
    bounds.dedup();
    bounds
}

/// `count` bounds, each `factor` times the one before.
pub fn exponential(start: f64, factor: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |bound| Some(bound * factor)).take(count).collect()
}

/// `count` bounds, `width` apart.
pub fn linear(start: f64, width: f64, count: usize) -> Vec<f64> {
    (0..count).map(|step| start + width * step as f64).collect()
}

/// The nearest number with two significant digits. By way of text, because that is how it will be written: a product
/// of powers of ten would end in noise such as 0.0047000000000000002.
fn two_digits(value: f64) -> f64 {
    format!("{value:.1e}").parse().expect("a formatted number is a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds of a family as the peer exports them, without the infinite one.
    fn peer(name: &str) -> Vec<f64> {
        let text =
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/http/metrics.json"));
        let fixture: serde_json::Value = serde_json::from_str(text).expect("the fixture is JSON");
        let families = fixture["metrics"].as_array().expect("a list of families");
        let family =
            families.iter().find(|family| family["name"] == name).expect("the family is in the fixture");
        let bounds = family["buckets"].as_array().expect("the family is a histogram");
        bounds
            .iter()
            .filter_map(|bound| bound.as_str()?.parse().ok())
            .filter(|bound: &f64| bound.is_finite())
            .collect()
    }

    #[test]
    fn logarithmic_sets_are_the_peers() {
        let cases = [
            ("dynamo_frontend_request_duration_seconds", 1.0, 512.0, 10),
            ("dynamo_frontend_time_to_first_token_seconds", 0.001, 480.0, 18),
            ("dynamo_frontend_inter_token_latency_seconds", 0.001, 80.0, 20),
            ("dynamo_frontend_input_sequence_tokens", 50.0, 128_000.0, 12),
            ("dynamo_frontend_output_sequence_tokens", 50.0, 32_000.0, 10),
            ("dynamo_component_router_inter_token_latency_seconds", 0.001, 2.0, 13),
            ("dynamo_component_router_kv_transfer_estimated_latency_seconds", 0.001, 10.0, 15),
        ];
        for (name, min, max, count) in cases {
            assert_eq!(logarithmic(min, max, count), peer(name), "{name}");
        }
    }

    #[test]
    fn exponential_and_linear_sets_are_the_peers() {
        assert_eq!(exponential(0.001, 2.0, 15), peer("dynamo_router_overhead_block_hashing_ms"));
        assert_eq!(exponential(0.01, 3.0, 17), peer("dynamo_router_overhead_total_ms"));
        assert_eq!(exponential(0.25, 2.0, 16), peer("dynamo_component_router_overlap_blocks_lost"));
        assert_eq!(linear(0.0, 0.05, 21), peer("dynamo_component_router_kv_hit_rate"));
    }

    #[test]
    fn bounds_that_fall_together_are_given_once() {
        let bounds = logarithmic(1.0, 1.2, 10);
        assert_eq!(bounds, [0.0, 1.0, 1.1, 1.2]);
    }
}
