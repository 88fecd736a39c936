use super::*;

const CONFIG: QuarantineConfig = QuarantineConfig {
    first: Duration::from_secs(5),
    longest: Duration::from_secs(60),
    overloaded: Duration::from_secs(1),
};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Fails, waits for the probe and returns the length of the period.
fn period(quarantine: &mut Quarantine, now: &mut Instant) -> u64 {
    quarantine.failed(*now, Failure::Unreachable, &CONFIG);
    let length =
        (1..=120).find(|length| quarantine.standing(*now + secs(*length)) == Standing::Probe).unwrap();
    assert_eq!(quarantine.standing(*now + secs(length) - Duration::from_millis(1)), Standing::Avoid);
    *now += secs(length);
    assert!(quarantine.begin_probe());
    length
}

#[test]
fn periods_double_up_to_a_minute_and_start_over_after_delivery() {
    let (mut quarantine, mut now) = (Quarantine::default(), Instant::now());
    let periods: Vec<u64> = (0..6).map(|_| period(&mut quarantine, &mut now)).collect();
    assert_eq!(periods, [5, 10, 20, 40, 60, 60]);
    quarantine.accepted();
    assert_eq!(quarantine.standing(now), Standing::Trusted);
    assert_eq!(period(&mut quarantine, &mut now), 60, "it took a request but never delivered");
    quarantine.accepted();
    quarantine.delivered();
    assert_eq!(period(&mut quarantine, &mut now), 5);
}

#[test]
fn one_probe_at_a_time() {
    let (mut quarantine, now) = (Quarantine::default(), Instant::now());
    quarantine.failed(now, Failure::Broken, &CONFIG);
    let later = now + secs(5);
    assert_eq!(quarantine.standing(later), Standing::Probe);
    assert!(quarantine.begin_probe());
    assert_eq!(quarantine.standing(later), Standing::Avoid);
    assert!(!quarantine.may_probe_early());
    quarantine.abandon_probe();
    assert_eq!(quarantine.standing(later), Standing::Probe);
}

#[test]
fn many_failures_at_once_are_one() {
    let (mut quarantine, now) = (Quarantine::default(), Instant::now());
    for _ in 0..10 {
        quarantine.failed(now, Failure::Broken, &CONFIG);
    }
    assert_eq!(quarantine.standing(now + secs(5)), Standing::Probe);
}

#[test]
fn an_overload_answer_is_forgotten_after_a_second_without_any_event() {
    let (mut quarantine, now) = (Quarantine::default(), Instant::now());
    quarantine.failed(now, Failure::Overloaded, &CONFIG);
    assert_eq!(quarantine.standing(now), Standing::Overloaded);
    assert_eq!(quarantine.standing(now + secs(1)), Standing::Trusted);
}
