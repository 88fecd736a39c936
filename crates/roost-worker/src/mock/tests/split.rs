use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use roost_wire::message::{BootstrapInfo, EngineRequest};

use super::{answer, cached, collect, engine, request};
use crate::mock::Transfers;
use crate::{BootstrapEndpoint, Engine, EngineContext, EngineError, MockEngine, Role, ScriptBook};

fn split(role: Role, transfers: Option<&Arc<Transfers>>) -> MockEngine {
    engine(|config| {
        config.role = role;
        config.transfers = transfers.cloned();
        config.dp_size = if role == Role::Prefill { 2 } else { 1 };
        config.bootstrap = Some(BootstrapEndpoint { host: "10.0.0.7".into(), port: 8998 });
    })
}

fn leg(room: u64) -> EngineRequest {
    let info = BootstrapInfo {
        bootstrap_host: "10.0.0.9".into(),
        bootstrap_port: 8999,
        bootstrap_room: room,
        handoff_id: None,
    };
    EngineRequest { bootstrap_info: Some(info), ..request("hello world", 3) }
}

#[tokio::test]
async fn prefill_answers_with_the_triple_and_the_cache_hit() {
    let engine = split(Role::Prefill, None);
    for expected in [0, 8] {
        let items = answer(&engine, leg(1 << 62)).await.unwrap();
        assert_eq!(items.len(), 2);
        assert!(items.iter().all(|item| item.token_ids.is_empty() && item.finish_reason.is_none()));
        let triple = items[0].disaggregated_params.as_ref().unwrap();
        assert_eq!(
            (triple["bootstrap_host"].as_str(), triple["bootstrap_port"].as_u64()),
            (Some("10.0.0.9"), Some(8999))
        );
        assert_eq!(triple["bootstrap_room"].as_u64(), Some(1 << 62));
        let hit = &items[1].engine_data.as_ref().unwrap()["kv_cache_hit"];
        assert_eq!(
            (hit["prompt_tokens"].as_u64(), hit["reused_tokens"].as_u64()),
            (Some(11), Some(expected))
        );
    }
}

#[tokio::test]
async fn prefill_without_a_room_makes_one() {
    let items = answer(&split(Role::Prefill, None), request("hello", 1)).await.unwrap();
    let triple = items[0].disaggregated_params.as_ref().unwrap();
    assert_eq!(
        (triple["bootstrap_host"].as_str(), triple["bootstrap_port"].as_u64()),
        (Some("10.0.0.7"), Some(8998))
    );
    assert!(triple["bootstrap_room"].as_u64().unwrap() < 1 << 63);
}

#[tokio::test]
async fn the_room_stands_for_the_prefill_rank() {
    let engine = split(Role::Prefill, None);
    answer(&engine, leg(7)).await.unwrap();
    let used: Vec<u64> = engine.load().borrow().iter().map(|rank| rank.used_blocks).collect();
    assert_eq!(used, [0, 2]);
}

#[tokio::test]
async fn decode_needs_a_room_and_one_choice() {
    let engine = split(Role::Decode, None);
    assert!(matches!(answer(&engine, request("hello", 1)).await, Err(EngineError::Failed(_))));
    let mut many = leg(1);
    many.sampling_options.n = Some(2);
    assert!(matches!(answer(&engine, many).await, Err(EngineError::InvalidRequest(_))));
    assert_eq!(answer(&engine, leg(1)).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn decode_waits_for_prefill_and_repeats_its_cached_tokens() {
    let transfers = Arc::new(Transfers::new());
    let (prefill, decode) = (split(Role::Prefill, Some(&transfers)), split(Role::Decode, Some(&transfers)));
    for (room, expected) in [(2, 0), (4, 8)] {
        let mut waiting = decode.generate(leg(room), EngineContext::new("d"));
        let early = tokio::time::timeout(Duration::from_secs(60), waiting.next()).await;
        assert!(early.is_err(), "no token without the KV cache");
        let prefilled = answer(&prefill, leg(room)).await.unwrap();
        assert_eq!(prefilled.len(), 2);
        assert_eq!(cached(&collect(waiting).await.unwrap()), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_fails_one_leg() {
    let failing = |role| {
        engine(|config| {
            config.role = role;
            let book = r#"{"x": [{"role": "prefill", "sleep_s": 0.2, "raise": "exploded"}, {"text": "hi"}, {"finish": "stop"}]}"#;
            config.scripts = ScriptBook::from_json(book).unwrap();
        })
    };
    let wanted = EngineRequest { bootstrap_info: leg(1).bootstrap_info, ..request("@@x@@", 9) };
    let failed = answer(&failing(Role::Prefill), wanted.clone()).await;
    assert_eq!(failed, Err(EngineError::Failed("exploded".into())));
    assert_eq!(answer(&failing(Role::Decode), wanted).await.unwrap().len(), 2);
}
