use http::HeaderValue;

use super::*;

fn session(headers: &[(&'static str, &str)]) -> Session {
    let map = headers
        .iter()
        .map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        })
        .collect();
    Session::of(&map)
}

fn ids(headers: &[(&'static str, &str)]) -> (Option<String>, Option<String>) {
    let s = session(headers);
    (s.id.map(Into::into), s.parent.map(Into::into))
}

fn some(id: &str, parent: &str) -> (Option<String>, Option<String>) {
    (Some(id.into()), (!parent.is_empty()).then(|| parent.into()))
}

#[test]
fn precedence() {
    let all = [
        ("x-smg-routing-key", "smg"),
        ("x-session-affinity", "aff"),
        ("x-session-id", "oc"),
        ("thread-id", "codex"),
        ("x-claude-code-session-id", "cc"),
        ("x-dynamo-session-id", "dyn"),
    ];
    for n in 1..=all.len() {
        assert_eq!(ids(&all[..n]), some(all[n - 1].1, ""));
    }
}

#[test]
fn parents() {
    assert_eq!(ids(&[("x-dynamo-session-id", "a"), ("x-dynamo-parent-session-id", "b")]), some("a", "b"));
    assert_eq!(ids(&[("x-dynamo-session-id", "a"), ("x-dynamo-parent-session-id", "a")]), some("a", ""));
    assert_eq!(ids(&[("x-claude-code-session-id", "r"), ("x-claude-code-agent-id", "g")]), some("g", "r"));
    assert_eq!(
        ids(&[
            ("x-claude-code-session-id", "r"),
            ("x-claude-code-agent-id", "g"),
            ("x-claude-code-parent-agent-id", "p")
        ]),
        some("g", "p")
    );
    assert_eq!(ids(&[("thread-id", "t"), ("x-codex-parent-thread-id", "p")]), some("t", "p"));
}

#[test]
fn blank_and_broken_values_are_absent() {
    assert_eq!(ids(&[("x-dynamo-session-id", "  "), ("x-session-id", " s ")]), some("s", ""));
    let s = session(&[
        ("x-dynamo-dp-rank", "two"),
        ("x-dp-rank", "2"),
        ("x-worker-instance-id", "18446744073709551615"),
    ]);
    assert_eq!((s.dp_rank, s.worker), (Some(2), Some(u64::MAX)));
    assert_eq!(session(&[("x-dynamo-dp-rank", "4294967295")]).dp_rank, None);
}

#[test]
fn request_ids_are_echoed_only_when_harmless() {
    assert!(session(&[("x-request-id", "abc-1")]).request_id.is_some());
    for bad in ["a b", "a\tb", &"x".repeat(9000)] {
        assert!(session(&[("x-request-id", bad)]).request_id.is_none());
    }
}

/// Every header that names a session, with what it means for session and parent.
#[test]
fn identity_by_table() {
    type Row = (&'static [(&'static str, &'static str)], &'static str, &'static str);
    let table: &[Row] = &[
        (&[("x-dynamo-session-id", "s")], "s", ""),
        (&[("x-dynamo-session-id", " s\t")], "s", ""),
        (&[("x-dynamo-session-id", "s"), ("x-session-affinity", "t")], "s", ""),
        (&[("x-dynamo-session-id", "s"), ("x-parent-session-id", "p")], "s", ""),
        (&[("x-dynamo-parent-session-id", "p")], "", ""),
        (&[("x-claude-code-session-id", "r")], "r", ""),
        (&[("x-claude-code-agent-id", "g")], "", ""),
        (&[("x-claude-code-session-id", "r"), ("x-claude-code-agent-id", "r")], "r", ""),
        (&[("x-claude-code-session-id", "r"), ("x-claude-code-parent-agent-id", "p")], "r", ""),
        (&[("thread-id", "t"), ("x-session-id", "o")], "t", ""),
        (&[("x-session-id", "o"), ("x-parent-session-id", "p")], "o", "p"),
        (&[("x-session-affinity", "a"), ("x-smg-routing-key", "k")], "a", ""),
        (&[("x-smg-routing-key", "k"), ("x-dynamo-parent-session-id", "p")], "k", "p"),
        (&[("x-session-affinity", "a"), ("x-dynamo-parent-session-id", "a")], "a", ""),
        (&[("x-correlation-id", "c"), ("x-request-id", "q")], "", ""),
        (&[("x-dynamo-session-id", "sitzung-ä")], "sitzung-ä", ""),
    ];
    for (headers, id, parent) in table {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        assert_eq!(ids(headers), (some(id), some(parent)), "{headers:?}");
    }
}

#[test]
fn the_first_of_repeated_values_counts() {
    let mut headers = HeaderMap::new();
    headers.append("x-dynamo-session-id", HeaderValue::from_static("first"));
    headers.append("x-dynamo-session-id", HeaderValue::from_static("second"));
    assert_eq!(Session::of(&headers).id.as_deref(), Some("first"));
    let undecodable = HeaderValue::from_bytes(b"\xff\xfe").unwrap();
    headers.insert("x-dynamo-session-id", undecodable);
    headers.insert("x-smg-routing-key", HeaderValue::from_static("k"));
    assert_eq!(Session::of(&headers).id.as_deref(), Some("k"));
}

#[test]
fn the_end_of_a_session_is_said_by_header_or_body() {
    assert!(session(&[("x-dynamo-session-final", "True")]).is_final);
    assert!(!session(&[("x-dynamo-session-final", "1")]).is_final);
    let control = |id: &str, action| SessionControl { session_id: id.to_owned(), action };
    let of = |headers: &[(&'static str, &str)], control: &SessionControl| {
        let session = session(headers).with_control(Some(control));
        (session.id.map(String::from), session.is_final)
    };
    let header = [("x-dynamo-session-id", "h")];
    let [named, other] = ["b", "h"].map(|id| Some(id.to_owned()));
    for action in [None, Some(SessionAction::Open), Some(SessionAction::Bind)] {
        assert_eq!(of(&[], &control("b", action)), (named.clone(), false));
    }
    let close = Some(SessionAction::Close);
    assert_eq!(of(&[], &control(" b ", close)), (named, true));
    assert_eq!(of(&header, &control("b", close)), (other.clone(), false), "another session ends");
    assert_eq!(of(&header, &control("h", close)), (other, true));
    assert_eq!(of(&[], &control(" ", None)), (None, false));
}
