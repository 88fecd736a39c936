use expect_test::{Expect, expect};

use super::*;
use crate::{SessionAction, StreamOptions};

fn parse(body: &str) -> Result<ChatRequest, ApiError> {
    ChatRequest::parse(&Bytes::copy_from_slice(body.as_bytes()), FieldPolicy::Ignore)
}

fn refused(body: &str, expected: Expect) {
    let e = parse(body).expect_err("must be refused");
    expected.assert_eq(&format!("{} {:?} {}", e.status(), e.param(), e.message()));
}

#[test]
fn the_agent_benchmark_request() {
    let body = Bytes::from_static(
        br#"{"model":"org/m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},
        "max_completion_tokens":105,"ignore_eos":true,"temperature":1,"chat_template_kwargs":{"thinking":true,"reasoning_effort":"high"}}"#,
    );
    let r = ChatRequest::parse(&body, FieldPolicy::Refuse).unwrap();
    assert_eq!(
        (r.model.as_str(), r.generation.stream, r.generation.stream_options.include_usage),
        ("org/m", true, true)
    );
    assert_eq!(
        (r.generation.limits.max_tokens, r.generation.stop.ignore_eos, r.generation.sampling.temperature),
        (Some(105), Some(true), Some(1.0))
    );
    assert_eq!(r.chat_template_kwargs.unwrap().as_str(), r#"{"thinking":true,"reasoning_effort":"high"}"#);
    // The prompt is a slice of the body, not a copy.
    assert!(body.as_ptr_range().contains(&r.messages.as_bytes().as_ptr()));
}

#[test]
fn nulls_are_absent_and_unknown_members_are_reported() {
    let r = parse(
        r#"{"model":"m","messages":[{}],"stream":null,"stream_options":null,"temperature":null,"stop":null,"tools":null,"nvext":null,"foo":1,"rid":"x"}"#,
    )
    .unwrap();
    assert!(!r.generation.stream);
    let mut names = r.ignored.0;
    names.sort();
    assert_eq!(names, ["foo", "rid"]);
}

