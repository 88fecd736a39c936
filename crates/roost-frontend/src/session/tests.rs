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
