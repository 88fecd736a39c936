use super::{StopIds, StopKind, StopScanner};

/// Feeds `pieces` and returns what was shown and the stop string found.
fn run<S: AsRef<str>>(stops: &[&str], include: bool, pieces: &[S]) -> (String, Option<String>) {
    let mut scanner = StopScanner::new(stops.iter().copied(), include);
    let longest = stops.iter().map(|stop| stop.len()).max().unwrap_or(0);
    let mut shown = String::new();
    for piece in pieces {
        if let Some(stop) = scanner.push(piece.as_ref(), &mut shown) {
            let stop = stop.to_owned();
            assert_eq!(scanner.push("more", &mut shown), Some(stop.as_str()));
            scanner.finish(&mut shown);
            return (shown, Some(stop));
        }
        assert!(scanner.held_bytes() < longest.max(1));
    }
    scanner.finish(&mut shown);
    (shown, None)
}

/// The definition, searched at every position: the match that ends first, the longest of those.
fn naive(stops: &[&str], include: bool, text: &str) -> (String, Option<String>) {
    let best = (0..=text.len())
        .filter(|&end| text.is_char_boundary(end))
        .flat_map(|end| stops.iter().map(move |stop| (end, *stop)))
        .filter(|(end, stop)| !stop.is_empty() && text[..*end].ends_with(stop))
        .min_by_key(|(end, stop)| (*end, usize::MAX - stop.len()));
    match best {
        None => (text.to_owned(), None),
        Some((end, stop)) => {
            let shown = if include { end } else { end - stop.len() };
            (text[..shown].to_owned(), Some(stop.to_owned()))
        }
    }
}

#[test]
fn a_stop_string_over_several_pieces_leaves_nothing_of_itself() {
    let text = " delta epsilon zeta eta theta iota";
    for size in [1, 3, 5, text.len()] {
        let pieces: Vec<&str> = text.as_bytes().chunks(size).map(|c| str::from_utf8(c).unwrap()).collect();
        let (shown, stop) = run(&[" zeta eta theta"], false, &pieces);
        assert_eq!((shown.as_str(), stop.as_deref()), (" delta epsilon", Some(" zeta eta theta")));
        assert_eq!(run(&[" eta"], false, &pieces).0, " delta epsilon zeta");
        assert_eq!(run(&[" eta"], true, &pieces).0, " delta epsilon zeta eta");
    }
}

#[test]
fn multi_byte_characters_are_never_torn() {
    let text = " 3 \u{d7} 4 \u{b0} \u{394} done";
    let pieces: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(run(&["\u{b0} \u{394}"], false, &pieces).0, " 3 \u{d7} 4 ");
    assert_eq!(run(&[" \u{d7}!"], false, &pieces), (text.to_owned(), None));
}

#[test]
fn any_split_gives_what_the_definition_gives() {
    let mut random = fastrand::Rng::with_seed(11);
    let alphabet = ['a', 'b', 'c', '\u{e9}', '\u{1F600}'];
    let word = |random: &mut fastrand::Rng, max| -> String {
        (0..random.usize(0..=max)).map(|_| *random.choice(&alphabet).unwrap()).collect()
    };
    let mut found = 0;
    for _ in 0..3_000 {
        let stops: Vec<String> = (0..random.usize(0..4)).map(|_| word(&mut random, 5)).collect();
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let include = random.bool();
        let pieces: Vec<String> = (0..12).map(|_| word(&mut random, 4)).collect();
        let expected = naive(&stops, include, &pieces.concat());
        assert_eq!(run(&stops, include, &pieces), expected, "{stops:?} {pieces:?}");
        found += usize::from(expected.1.is_some());
    }
    assert!((500..2_500).contains(&found), "{found}");
}

#[test]
fn text_that_must_not_be_searched_passes_whole() {
    let mut scanner = StopScanner::new(["end"], false);
    let mut shown = String::new();
    scanner.pass("the end, e", &mut shown);
    scanner.push("nd of the en", &mut shown);
    assert_eq!(shown, "the end, end of the ");
    scanner.pass("?", &mut shown);
    assert_eq!(scanner.push("d end", &mut shown), Some("end"));
    assert_eq!(shown, "the end, end of the en?d ");
    assert_eq!(scanner.matched(), Some("end"));
}

#[test]
fn nothing_to_look_for_holds_nothing() {
    for stops in [&[][..], &[""][..]] {
        let mut scanner = StopScanner::new(stops.iter().copied(), false);
        assert!(scanner.is_empty());
        let mut shown = String::new();
        assert_eq!(scanner.push("text", &mut shown), None);
        assert_eq!((shown.as_str(), scanner.held_bytes()), ("text", 0));
    }
}

#[test]
fn stop_ids_wait_for_the_minimum_and_those_of_the_request_are_shown() {
    let stops = StopIds::new([2, 1], [3, 2], 2);
    assert_eq!(stops.check(1, 1), None);
    assert_eq!(stops.check(1, 2), Some(StopKind::Hidden));
    assert_eq!(stops.check(2, 2), Some(StopKind::Visible));
    assert_eq!(stops.check(3, 9), Some(StopKind::Visible));
    assert_eq!(stops.check(4, 9), None);
    assert!(StopIds::default().armed(0));
    assert!(!stops.armed(1));
}