#[test]
fn include_usage_null_is_not_asked_for() {
    let r = parse(r#"{"model":"m","messages":[{}],"stream":true,"stream_options":{"include_usage":null}}"#)
        .unwrap();
    assert_eq!(r.generation.stream_options, StreamOptions::default());
}

#[test]
fn max_completion_tokens_wins() {
    let r = parse(r#"{"model":"m","messages":[{}],"max_tokens":5,"max_completion_tokens":7}"#).unwrap();
    assert_eq!(r.generation.limits.max_tokens, Some(7));
}

#[test]
fn schema_and_pins() {
    let r = parse(
        r#"{"model":"m","messages":[{}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}},
        "nvext":{"annotations":["a"],"extra_fields":["worker_id"],"backend_instance_id":18446744073709551615,"dp_rank":1}}"#,
    )
    .unwrap();
    assert_eq!(r.generation.sampling.guided.json.unwrap().as_str(), r#"{"type":"object"}"#);
    assert_eq!(
        (r.generation.nvext.worker, r.generation.nvext.dp_rank, r.generation.nvext.wants("worker_id")),
        (Some(u64::MAX), Some(1), true)
    );
}

#[test]
fn tool_choice_none_hides_the_tools() {
    assert!(
        parse(r#"{"model":"m","messages":[{}],"tools":[{}],"tool_choice":"none"}"#).unwrap().tools.is_none()
    );
    assert!(
        parse(r#"{"model":"m","messages":[{}],"tools":[{}],"tool_choice":"auto"}"#).unwrap().tools.is_some()
    );
}

#[test]
fn tool_choices() {
    let choice = |json: &str| {
        parse(&format!(r#"{{"model":"m","messages":[{{}}],"tools":[{{}}],"tool_choice":{json}}}"#))
            .map(|r| r.tool_choice)
    };
    assert_eq!(choice(r#""required""#), Ok(ToolChoice::Required));
    let named = choice(r#"{"type":"function","function":{"name":"f"}}"#);
    assert_eq!(named, Ok(ToolChoice::Named("f".into())));
    assert_eq!(choice(r#""sometimes""#).unwrap_err().param(), Some("tool_choice"));
    assert!(parse(r#"{"model":"m","messages":[{}],"tool_choice":"required"}"#).is_err());
}

#[test]
fn refusals_name_the_member() {
    refused(
        "{",
        expect![[
            r#"400 None Failed to parse the request body as JSON: EOF while parsing an object at line 1 column 1"#
        ]],
    );
    refused(
        "[]",
        expect![[
            r#"400 None Failed to parse the request body as JSON: invalid type: sequence, expected a JSON object at line 1 column 0"#
        ]],
    );
    refused(r#"{"model":"m"}"#, expect![[r#"400 Some("messages") missing field `messages`"#]]);
    refused(r#"{"messages":[{}]}"#, expect![[r#"400 Some("model") missing field `model`"#]]);
    refused(
        r#"{"model":"","messages":[{}]}"#,
        expect![[r#"400 Some("model") Validation: `model` must not be empty"#]],
    );
    refused(
        r#"{"model":"m","messages":[ ]}"#,
        expect![[r#"400 Some("messages") Validation: `messages` must not be empty"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"model":"n"}"#,
        expect![[
            r#"400 None Failed to parse the request body as JSON: duplicate field `model` at line 1 column 36"#
        ]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"temperature":3}"#,
        expect![[r#"400 Some("temperature") Validation: `temperature` must be between 0 and 2, got 3"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"temperature":"x"}"#,
        expect![[
            r#"400 Some("temperature") Failed to deserialize `temperature`: invalid type: string "x", expected a number"#
        ]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"max_tokens":0}"#,
        expect![[r#"400 Some("max_tokens") Validation: `max_tokens` must be between 1 and 1048576, got 0"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"n":2,"temperature":0}"#,
        expect![[r#"400 Some("n") `n` above 1 needs a temperature above 0"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"n":129}"#,
        expect![[r#"400 Some("n") Validation: `n` must be between 1 and 128, got 129"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"logprobs":true,"top_logprobs":21}"#,
        expect![[r#"400 Some("top_logprobs") Validation: `top_logprobs` must be at most 20, got 21"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"functions":[]}"#,
        expect![[r#"501 Some("functions") `functions` is not supported; use `tools`."#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"stream_options":{}}"#,
        expect![[r#"400 Some("stream_options") Validation: `stream_options` needs `stream: true`"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"stop":["a",""]}"#,
        expect![[r#"400 Some("stop") `stop` must not contain empty strings"#]],
    );
    refused(
        r#"{"model":"m","messages":[{}],"tools":[]}"#,
        expect![[r#"400 Some("tools") Validation: `tools` must not be empty; leave it out"#]],
    );
}

/// As the peer asks the engine in the recorded exchanges: one alternative unless told otherwise, none of it without
/// `logprobs`.
#[test]
fn alternatives_per_token() {
    let asked = |members: &str| {
        let request = parse(&format!(r#"{{"model":"m","messages":[{{}}]{members}}}"#)).unwrap();
        request.generation.output.logprobs
    };
    assert_eq!(asked(""), None);
    assert_eq!(asked(r#","logprobs":true"#), Some(1));
    assert_eq!(asked(r#","logprobs":true,"top_logprobs":2"#), Some(2));
    assert_eq!(asked(r#","logprobs":true,"top_logprobs":0"#), Some(0));
    assert_eq!(asked(r#","logprobs":false,"top_logprobs":2"#), None);
}

#[test]
fn strict_refuses_unknown_members() {
    let body = Bytes::from_static(br#"{"model":"m","messages":[{}],"foo":1}"#);
    let e = ChatRequest::parse(&body, FieldPolicy::Refuse).unwrap_err();
    assert_eq!((e.status(), e.param()), (400, Some("foo")));
}

#[test]
fn invalid_utf8_is_named() {
    let e =
        ChatRequest::parse(&Bytes::from_static(b"{\"model\":\"\xff\"}"), FieldPolicy::Ignore).unwrap_err();
    assert_eq!(e.message(), "Request body is not valid UTF-8 at byte 10.");
}

#[test]
fn sessions_of_older_clients_are_understood() {
    let control = |json: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{}}],"nvext":{{"session_control":{json}}}}}"#);
        ChatRequest::parse(&body.into(), FieldPolicy::Refuse)
            .map(|request| request.generation.nvext.session_control)
    };
    let read = |json: &str| control(json).unwrap().map(|control| (control.session_id, control.action));
    let named = |action| Some(("s".to_owned(), action));
    assert_eq!(read(r#"{"session_id":"s"}"#), named(None));
    assert_eq!(read(r#"{"session_id":"s","action":"open","timeout":300}"#), named(Some(SessionAction::Open)));
    assert_eq!(read(r#"{"session_id":"s","action":"bind"}"#), named(Some(SessionAction::Bind)));
    assert_eq!(read(r#"{"session_id":"s","action":"close"}"#), named(Some(SessionAction::Close)));
    assert_eq!(read("null"), None);
    for wrong in [r#"{"action":"open"}"#, r#"{"session_id":"s","action":"park"}"#, "7"] {
        let error = control(wrong).unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(error.message().contains("session_control"), "{}", error.message());
    }
}

/// Whatever follows the known part, the body is read as a whole one is, errors included.
#[test]
fn a_familiar_body_is_read_as_any_other() {
    let head = r#"{"model":"m","messages":[{"role":"user","content":"a}]"},{"role":"user","content":"b"}"#;
    let familiar = Familiar { messages: head.find('[').unwrap(), end: head.len() };
    for rest in [
        "]}",
        r#" , {"role":"user","content":"c"} ] , "temperature":0.5,"tools":[{"type":"function","function":{"name":"f"}}]}"#,
        r#"],"messages":[]}"#,
        r#"],"model":"n"}"#,
        "",
        "]",
        "}]}",
        "]]}",
        "{}]}",
        r#",{"role":"user"}],"n":"x"}"#,
    ] {
        let body = Bytes::from([head, rest].concat());
        let whole = ChatRequest::parse(&body, FieldPolicy::Ignore);
        let short = ChatRequest::parse_familiar(&body, familiar, FieldPolicy::Ignore);
        match (whole, short) {
            (Ok(whole), Ok(short)) => {
                assert_eq!(short.messages.as_str(), whole.messages.as_str());
                assert_eq!(format!("{short:?}"), format!("{whole:?}"));
                assert_eq!(short.messages.offset_in(&body), Some(familiar.messages));
            }
            (whole, short) => assert_eq!(short.unwrap_err(), whole.unwrap_err(), "{rest}"),
        }
    }
}
