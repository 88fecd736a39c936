use serde_json::json;

use super::*;

fn fixture(name: &str) -> Value {
    let path = format!("{}/../../tests/fixtures/sglang/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn captured() -> [Value; 3] {
    ["agg.server_info.excerpt.json", "agg.model_info.http", "agg.v1_models.http"].map(fixture)
}

#[test]
fn a_captured_server() {
    let [info, model, models] = captured();
    let read = server_info(&info, &model, &models).unwrap();
    assert_eq!(
        read,
        ServerInfo {
            model_name: "tiny".into(),
            model_path: "/models/tiny-qwen3-2l".into(),
            tokenizer_path: "/models/tiny-qwen3-2l".into(),
            role: Role::Aggregated,
            context_length: 4096,
            block_size: 16,
            dp_size: 1,
            max_total_tokens: 8192,
            max_running_requests: 8,
            max_prefill_tokens: 4096,
            chat_template: None,
            tool_call_parser: None,
            reasoning_parser: None,
            bootstrap_port: None,
            kv_events: Some(KvEventSockets {
                host: None,
                port_base: 31557,
                topic: "kv-events".into(),
                replay_port_base: Some(31657),
                load_port_base: None,
                load_topic: "load".into(),
            }),
            bigram_keys: false,
            version: "0.5.23".into(),
            remarks: Vec::new(),
        }
    );
}

#[test]
fn roles_ranks_and_sockets() {
    let [mut info, model, models] = captured();
    info["disaggregation_mode"] = json!("prefill");
    info["kv_events"]["endpoint_host"] = json!("*");
    info["kv_events"]["dp_size"] = json!(4);
    info["kv_events"]["load_endpoint_port_base"] = json!(31700);
    info["tool_call_parser"] = json!("deepseekv31");
    info["speculative_algorithm"] = json!("EAGLE");
    let read = server_info(&info, &model, &models).unwrap();
    assert_eq!((read.role, read.bootstrap_port, read.dp_size), (Role::Prefill, Some(8998), 4));
    assert_eq!(read.tool_call_parser.as_deref(), Some("deepseekv31"));
    assert!(read.bigram_keys);
    let sockets = read.kv_events.unwrap();
    assert_eq!((sockets.host, sockets.load_port_base), (None, Some(31700)));

    info["kv_events"] = Value::Null;
    (info["dp_size"], info["attn_dp_size"]) = (json!(2), json!(4));
    (info["page_size"], info["dcp_size"]) = (json!(64), json!(2));
    let read = server_info(&info, &model, &models).unwrap();
    assert_eq!((read.dp_size, read.block_size), (8, 128));
    assert!(read.remarks[0].contains("--kv-events-config"), "{:?}", read.remarks);
    info["internal_states"] = json!([{}, {}]);
    assert_eq!(server_info(&info, &model, &models).unwrap().dp_size, 2);
    info["context_length"] = Value::Null;
    let read = server_info(&info, &model, &models).unwrap();
    assert_eq!(read.context_length, 4096, "the list of models tells");
}

#[test]
fn servers_that_cannot_be_used_say_why() {
    let [mut info, mut model, models] = captured();
    info["disaggregation_mode"] = json!("null");
    info["kv_events"]["dp_size"] = json!(1_000_000);
    assert!(server_info(&info, &model, &models).unwrap_err().contains("ranks"));
    let [info, ..] = captured();
    model["is_generation"] = json!(false);
    assert!(server_info(&info, &model, &models).unwrap_err().contains("embeddings"));
    assert!(server_info(&json!({}), &json!({}), &Value::Null).unwrap_err().contains("model_path"));
}
