use bytes::{Bytes, BytesMut};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::{ApiError, ChatRequest, FieldPolicy, Piece, ToolChoice, Usage};

const OPTIONS: MessagesOptions = MessagesOptions { policy: FieldPolicy::Ignore, strip_preamble: true };

fn read(body: &Value) -> Result<ChatRequest, ApiError> {
    ChatRequest::of_messages(&Bytes::from(body.to_string()), Purpose::Answer, OPTIONS)
}

fn request(messages: Value, more: Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": messages});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The messages of the chat request.
fn converted(messages: Value, more: Value) -> Value {
    serde_json::from_str(read(&request(messages, more)).unwrap().messages.as_str()).unwrap()
}

fn refusal(messages: Value, more: Value) -> (u16, Option<String>) {
    let error = read(&request(messages, more)).unwrap_err();
    (error.status(), error.param().map(str::to_owned))
}

/// The peer's conversion, read in its sources: blocks of the system prompt are joined by line ends, those of a user
/// by nothing; results of tools and calls become messages and members of their own.
#[test]
fn a_conversation_with_tools() {
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "a\"\n"}, {"type": "text", "text": "é", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t1", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "thinking", "thinking": "t2", "signature": "s"},
            {"type": "text", "text": "one"}, {"type": "text", "text": " two"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1, "a": [" x "]}},
            {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true},
            {"type": "text", "text": "go on"}]},
        {"role": "system", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        {"role": "user", "content": "end"},
    ]);
    let system = json!([
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc"},
        {"type": "text", "text": "You are"}, {"type": "text", "text": "helpful."}]);
    assert_eq!(
        converted(messages, json!({"system": system})),
        json!([
            {"role": "system", "content": "You are\nhelpful."},
            {"role": "user", "content": "a\"\né"},
            {"role": "assistant", "content": "one two", "reasoning_content": "t1\nt2", "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": "{\"b\":1,\"a\":[\" x \"]}"}},
                {"id": "toolu_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "r1r2"},
            {"role": "tool", "tool_call_id": "toolu_2", "content": ""},
            {"role": "user", "content": "go on"},
            {"role": "system", "content": "x\ny"},
            {"role": "user", "content": "end"},
        ])
    );
}

#[test]
fn the_billing_line_goes_only_when_it_is_there_and_unwanted() {
    let user = json!([{"role": "user", "content": "u"}]);
    let system = |text: &str, strip| {
        let body = Bytes::from(request(user.clone(), json!({"system": text})).to_string());
        let options = MessagesOptions { strip_preamble: strip, ..OPTIONS };
        let request = ChatRequest::of_messages(&body, Purpose::Answer, options).unwrap();
        let messages: Value = serde_json::from_str(request.messages.as_str()).unwrap();
        messages[0]
            .as_object()
            .filter(|m| m["role"] == "system")
            .map(|m| m["content"].as_str().unwrap().to_owned())
    };
    let line = "x-anthropic-billing-header: a=1";
    assert_eq!(system(&format!("\n{line}\nrest\n"), true).as_deref(), Some("rest\n"));
    assert_eq!(system(line, true), None);
    assert_eq!(system(&format!("{line}\nrest"), false), Some(format!("{line}\nrest")));
    assert_eq!(system(&format!("see {line}\nrest"), true), Some(format!("see {line}\nrest")));
}

/// What the memory of prompts needs: the next turn's messages start with the bytes of this turn's.
#[test]
fn a_longer_conversation_starts_with_the_bytes_of_the_shorter() {
    let mut messages = vec![
        json!({"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}),
    ];
    let before = read(&request(json!(messages), json!({"system": "s"}))).unwrap().messages;
    messages[0] = json!({"role": "user", "content": [{"type": "text", "text": "a"}]});
    messages.push(json!({"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f", "input": {"x": 1}}]}));
    messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "r", "cache_control": {"type": "ephemeral"}}]}));
    let after = read(&request(json!(messages), json!({"system": "s"}))).unwrap().messages;
    let kept = before.as_bytes().strip_suffix(b"]").unwrap();
    assert!(after.as_bytes().starts_with(kept), "{} {}", before.as_str(), after.as_str());
}

