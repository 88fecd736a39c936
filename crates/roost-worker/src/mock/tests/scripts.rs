use std::time::Duration;

use roost_wire::message::{EngineRequest, FinishReason};
use tokio::time::Instant;

use super::{answer, cached, config, engine, finish, ids, request};
use crate::{EngineError, MockEngine, Script, ScriptBook, Step};

const BOOK: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/cases/fixtures/worker-scripts.json"
));

fn scripted() -> MockEngine {
    engine(|config| config.scripts = ScriptBook::from_json(BOOK).unwrap())
}

fn unlimited(prompt: &str) -> EngineRequest {
    let mut wanted = request(prompt, 0);
    wanted.stop_conditions.max_tokens = None;
    wanted
}

#[tokio::test]
async fn text_and_ids_come_as_written() {
    let items = answer(&scripted(), unlimited("say @@emoji@@ please")).await.unwrap();
    let said: Vec<Vec<u32>> = items.iter().map(|item| item.token_ids.to_vec()).collect();
    assert_eq!(said[0], [111, 107, 32]);
    assert_eq!(said[1..5], [[240], [159], [152], [128]]);
    assert_eq!(said[5..].concat(), " é你".bytes().map(u32::from).collect::<Vec<_>>());
    assert_eq!(said.last().unwrap().len(), 0, "the finish stands alone");
    assert_eq!(finish(&items), Some(FinishReason::Stop));
    let with_ids = answer(&scripted(), unlimited("@@eosfinish@@")).await.unwrap();
    assert_eq!(
        (with_ids.last().unwrap().token_ids.to_vec(), finish(&with_ids)),
        (vec![258], Some(FinishReason::Stop))
    );
}

#[tokio::test]
async fn usage_is_as_the_script_says() {
    let items = answer(&scripted(), unlimited("@@cached@@")).await.unwrap();
    assert_eq!(cached(&items), Some(16));
    let usage = items.last().unwrap().completion_usage.as_ref().unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (10, 3));
    for wanted in [unlimited("@@nousage@@"), request("@@nousage@@", 2)] {
        let items = answer(&scripted(), wanted).await.unwrap();
        assert!(items.iter().all(|item| item.completion_usage.is_none()));
    }
}

