//! Cases of dynamo-kv-router 1.6.1's own tests of the policy and of its gate, and the edges between them.

use super::*;

fn outlook(prompt_tokens: u32, cached_tokens: u32) -> Outlook {
    Outlook { prompt_tokens, cached_tokens, prefill_busy: None, decode_blocks: 0, decode_capacity: None }
}

fn by(policy: LocalPrefillPolicy) -> LocalPrefill {
    LocalPrefill { policy, ..LocalPrefill::default() }
}

#[test]
fn few_new_tokens_that_are_a_small_part() {
    let usual = LocalPrefill::default();
    for (prompt, cached, expected) in [
        (1000, 14 * 64, true),
        // All is new: few tokens, and the whole of the prompt.
        (200, 0, false),
        (0, 0, true),
        (500, 10 * 64, true),
        (1000, 301, true),
        (1000, 300, false),
        (10_000, 10_000 - 2047, true),
        (10_000, 10_000 - 2048, false),
    ] {
        assert_eq!(usual.decide(&outlook(prompt, cached)), expected, "{cached} of {prompt}");
    }
    let wide = LocalPrefill { new_share: 0.99, ..usual };
    for (prompt, cached, expected) in
        [(100_000, 64_000, false), (2048, 0, false), (2100, 48, false), (2100, 64, true)]
    {
        assert_eq!(wide.decide(&outlook(prompt, cached)), expected, "{cached} of {prompt}");
    }
}

#[test]
fn a_busy_prefill_worker() {
    use LocalPrefillPolicy::{NewTokens, NewTokensOrLoad, PrefillLoad};
    let small = outlook(1000, 14 * 64);
    let large = outlook(100_000, 0);
    for (policy, prompt, busy, expected) in [
        (PrefillLoad, large, None, false),
        (PrefillLoad, large, Some(false), false),
        (PrefillLoad, large, Some(true), true),
        (PrefillLoad, small, Some(false), false),
        (NewTokens, large, Some(true), false),
        (NewTokensOrLoad, large, Some(true), true),
        (NewTokensOrLoad, large, Some(false), false),
        (NewTokensOrLoad, large, None, false),
        (NewTokensOrLoad, small, Some(false), true),
        (NewTokensOrLoad, small, None, true),
    ] {
        let outlook = Outlook { prefill_busy: busy, ..prompt };
        assert_eq!(by(policy).decide(&outlook), expected, "{policy:?} {busy:?} {prompt:?}");
    }
    assert!(!by(PrefillLoad).asks_for_prefill_load(), "without a line nobody is over it");
    let line = LocalPrefill { prefill_busy: Some(0.5), ..by(PrefillLoad) };
    assert!(line.asks_for_prefill_load());
    assert!(!LocalPrefill { prefill_busy: Some(0.5), ..by(NewTokens) }.asks_for_prefill_load());
}

#[test]
fn a_busy_decode_worker_is_left_alone() {
    let limited = LocalPrefill { decode_busy: Some(0.5), ..LocalPrefill::default() };
    let with =
        |decode_blocks, decode_capacity| Outlook { decode_blocks, decode_capacity, ..outlook(1000, 900) };
    assert!(limited.decide(&with(50, Some(100))));
    assert!(!limited.decide(&with(51, Some(100))));
    assert!(!limited.decide(&with(0, None)), "not known");
    assert!(LocalPrefill::default().decide(&with(1000, Some(1))), "no limit");
    assert!(!limited.decide(&Outlook { cached_tokens: 0, ..with(0, Some(100)) }), "a limit wants nothing");
}

#[test]
fn ranges() {
    assert!(LocalPrefill::default().validate().is_ok());
    assert!(LocalPrefill { new_share: f64::NAN, ..LocalPrefill::default() }.validate().is_err());
    assert!(LocalPrefill { decode_busy: Some(-1.0), ..LocalPrefill::default() }.validate().is_err());
}