#[test]
fn tools_choice_and_sampling() {
    let user = json!([{"role": "user", "content": "u"}]);
    let tools = json!([
        {"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "name": "g", "input_schema": {"b": 1, "a": 2}, "strict": true}]);
    let more = |choice: Value| {
        json!({"tools": tools, "tool_choice": choice, "stop_sequences": ["x"], "temperature": 0.5, "top_k": 4,
               "stream": true, "metadata": {"user_id": "u"}})
    };
    let request =
        read(&request(user.clone(), more(json!({"type": "any", "disable_parallel_tool_use": true}))))
            .unwrap();
    let shown: Value = serde_json::from_str(request.tools.as_ref().unwrap().as_str()).unwrap();
    assert_eq!(
        shown,
        json!([
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
            {"type": "function", "function": {"name": "g", "parameters": {"b": 1, "a": 2}, "strict": true}}])
    );
    assert!(request.tools.unwrap().as_str().contains(r#"{"b":1,"a":2}"#), "members keep their order");
    assert_eq!((request.tool_choice, request.parallel_tool_calls), (ToolChoice::Required, Some(false)));
    let generation = &request.generation;
    assert_eq!((generation.limits.max_tokens, generation.sampling.top_k), (Some(9), Some(4)));
    assert_eq!((generation.stop.strings.as_slice(), generation.stream), (["x".to_owned()].as_slice(), true));
    assert_eq!(request.ignored.0, Vec::<String>::new());
    for (choice, expected, shows_tools) in [
        (json!({"type": "auto"}), ToolChoice::Auto, true),
        (json!({"type": "none"}), ToolChoice::None, false),
        (json!({"type": "tool", "name": "g"}), ToolChoice::Named("g".into()), true),
    ] {
        let request = read(&self::request(user.clone(), more(choice))).unwrap();
        assert_eq!((request.tool_choice, request.tools.is_some()), (expected, shows_tools));
    }
}

#[test]
fn a_last_message_of_the_assistant_is_continued() {
    let messages = json!([{"role": "user", "content": "u"}, {"role": "assistant", "content": "{"}]);
    let request = read(&request(messages, json!({}))).unwrap();
    assert_eq!((request.add_generation_prompt, request.continue_final_message), (Some(false), Some(true)));
    let request = read(&self::request(json!([{"role": "user", "content": "u"}]), json!({}))).unwrap();
    assert_eq!((request.add_generation_prompt, request.continue_final_message), (None, None));
}

#[test]
fn structured_output_is_a_schema() {
    let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
    let format = json!({"format": {"type": "json_schema", "schema": schema}});
    let user = json!([{"role": "user", "content": "u"}]);
    let request = read(&request(user.clone(), json!({"output_config": format}))).unwrap();
    assert_eq!(request.generation.sampling.guided.json.unwrap().as_str(), schema.to_string());
    let format = json!({"format": {"type": "json_object"}});
    assert_eq!(refusal(user, json!({"output_config": format})).0, 400);
}

#[test]
fn refusals_name_the_member() {
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let text = || user(json!("u"));
    let tool = |tool: Value| json!({"tools": [tool]});
    let image = json!([{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]);
    let in_result =
        json!([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {}}]}]);
    let cases = [
        (json!([]), json!({}), "messages"),
        (json!([{"role": "robot", "content": "u"}]), json!({}), "messages[0].role"),
        (json!([{"role": "user"}]), json!({}), "messages[0]"),
        (user(json!([])), json!({}), "messages[0].content"),
        (user(json!(3)), json!({}), "messages[0].content"),
        (user(image), json!({}), "messages[0].content[1]"),
        (user(in_result), json!({}), "messages[0].content[0].content[0]"),
        (user(json!([{"type": "text"}])), json!({}), "messages[0].content[0].text"),
        (text(), json!({"max_tokens": 0}), "max_tokens"),
        (text(), json!({"max_tokens": null}), "max_tokens"),
        (text(), json!({"temperature": 3}), "temperature"),
        (text(), json!({"thinking": {"type": "maybe"}}), "thinking.type"),
        (text(), json!({"tool_choice": {"type": "any"}}), "tool_choice"),
        (text(), json!({"stop_sequences": [""]}), "stop_sequences"),
        (text(), tool(json!({"type": "web_search_20250305", "name": "web_search"})), "tools[0].type"),
        (text(), tool(json!({"name": "f"})), "tools[0].input_schema"),
    ];
    for (messages, more, param) in cases {
        assert_eq!(refusal(messages, more.clone()), (400, Some(param.to_owned())), "{more}");
    }
    let strict = MessagesOptions { policy: FieldPolicy::Refuse, ..OPTIONS };
    let body = Bytes::from(request(text(), json!({"foo": 1})).to_string());
    assert_eq!(ChatRequest::of_messages(&body, Purpose::Answer, strict).unwrap_err().param(), Some("foo"));
}

const USAGE: Usage =
    Usage { prompt_tokens: 19, completion_tokens: 5, cached_tokens: Some(16), reasoning_tokens: Some(2) };
const CALL: Piece<'_> =
    Piece::ToolStart { index: 0, id: "call-0b9f4a52-6fb3-4d2b-9d0c-3f6e2b1a7c55", name: "get_weather" };

fn check(out: &BytesMut, expected: Expect) {
    expected.assert_eq(std::str::from_utf8(out).unwrap());
}

/// The recorded exchanges `messages_stream` and `messages_tool_stream`, without what is not Anthropic's in them
/// (`usage` of deltas, the end mark).
#[test]
fn events() {
    let mut out = BytesMut::new();
    let mut events = MessageEvents::new("msg_1", "qwen3");
    events.begin(&mut out, &Usage { cached_tokens: None, ..USAGE });
    events.begin(&mut out, &USAGE);
    events.piece(&mut out, Piece::Reasoning("why"));
    events.piece(&mut out, Piece::Content("Hi"));
    events.keep_alive(&mut out, &USAGE);
    events.piece(&mut out, CALL);
    events.piece(&mut out, Piece::ToolArguments { index: 0, fragment: "{\"city\": \"Paris\"}" });
    events.finish(&mut out, Finish::ToolCalls, None);
    events.end(&mut out, &USAGE);
    check(
        &out,
        expect![[r#"
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"qwen3","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":19,"output_tokens":0,"cache_creation_input_tokens":0}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"why"}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"erased"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}

        event: ping
        data: {"type":"ping"}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: content_block_start
        data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_0b9f4a526fb34d2b9d0c3f6e2b1a7c55","name":"get_weather","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Paris\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":2}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":3,"output_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":16}}

        event: message_stop
        data: {"type":"message_stop"}

    "#]],
    );
}

