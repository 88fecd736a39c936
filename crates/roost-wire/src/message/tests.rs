use bytes::BytesMut;
use serde_json::{Value, json};

use super::*;
use crate::{Codec, Fault, fixtures, frame::RequestFrame};

/// The body of a captured request and its codec.
fn body(fixture: &fixtures::Fixture) -> (Codec, bytes::Bytes) {
    let frame = RequestFrame::decode(&mut BytesMut::from(&fixture.bytes[..]), usize::MAX).unwrap().unwrap();
    let (control, body) = frame.parts().unwrap();
    let control: ControlMessage = serde_json::from_slice(&control).unwrap();
    (control.codec(), body)
}

/// A decoded request as the fixtures print it: byte strings as hexadecimal, floats as they are.
fn printed(request: &EngineRequest, as_bytes: bool) -> Value {
    let mut value = serde_json::to_value(request).unwrap();
    if as_bytes {
        let hex: String = request
            .token_ids
            .iter()
            .flat_map(|id| id.to_le_bytes())
            .map(|byte| format!("{byte:02x}"))
            .collect();
        value["token_ids"] = json!({ "__bytes__": hex });
    }
    if let Some(id) = request.bootstrap_info.as_ref().and_then(|info| info.handoff_id) {
        value["bootstrap_info"]["handoff_id"] = json!({ "__bytes__": id.simple().to_string() });
    }
    let options = &request.sampling_options;
    for (key, float) in [
        ("presence_penalty", options.presence_penalty),
        ("frequency_penalty", options.frequency_penalty),
        ("repetition_penalty", options.repetition_penalty),
        ("temperature", options.temperature),
        ("top_p", options.top_p),
        ("min_p", options.min_p),
        ("length_penalty", options.length_penalty),
    ] {
        value["sampling_options"][key] = json!(float);
    }
    value
}

#[test]
fn captured_requests_decode_and_encode_to_the_same_bytes() {
    let mut requests = 0;
    for fixture in fixtures::all("request") {
        if fixture.name.starts_with("kv_query") {
            continue;
        }
        let (codec, body) = body(&fixture);
        let request = EngineRequest::decode(codec, &body).unwrap();
        let as_bytes = fixture.name == "chat_token_ids_as_bytes";
        assert_eq!(printed(&request, as_bytes), fixture.json["body"], "{}", fixture.name);
        let format = if as_bytes { TokenIdFormat::Bytes } else { TokenIdFormat::Array };
        assert_eq!(request.encode(codec, format).unwrap(), body, "{}", fixture.name);
        // Packed beforehand, as prompts are that were prepared.
        let packed = PromptTokens::packed(PackedIds::new(&request.token_ids), &request.token_ids);
        let packed = EngineRequest { token_ids: packed, ..request };
        assert_eq!(packed.encode(codec, format).unwrap(), body, "{}", fixture.name);
        requests += 1;
    }
    assert_eq!(requests, 17);
}

#[test]
fn control_messages_encode_to_the_same_bytes() {
    for fixture in fixtures::all("request") {
        let frame =
            RequestFrame::decode(&mut BytesMut::from(&fixture.bytes[..]), usize::MAX).unwrap().unwrap();
        let (control, _) = frame.parts().unwrap();
        let message: ControlMessage = serde_json::from_slice(&control).unwrap();
        assert_eq!(serde_json::to_value(&message).unwrap(), fixture.json["control"], "{}", fixture.name);
        if message.connection_info.transport == ConnectionInfo::QUIC {
            assert!(message.connection_info.tcp().is_err());
            continue;
        }
        let home = message.connection_info.tcp().unwrap();
        assert_eq!(serde_json::to_value(&home).unwrap(), fixture.json["connection_info.info"]);
        let ours = ControlMessage::new(&message.id, message.codec(), home.address, &home.subject);
        assert_eq!(serde_json::to_vec(&ours).unwrap(), control, "{}", fixture.name);
    }
}

