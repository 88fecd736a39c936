use roost_wire::message::{AgentContext, FinishReason, OutputOptions, Routing, StopReason};

use super::{answer, cached, config, engine, finish, ids, request};
use crate::mock::Answer;
use crate::{EngineError, MockEngine};

#[tokio::test]
async fn the_last_token_carries_reason_and_usage() {
    let items = answer(&engine(|_| {}), request("hello world", 4)).await.unwrap();
    assert_eq!(items.len(), 4, "one token per item");
    let first = items[0].completion_usage.as_ref().unwrap();
    assert_eq!((first.prompt_tokens, first.completion_tokens, first.total_tokens), (11, 1, 12));
    assert!(items[1].completion_usage.is_none() && items[1].finish_reason.is_none());
    assert_eq!(finish(&items), Some(FinishReason::Length));
    let last = items[3].completion_usage.as_ref().unwrap();
    assert_eq!((last.prompt_tokens, last.completion_tokens, last.total_tokens), (11, 4, 15));
    assert_eq!(items[3].engine_data.as_ref().unwrap()["kv_cache_hit"]["reused_tokens"], 0);
}

#[tokio::test]
async fn a_repeated_prompt_is_cached_in_whole_blocks_and_answered_alike() {
    let engine = engine(|_| {});
    let first = answer(&engine, request("hello world", 4)).await.unwrap();
    let second = answer(&engine, request("hello world", 4)).await.unwrap();
    assert_eq!((cached(&first), cached(&second)), (Some(0), Some(8)));
    assert_eq!(ids(&first), ids(&second));
    let other = MockEngine::new(config());
    assert_eq!(ids(&answer(&other, request("hello world", 4)).await.unwrap()), ids(&first), "on any engine");
    assert_ne!(ids(&answer(&other, request("hello there", 4)).await.unwrap()), ids(&first));
}

#[tokio::test]
async fn what_was_generated_is_cached_for_the_next_turn() {
    let engine = engine(|_| {});
    let mut turn = request("hello world", 6);
    let first = ids(&answer(&engine, turn.clone()).await.unwrap());
    turn.token_ids = [&turn.token_ids[..], &first, &[10, 10]].concat().into();
    // 11 + 6 tokens: four full blocks, of which the last token of the answer was never computed.
    assert_eq!(cached(&answer(&engine, turn).await.unwrap()), Some(16));
}

#[tokio::test]
async fn an_answer_ends_with_its_end_of_turn_token() {
    let items = answer(&engine(|_| {}), request("hello", 100)).await.unwrap();
    assert_eq!(finish(&items), Some(FinishReason::Stop));
    assert_eq!(items.last().unwrap().stop_reason, Some(StopReason::Token(258)));
    assert_eq!((ids(&items).len(), ids(&items)[6]), (7, 258));

    let mut ignoring = request("hello", 20);
    ignoring.stop_conditions.ignore_eos = Some(true);
    let items = answer(&engine(|_| {}), ignoring).await.unwrap();
    assert_eq!((ids(&items).len(), finish(&items)), (20, Some(FinishReason::Length)));

    let mut at_least = request("hello", 20);
    at_least.stop_conditions.min_tokens = Some(12);
    let items = answer(&engine(|_| {}), at_least).await.unwrap();
    assert_eq!((ids(&items).len(), ids(&items)[12]), (13, 258));

    let mut unlimited = request("hello", 0);
    unlimited.stop_conditions.max_tokens = None;
    unlimited.eos_token_ids.clear();
    let items = answer(&engine(|_| {}), unlimited).await.unwrap();
    assert_eq!(
        (ids(&items).len(), finish(&items)),
        (6, Some(FinishReason::Stop)),
        "no token stands for the end"
    );
}

#[tokio::test]
async fn stop_tokens_end_an_answer_once_the_minimum_is_reached() {
    let letters = |change: fn(&mut roost_wire::message::StopConditions)| {
        let mut wanted = request("hello", 10);
        change(&mut wanted.stop_conditions);
        async move {
            let engine =
                engine(|config| config.answer = Answer::Tokens { vocabulary: 97..98, length: 50..51 });
            answer(&engine, wanted).await.unwrap()
        }
    };
    let items = letters(|stop| stop.stop_token_ids = Some(vec![97])).await;
    assert_eq!((ids(&items), finish(&items)), (vec![97], Some(FinishReason::Stop)));
    assert_eq!(items[0].stop_reason, Some(StopReason::Token(97)));
    let items = letters(|stop| {
        stop.stop_token_ids_hidden = Some(vec![97]);
        stop.min_tokens = Some(3);
    })
    .await;
    assert_eq!(ids(&items).len(), 4);
}

