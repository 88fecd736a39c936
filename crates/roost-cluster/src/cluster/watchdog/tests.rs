use super::*;

#[test]
fn c_kv_08_silence_is_named_after_a_while_and_once_a_minute() {
    let (one, two) = (WorkerId(1), WorkerId(2));
    let begin = Instant::now();
    let mut watchdog = Watchdog::new(Duration::from_secs(10));
    let mut check = |seconds, silent: &[WorkerId]| {
        let Checked { due, over } = watchdog.check(begin + Duration::from_secs(seconds), silent);
        (due, over)
    };
    let nothing = (vec![], vec![]);
    assert_eq!(check(0, &[one]), nothing);
    assert_eq!(check(9, &[one, two]), nothing);
    assert_eq!(check(10, &[one, two]), (vec![(one, true)], vec![]));
    assert_eq!(check(20, &[one, two]), (vec![(two, true)], vec![]));
    assert_eq!(check(70, &[one, two]), (vec![(one, false)], vec![]), "once a minute");
    assert_eq!(check(75, &[two]), (vec![], vec![one]));
    assert_eq!(check(76, &[one, two]), nothing, "it had spoken meanwhile");
    assert_eq!(check(77, &[two]), nothing, "and was not named again");
}