#[test]
fn addresses_of_older_frontends_are_understood() {
    let address = |text: &str| {
        let info = json!({"address": text, "subject": "s", "context": "c", "stream_type": "response"});
        let info = ConnectionInfo { transport: ConnectionInfo::TCP.to_owned(), info: info.to_string() };
        info.tcp().map(|home| home.address.to_string()).ok()
    };
    assert_eq!(address("10.0.0.1:80").as_deref(), Some("10.0.0.1:80"));
    assert_eq!(address("[::1]:41234").as_deref(), Some("[::1]:41234"));
    // A 1.5.1 frontend on the interface `lo`.
    assert_eq!(address("::1:41234").as_deref(), Some("[::1]:41234"));
    for wrong in ["", "::1", "host:80", "10.0.0.1", "10.0.0.1:80:90", "::1:port"] {
        assert_eq!(address(wrong), None, "{wrong}");
    }
}

#[test]
fn a_message_without_a_codec_is_json() {
    let text = r#"{"id":"1","request_type":"single_in","response_type":"many_out",
        "connection_info":{"transport":"tcp_server","info":""},"metadata":{"a":"b"}}"#;
    let message: ControlMessage = serde_json::from_str(text).unwrap();
    assert_eq!(message.codec(), Codec::Json);
}

#[test]
fn the_smallest_request_decodes_and_unknown_keys_are_ignored() {
    let text = r#"{"model":"m","token_ids":[1,4294967295],"stop_conditions":{"max_tokens":3,"later":1},
        "sampling_options":{"n":1},"output_options":{},"mdc_sum":null,"router_config_override":null,"later":{}}"#;
    let request = EngineRequest::decode(Codec::Json, text.as_bytes()).unwrap();
    assert_eq!(&request.token_ids[..], [1, u32::MAX]);
    assert_eq!(request.stop_conditions.max_tokens, Some(3));
    assert!(EngineRequest::decode(Codec::Json, br#"{"token_ids":["1"]}"#).is_err());
    assert!(EngineRequest::decode(Codec::Json, br#"{"token_ids":[-1]}"#).is_err());
    // Three bytes are no token.
    assert!(EngineRequest::decode(Codec::Msgpack, b"\x81\xa9token_ids\xc4\x03abc").is_err());
}

#[test]
fn every_field_survives_both_codecs() {
    let request = EngineRequest {
        model: "m".repeat(300),
        token_ids: (0..70_000).collect(),
        prompt_embeds: Some("x".into()),
        multi_modal_data: Some(json!({"image_url": [{"Url": "data:"}]})),
        multi_modal_uuids: Some(json!({"image_url": ["u"]})),
        mm_routing_info: Some(json!({"routing_token_ids": [1]})),
        sampling_options: SamplingOptions { temperature: Some(0.7), top_p: Some(0.5), ..Default::default() },
        output_options: OutputOptions { no_stop_trim: Some(true), ..Default::default() },
        routing: Some(Routing {
            allowed_worker_ids: Some(vec![u64::MAX]),
            routing_constraints: Some(json!({"required_taints": []})),
            lora_name: Some("l".into()),
            ..Default::default()
        }),
        prefill_result: Some(PrefillResult { disaggregated_params: json!([1]), prompt_tokens_details: None }),
        encoder_result: Some(json!({})),
        migration_link: Some(TraceLink { trace_id: "t".into(), span_id: "s".into() }),
        kv_hint: Some(json!({"a": 1.5})),
        require_reasoning: true,
        mm_processor_kwargs: Some(json!({})),
        media_io_kwargs: Some(json!({})),
        is_probe: true,
        ..Default::default()
    };
    for (codec, format) in [
        (Codec::Json, TokenIdFormat::Array),
        (Codec::Msgpack, TokenIdFormat::Array),
        (Codec::Msgpack, TokenIdFormat::Bytes),
    ] {
        let bytes = request.encode(codec, format).unwrap();
        assert_eq!(EngineRequest::decode(codec, &bytes).unwrap(), request, "{codec:?} {format:?}");
    }
    // The path by hand and the one through serde agree.
    let by_serde = Codec::Msgpack.encode(&request).unwrap();
    assert_eq!(request.encode(Codec::Msgpack, TokenIdFormat::Array).unwrap(), by_serde);
}

#[test]
fn tokens_are_written_in_their_shortest_form() {
    for ids in [
        vec![],
        vec![0, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x10000, u32::MAX],
        (0..16).collect::<Vec<_>>(),
        (0..0x10000).collect(),
    ] {
        let request = EngineRequest { token_ids: ids.into(), ..Default::default() };
        let by_serde = Codec::Msgpack.encode(&request).unwrap();
        assert_eq!(request.encode(Codec::Msgpack, TokenIdFormat::Array).unwrap(), by_serde);
    }
}

#[test]
fn captured_items_decode() {
    let mut items = 0;
    for fixture in fixtures::all("response") {
        let codec: Codec = serde_json::from_value(fixture.json["codec"].clone()).unwrap();
        let mut frames = fixtures::two_parts(&fixture.bytes).into_iter();
        for printed in fixture.json["frames"].as_array().unwrap() {
            if let Some(omitted) = printed.get("omitted_frames") {
                frames.nth(omitted.as_u64().unwrap() as usize - 1).unwrap();
                continue;
            }
            let frame = frames.next().unwrap();
            if frame.body.is_empty() {
                let header: Value = serde_json::from_slice(frame.header).unwrap();
                assert_eq!(header, printed["header"], "{}", fixture.name);
                continue;
            }
            let envelope = Envelope::decode(codec, frame.body).unwrap();
            assert_eq!(envelope.complete_final, printed["data"]["complete_final"], "{}", fixture.name);
            let Some(item) = envelope.data else {
                assert_eq!(frame.body, envelope::end(codec), "{}", fixture.name);
                continue;
            };
            let expected = &printed["data"]["data"];
            if fixture.name.starts_with("kv_query") {
                assert_eq!(&codec.decode::<Value>(item).unwrap(), expected, "{}", fixture.name);
                continue;
            }
            let decoded: Annotated<EngineOutput> = codec.decode(item).unwrap();
            check_item(&fixture.name, codec, item, &decoded, expected);
            items += 1;
        }
    }
    assert_eq!(items, 49);
}

/// The decoded item says what the fixture says, nulls aside, and what is ours to write comes out as it was.
fn check_item(name: &str, codec: Codec, item: &[u8], decoded: &Annotated<EngineOutput>, expected: &Value) {
    let mut sparse = expected.clone();
    if let Some(output) = sparse.get_mut("data").and_then(Value::as_object_mut) {
        output.retain(|_, value| !value.is_null());
    }
    assert_eq!(serde_json::to_value(decoded).unwrap(), sparse, "{name}");
    // Items with explicit nulls are another worker's style; these are written sparsely.
    if sparse == *expected {
        let mut out = Vec::new();
        envelope::put_item(codec, &mut out, |out| codec.encode_into(decoded, out)).unwrap();
        let whole = Envelope::decode(codec, &out).unwrap();
        assert_eq!(whole.data, Some(item), "{name}");
    }
}

#[test]
fn finish_reasons_decode_in_every_live_form() {
    let decode = |text: &str| serde_json::from_str::<FinishReason>(text);
    assert_eq!(decode(r#""abort""#).unwrap(), FinishReason::Cancelled);
    assert_eq!(decode(r#""eos""#).unwrap(), FinishReason::Eos);
    assert_eq!(decode(r#""content_filter""#).unwrap(), FinishReason::ContentFilter);
    assert_eq!(decode(r#""error""#).unwrap(), FinishReason::Error(String::new()));
    assert_eq!(decode(r#""error: no""#).unwrap(), FinishReason::Error("no".into()));
    assert_eq!(decode(r#"{"error":"no"}"#).unwrap(), FinishReason::Error("no".into()));
    assert_eq!(decode(r#"{"stop":null}"#).unwrap(), FinishReason::Stop);
    for wrong in [r#""nonsense""#, "{}", r#"{"stop":"x"}"#, r#"{"error":"a","stop":null}"#, "1"] {
        assert!(decode(wrong).is_err(), "{wrong}");
    }
    assert_eq!(serde_json::to_string(&FinishReason::Error("no".into())).unwrap(), r#""error: no""#);
}

#[test]
fn an_item_without_token_ids_is_refused() {
    assert!(Codec::Json.decode::<EngineOutput>(br#"{"finish_reason":"stop"}"#).is_err());
    assert!(Codec::Json.decode::<EngineOutput>(br#"{"token_ids":[]}"#).unwrap().token_ids.is_empty());
}

#[test]
fn errors_of_older_workers_are_understood() {
    let decode = |value: Value| serde_json::from_value::<DynamoError>(value).unwrap();
    let error = decode(json!({"error_type": "CannotConnect", "message": "m"}));
    assert_eq!((error.reason, error.diagnostic.as_str()), (Reason::CannotConnect, "m"));
    assert_eq!(decode(json!({"error_type": {"Backend": "EngineShutdown"}})).reason, Reason::EngineShutdown);
    assert_eq!(decode(json!({"error_type": "Internal"})).reason, Reason::Internal);
    assert_eq!(decode(json!({"class": "Cancelled"})).reason, Reason::RequestCancelled);
    assert_eq!(decode(json!({"error_type": "Novel"})).reason, Reason::Unclassified);
    assert_eq!(decode(json!({})).reason, Reason::Unclassified);
}

#[test]
fn an_error_that_contradicts_itself_is_not_trusted() {
    let public = json!({"type": "message", "message": "secret"});
    for value in [
        json!({"class": "NotFound", "reason": "request.conflict", "public": public}),
        json!({"class": "NotFound", "reason": "no.such.reason", "public": public}),
        json!({"class": "Unheard", "reason": "request.not_found", "public": public}),
    ] {
        let error: DynamoError = serde_json::from_value(value).unwrap();
        assert_eq!((error.reason, error.public_message()), (Reason::InvalidError, None));
    }
}

#[test]
fn fault_and_retry_follow_from_the_reason() {
    let error = |reason| DynamoError::new(reason, "");
    assert_eq!(error(Reason::BackendInvalidArgument).fault(), Fault::Client);
    assert_eq!(error(Reason::Disconnected).fault(), Fault::Transport);
    assert_eq!(error(Reason::EngineShutdown).fault(), Fault::Worker);
    assert_eq!(error(Reason::WorkerOverloaded).fault(), Fault::Overload);
    assert_eq!(error(Reason::ResponseTimeout).fault(), Fault::Deadline);
    assert!(error(Reason::WorkerOverloaded).is_retryable());
    assert!(!error(Reason::PoolExhausted).is_retryable());
    assert!(!error(Reason::BackendUnavailable).is_retryable());
    let caused = DynamoError {
        caused_by: Some(Box::new(error(Reason::BackendCancelled))),
        ..error(Reason::Disconnected)
    };
    assert!(!caused.is_retryable());
    let value = serde_json::to_value(&caused).unwrap();
    assert_eq!(serde_json::from_value::<DynamoError>(value).unwrap().caused_by, caused.caused_by);
}

#[test]
fn long_diagnostics_are_cut_between_characters() {
    let error = DynamoError::new(Reason::Internal, "é".repeat(4096));
    assert_eq!(error.diagnostic.len(), 4096);
    let odd = DynamoError::new(Reason::Internal, format!("x{}", "é".repeat(4096)));
    assert_eq!(odd.diagnostic.len(), 4095);
}

#[test]
fn an_error_told_only_in_remarks_is_an_error() {
    let item = json!({"event": "error", "comment": ["one", "two"]});
    let mut item: Annotated<EngineOutput> = serde_json::from_value(item).unwrap();
    assert_eq!(item.take_error().unwrap().diagnostic, "one; two");
    let mut item = Annotated::from_data(EngineOutput::default());
    assert_eq!(item.take_error(), None);
}

#[test]
fn nesting_is_bounded_in_both_codecs() {
    let deep = 200_000;
    let mut msgpack = b"\x82\xa9token_ids\x90\xabengine_data".to_vec();
    msgpack.extend(std::iter::repeat_n(0x91, deep));
    msgpack.push(0xc0);
    assert!(Codec::Msgpack.decode::<EngineOutput>(&msgpack).is_err());
    let json = format!(r#"{{"token_ids":[],"engine_data":{}{}}}"#, "[".repeat(deep), "]".repeat(deep));
    assert!(Codec::Json.decode::<EngineOutput>(json.as_bytes()).is_err());
}