#[test]
fn a_whole_message() {
    let mut answer = MessageAnswer::default();
    answer.piece(Piece::Reasoning("why"));
    answer.piece(Piece::Content("\nHi"));
    answer.piece(CALL);
    answer.piece(Piece::ToolArguments { index: 0, fragment: "{\"city\": " });
    answer.piece(Piece::ToolArguments { index: 0, fragment: "\"Paris\"}" });
    answer.finish(Finish::ToolCalls, None);
    let mut out = BytesMut::new();
    answer.write(&mut out, "msg_1", "qwen3", &USAGE);
    check(
        &out,
        expect![[
            r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"why","signature":"erased"},{"type":"text","text":"\nHi"},{"type":"tool_use","id":"toolu_0b9f4a526fb34d2b9d0c3f6e2b1a7c55","name":"get_weather","input":{"city": "Paris"}}],"model":"qwen3","stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":16}}"#
        ]],
    );
    // The recorded exchange `messages_unary`.
    let mut answer = MessageAnswer::default();
    answer.piece(Piece::Content("Hi there"));
    answer.finish(Finish::Stop, None);
    let mut out = BytesMut::new();
    let usage = Usage { prompt_tokens: 16, completion_tokens: 2, ..Usage::default() };
    answer.write(&mut out, "msg_<hex>", "qwen3", &usage);
    assert_eq!(
        std::str::from_utf8(&out).unwrap(),
        r#"{"id":"msg_<hex>","type":"message","role":"assistant","content":[{"type":"text","text":"Hi there"}],"model":"qwen3","stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":16,"output_tokens":2,"cache_creation_input_tokens":0}}"#
    );
}

#[test]
fn reasons_of_the_end() {
    for (finish, stop, reason) in [
        (Finish::Stop, None, "end_turn"),
        (Finish::Stop, Some("x"), "stop_sequence"),
        (Finish::Length, Some("x"), "max_tokens"),
        (Finish::ToolCalls, None, "tool_use"),
        (Finish::ContentFilter, None, "refusal"),
    ] {
        assert_eq!(stop_reason(finish, stop), reason);
    }
    let mut out = BytesMut::new();
    let mut events = MessageEvents::new("msg_1", "m");
    events.finish(&mut out, Finish::Stop, Some("\"x"));
    events.end(&mut out, &USAGE);
    assert!(out.starts_with(b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"\\\"x\"}"));
}

#[test]
fn ids_of_tool_uses() {
    assert_eq!(
        tool_use_id("call-0b9f4a52-6fb3-4d2b-9d0c-3f6e2b1a7c55"),
        "toolu_0b9f4a526fb34d2b9d0c3f6e2b1a7c55"
    );
    assert_eq!(tool_use_id("functions.f:0"), "functions.f:0");
}
