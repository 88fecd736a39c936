use roost_wire::message::{AgentContext, BootstrapInfo, Routing};
use serde_json::json;

use super::*;

const ONE: Limits = Limits { role: Role::Aggregated, dp_size: 1 };

fn json_of(request: &EngineRequest, limits: &Limits) -> Value {
    serde_json::from_slice(&body(request, "r-1", limits).unwrap()).unwrap()
}

#[test]
fn what_is_not_asked_for_is_not_said() {
    let mut request = EngineRequest { token_ids: vec![1, 22, 151_643].into(), ..EngineRequest::default() };
    assert_eq!(
        json_of(&request, &ONE),
        json!({"rid": "r-1", "stream": true, "sampling_params": {"max_new_tokens": null}, "input_ids": [1, 22, 151_643]})
    );
    request.token_ids = Vec::new().into();
    assert_eq!(json_of(&request, &ONE)["input_ids"], json!([]));
}

#[test]
fn everything_that_a_server_understands_is_passed_on() {
    let mut request =
        EngineRequest { token_ids: vec![5].into(), eos_token_ids: vec![2, 1], ..EngineRequest::default() };
    let stop = &mut request.stop_conditions;
    (stop.max_tokens, stop.min_tokens, stop.max_thinking_tokens) = (Some(9), Some(3), Some(40));
    stop.stop_token_ids = Some(vec![7]);
    let options = &mut request.sampling_options;
    (options.temperature, options.top_p, options.top_k, options.min_p) =
        (Some(0.5), Some(0.9), Some(0), Some(0.1));
    (options.n, options.seed) = (Some(2), Some(11));
    options.logit_bias = Some([("5".to_owned(), -1.5)].into());
    options.frequency_penalty = Some(0.25);
    options.repetition_penalty = Some(1.1);
    request.output_options.logprobs = Some(2);
    request.require_reasoning = true;
    request.agent_context = Some(AgentContext { session_id: "s".into(), ..AgentContext::default() });
    request.routing = Some(Routing {
        dp_rank: Some(1),
        priority: Some(4),
        cache_salt: Some("tenant".into()),
        lora_name: Some("adapter".into()),
        ..Routing::default()
    });
    let said = json_of(&request, &Limits { role: Role::Aggregated, dp_size: 2 });
    assert_eq!(
        said,
        json!({
            "rid": "r-1", "stream": true,
            "sampling_params": {
                "max_new_tokens": 9, "min_new_tokens": 3, "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": -1,
                "min_p": 0.1, "frequency_penalty": 0.25, "repetition_penalty": 1.1, "sampling_seed": 11,
                "stop_token_ids": [1, 2, 7], "logit_bias": {"5": -1.5},
            },
            "return_logprob": true, "logprob_start_len": -1, "top_logprobs_num": 2,
            "priority": 4, "lora_path": "adapter", "session_id": "s", "cache_salt": "tenant",
            "require_reasoning": true, "max_thinking_tokens": 40, "routed_dp_rank": 1, "input_ids": [5],
        })
    );
    request.stop_conditions.ignore_eos = Some(true);
    let said = json_of(&request, &ONE);
    assert_eq!(said["sampling_params"]["stop_token_ids"], json!([7]));
    assert_eq!(said["sampling_params"]["ignore_eos"], json!(true));
    assert!(said["routed_dp_rank"].is_null(), "a server of one rank has no choice");
}

#[test]
fn guides_in_their_four_forms() {
    let guided = |guide| {
        let mut request = EngineRequest::default();
        request.sampling_options.guided_decoding = Some(guide);
        json_of(&request, &ONE)["sampling_params"].clone()
    };
    let schema = json!({"type": "object"});
    let said = guided(GuidedDecoding { json: Some(schema.clone()), ..GuidedDecoding::default() });
    assert_eq!(serde_json::from_str::<Value>(said["json_schema"].as_str().unwrap()).unwrap(), schema);
    let said =
        guided(GuidedDecoding { choice: Some(vec!["a.b".into(), "c".into()]), ..GuidedDecoding::default() });
    assert_eq!(said["regex"], "(a\\.b|c)");
    let said = guided(GuidedDecoding { grammar: Some("root ::= x".into()), ..GuidedDecoding::default() });
    assert_eq!(said["ebnf"], "root ::= x");
    let tag = json!({"type": "structural_tag"});
    let said = guided(GuidedDecoding { structural_tag: Some(tag), ..GuidedDecoding::default() });
    assert!(said["structural_tag"].is_string());
}

#[test]
fn both_legs_meet_in_one_room() {
    let mut request = EngineRequest { token_ids: vec![5].into(), ..EngineRequest::default() };
    let decode = Limits { role: Role::Decode, dp_size: 2 };
    assert!(body(&request, "r", &decode).is_err(), "it would wait for a prefill server that nobody asked");
    request.bootstrap_info = Some(BootstrapInfo {
        bootstrap_host: "10.0.0.7".into(),
        bootstrap_port: 8998,
        bootstrap_room: (1 << 63) - 1,
        handoff_id: None,
    });
    request.routing = Some(Routing { dp_rank: Some(1), prefill_dp_rank: Some(3), ..Routing::default() });
    let said = json_of(&request, &decode);
    assert_eq!(said["bootstrap_room"].as_u64(), Some((1 << 63) - 1));
    assert_eq!((&said["bootstrap_host"], &said["bootstrap_port"]), (&json!("10.0.0.7"), &json!(8998)));
    assert_eq!((&said["routed_dp_rank"], &said["disagg_prefill_dp_rank"]), (&json!(1), &json!(3)));
    request.sampling_options.n = Some(2);
    assert!(matches!(body(&request, "r", &decode), Err(EngineError::InvalidRequest(_))));
}
