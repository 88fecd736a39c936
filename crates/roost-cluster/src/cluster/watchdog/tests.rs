use super::*;

#[test]
fn silence_is_named_after_a_while_and_once_a_minute() {
    let (one, two) = (WorkerId(1), WorkerId(2));
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut watchdog = Watchdog::new(Duration::from_secs(10));
    assert!(watchdog.check(at(0), &[one]).is_empty());
    assert!(watchdog.check(at(9), &[one, two]).is_empty());
    assert_eq!(watchdog.check(at(10), &[one, two]), [one]);
    assert_eq!(watchdog.check(at(20), &[one, two]), [two]);
    assert_eq!(watchdog.check(at(70), &[one, two]), [one], "once a minute");
    assert!(watchdog.check(at(75), &[]).is_empty());
    assert!(watchdog.check(at(76), &[one]).is_empty(), "it had spoken meanwhile");
    assert_eq!(watchdog.check(at(86), &[one]), [one]);
}