#[tokio::test]
async fn several_tokens_per_item_and_none_at_all() {
    let engine = engine(|config| config.tokens_per_item = 3);
    let items = answer(&engine, request("hello", 7)).await.unwrap();
    assert_eq!(items.iter().map(|item| item.token_ids.len()).collect::<Vec<_>>(), [3, 3, 1]);
    let none = answer(&engine, request("hello", 0)).await.unwrap();
    assert_eq!((none.len(), ids(&none).len(), finish(&none)), (1, 0, Some(FinishReason::Length)));
}

#[tokio::test]
async fn choices_are_interleaved_and_differ() {
    let mut wanted = request("hello", 5);
    wanted.sampling_options.n = Some(2);
    let items = answer(&engine(|_| {}), wanted).await.unwrap();
    let indices: Vec<u32> = items.iter().map(|item| item.index.unwrap()).collect();
    assert_eq!(indices, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    let of = |index| ids(&items.iter().filter(|item| item.index == Some(index)).cloned().collect::<Vec<_>>());
    assert_ne!(of(0), of(1));
    assert_eq!(items[9].completion_usage.as_ref().unwrap().completion_tokens, 10);
    assert!(items[8].finish_reason.is_some() && items[9].finish_reason.is_some());
}

#[tokio::test]
async fn log_probabilities_come_when_asked_for() {
    let mut wanted = request("hello", 2);
    wanted.output_options = OutputOptions { logprobs: Some(2), ..OutputOptions::default() };
    let items = answer(&engine(|_| {}), wanted).await.unwrap();
    for item in &items {
        assert_eq!(item.log_probs.as_deref(), Some(&[-0.5][..]));
        let top = &item.top_logprobs.as_ref().unwrap()[0];
        assert_eq!((top.len(), top[0].token_id, top[0].logprob), (2, item.token_ids[0], -0.5));
        assert_eq!((top[1].token_id, top[1].logprob), (item.token_ids[0] + 1, -1.5));
        assert_eq!(top[0].token, Some(char::from_u32(item.token_ids[0]).unwrap().to_string()));
    }
}

#[tokio::test]
async fn an_echo_tells_the_turn_and_the_cached_tokens() {
    let engine = engine(|config| config.answer = Answer::Echo);
    let mut wanted = request("hello world", 200);
    wanted.agent_context = Some(AgentContext { session_id: "s-1".into(), ..AgentContext::default() });
    let text = |items: &[_]| {
        String::from_utf8(ids(items).iter().filter(|id| **id < 256).map(|id| *id as u8).collect()).unwrap()
    };
    let first = answer(&engine, wanted.clone()).await.unwrap();
    assert_eq!(text(&first), "This is turn 1 of session s-1. Of 11 prompt tokens, 0 were cached.");
    let second = answer(&engine, wanted).await.unwrap();
    assert_eq!(text(&second), "This is turn 2 of session s-1. Of 11 prompt tokens, 8 were cached.");
    assert_eq!(finish(&second), Some(FinishReason::Stop));
    let nobody = answer(&engine, request("hello world", 200)).await.unwrap();
    assert_eq!(text(&nobody), "Of 11 prompt tokens, 8 were cached.");
}

#[tokio::test]
async fn impossible_requests_are_refused() {
    let engine = engine(|config| {
        config.context_length = 100;
        config.total_blocks = 10;
    });
    let refused = |wanted| async { answer(&engine, wanted).await.unwrap_err() };
    let long = refused(request(&"x".repeat(100), 1)).await;
    assert!(
        matches!(&long, EngineError::InvalidRequest(text) if text.contains("maximum context length")),
        "{long}"
    );
    let big = refused(request(&"x".repeat(60), 1)).await;
    assert!(matches!(&big, EngineError::InvalidRequest(text) if text.contains("KV capacity")), "{big}");
    assert!(matches!(refused(request("", 1)).await, EngineError::InvalidRequest(_)));
    let mut elsewhere = request("hello", 1);
    elsewhere.routing = Some(Routing { dp_rank: Some(3), ..Routing::default() });
    let elsewhere = refused(elsewhere).await;
    assert_eq!(elsewhere.to_string(), "invalid request: dp_rank=3 out of range [0, 1)");
    let mut bypass = request("hello", 1);
    bypass.annotations = vec!["x-bypass-remote-prefill".to_owned()];
    assert!(matches!(refused(bypass).await, EngineError::InvalidRequest(_)));
}

#[tokio::test]
async fn tenants_share_no_cache() {
    let engine = engine(|_| {});
    answer(&engine, request("hello world", 1)).await.unwrap();
    let mut salted = request("hello world", 1);
    salted.routing = Some(Routing { cache_salt: Some("tenant".into()), ..Routing::default() });
    assert_eq!(cached(&answer(&engine, salted.clone()).await.unwrap()), Some(0));
    assert_eq!(cached(&answer(&engine, salted).await.unwrap()), Some(8));
}
