use proptest::prelude::*;

use super::*;

fn costs(home: f64, best: f64, rebuild: f64) -> Costs {
    Costs { home, best, rebuild, floor: 256.0 }
}

#[test]
fn all_three_conditions_count() {
    let leaves = |home, best, rebuild| leaves(&BoundConfig::default(), &costs(home, best, rebuild));
    assert!(leaves(1000.0, 100.0, 100.0));
    assert!(!leaves(1000.0, 600.0, 0.0), "not twice as busy");
    assert!(!leaves(300.0, 100.0, 0.0), "busier by less than the floor");
    assert!(!leaves(1000.0, 100.0, 300.0), "the cache is worth more");
}

proptest! {
    #[test]
    fn nobody_comes_back_while_nothing_changes(
        home in 0.0..1e6_f64, best in 0.0..1e6_f64, rebuild in 0.0..1e5_f64, back in 0.0..1e5_f64,
    ) {
        let config = BoundConfig::default();
        if leaves(&config, &costs(home, best, rebuild)) {
            prop_assert!(!leaves(&config, &costs(best, home, back)));
        }
    }

    #[test]
    fn more_load_at_home_never_keeps_a_session(
        home in 0.0..1e6_f64, best in 0.0..1e6_f64, rebuild in 0.0..1e5_f64, more in 0.0..1e6_f64,
    ) {
        let config = BoundConfig::default();
        if leaves(&config, &costs(home, best, rebuild)) {
            prop_assert!(leaves(&config, &costs(home + more, best, rebuild)));
        }
    }
}