#[tokio::test]
async fn prompts_may_spell_out_their_answer() {
    let engine = engine(|config| {
        let book = ScriptBook::from_json(BOOK).unwrap();
        config.scripts = book.with_directives().with_fallback(Script::say("Hello world"));
    });
    let ask = |prompt: &str| answer(&engine, unlimited(prompt));
    let items = ask(r#"@@{"out": "}@@ab", "chunk": 2}@@ tail"#).await.unwrap();
    let said: Vec<Vec<u32>> = items.iter().map(|item| item.token_ids.to_vec()).collect();
    assert_eq!(said, ["}@", "@a", "b", ""].map(|text| text.bytes().map(u32::from).collect::<Vec<_>>()));
    assert_eq!((finish(&items), cached(&items)), (Some(FinishReason::Stop), None));

    let items = ask(r#"@@{"ids": [1, 2], "nidx": 2, "finish": "length"}@@"#).await.unwrap();
    let said: Vec<(Option<u32>, Vec<u32>)> =
        items.iter().map(|item| (item.index, item.token_ids.to_vec())).collect();
    let expected = [(0, vec![1]), (1, vec![1]), (0, vec![2]), (1, vec![2]), (0, vec![]), (1, vec![])];
    assert_eq!(said, expected.map(|(index, ids)| (Some(index), ids)));
    assert_eq!(finish(&items), Some(FinishReason::Length));

    let usage = r#"{"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 8}}"#;
    assert_eq!(cached(&ask(&format!(r#"@@{{"out": "Hi", "usage": {usage}}}@@"#)).await.unwrap()), Some(8));

    let rejected = ask(r#"@@{"raise": "ValueError", "msg": "bad thing"}@@"#).await;
    assert_eq!(rejected, Err(EngineError::Rejected("bad thing".into())));
    let failed = ask(r#"@@{"raise": "RuntimeError", "msg": "bad thing"}@@"#).await;
    assert_eq!(failed, Err(EngineError::Failed("bad thing".into())));
    let mid = ask(r#"@@{"out": "one two", "raiseat": 3}@@"#).await;
    assert_eq!(mid, Err(EngineError::Failed("mid-stream boom".into())));

    assert_eq!(ids(&ask("@@hello@@").await.unwrap()).len(), 5, "names still work");
    assert_eq!(ids(&ask(r#"@@{"tuo": "x"}@@"#).await.unwrap()).len(), 11, "the fallback answers");
}

#[tokio::test(start_paused = true)]
async fn pauses_take_their_time() {
    let started = Instant::now();
    answer(&scripted(), unlimited("@@slow3@@")).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    let started = Instant::now();
    let items = answer(&scripted(), unlimited("@@drip@@")).await.unwrap();
    assert_eq!((items.len(), started.elapsed()), (201, Duration::from_millis(199 * 50)));
}

#[tokio::test(start_paused = true)]
async fn failures_come_after_what_was_said() {
    use futures_util::StreamExt;

    use crate::{Engine, EngineContext};

    let mut stream = scripted().generate(unlimited("@@die@@"), EngineContext::new("r"));
    let mut said = 0;
    let error = loop {
        match stream.next().await.unwrap() {
            Ok(item) => said += item.token_ids.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(said, "partial answer".len());
    assert_eq!(error, EngineError::Failed("engine exploded at /secret/path.py line 12".into()));
    assert!(stream.next().await.is_none());

    let first = answer(&scripted(), unlimited("@@raise0@@")).await.unwrap_err();
    assert_eq!(first, EngineError::Failed("boom before first token".into()));
    let errfinish = answer(&scripted(), unlimited("@@errfinish@@")).await.unwrap();
    assert_eq!(finish(&errfinish), Some(FinishReason::Error(String::new())));
    let noterm = answer(&scripted(), unlimited("@@noterm@@")).await.unwrap();
    assert_eq!(finish(&noterm), None);
}

#[tokio::test]
async fn refusals_are_public_or_not() {
    let mut config = config();
    let refuse = Step { raise_invalid: Some("no such thing".into()), ..Step::default() };
    config.scripts.insert("refuse", Script::new([refuse]));
    config.scripts.insert("reject", Script::new([Step { reject: Some("bad".into()), ..Step::default() }]));
    let engine = MockEngine::new(config);
    let refused = answer(&engine, unlimited("@@refuse@@")).await.unwrap_err();
    assert_eq!(refused, EngineError::InvalidRequest("no such thing".into()));
    let rejected = answer(&engine, unlimited("@@reject@@")).await.unwrap_err();
    assert_eq!(rejected, EngineError::Rejected("bad".into()));
}

#[tokio::test]
async fn the_token_limit_cuts_a_script() {
    let items = answer(&scripted(), request("@@hello@@", 3)).await.unwrap();
    assert_eq!((ids(&items), finish(&items)), (vec![104, 101, 108], Some(FinishReason::Length)));
    let exact = answer(&scripted(), request("@@hello@@", 5)).await.unwrap();
    assert_eq!(
        (ids(&exact).len(), finish(&exact)),
        (5, Some(FinishReason::Length)),
        "no token is left to stop with"
    );
    let roomy = answer(&scripted(), request("@@hello@@", 6)).await.unwrap();
    assert_eq!((ids(&roomy).len(), finish(&roomy)), (5, Some(FinishReason::Stop)));
}

#[tokio::test]
async fn a_script_may_say_more_than_fits_the_cache() {
    let items = answer(&scripted(), unlimited("@@flood@@")).await.unwrap();
    assert_eq!(ids(&items).len(), 1_500_000);
    assert_eq!(finish(&items), Some(FinishReason::Stop));
}

#[tokio::test]
async fn exit_ends_the_process_without_an_answer() {
    let mut config = config();
    config.scripts.insert("die", Script::new([Step::text("x"), Step { exit: true, ..Step::default() }]));
    let exit = config.exit.clone();
    let engine = MockEngine::new(config);
    let (_, ended) = tokio::join!(exit.cancelled(), async {
        tokio::select! {
            _ = answer(&engine, unlimited("@@die@@")) => false,
            () = exit.cancelled() => true,
        }
    });
    assert!(ended);
}

#[tokio::test]
async fn prompts_without_a_script_are_answered_as_ever() {
    let plain = answer(&engine(|_| {}), request("hello @@nothing@@", 4)).await.unwrap();
    assert_eq!(ids(&answer(&scripted(), request("hello @@nothing@@", 4)).await.unwrap()), ids(&plain));
}
