use std::time::Duration;

use futures_util::StreamExt;
use roost_wire::message::{FinishReason, Routing};
use tokio::time::Instant;

use super::{answer, collect, engine, finish, ids, request};
use crate::mock::{MockConfig, MockTiming};
use crate::{Cancel, Engine, EngineContext, MockEngine, RankLoad};

/// 100 tokens/s prefill, 10 ms between tokens.
fn paced(change: impl FnOnce(&mut MockConfig)) -> MockEngine {
    engine(|config| {
        config.timing = MockTiming {
            prefill_base: Duration::from_millis(50),
            prefill_tokens_per_s: 100.0,
            itl: Duration::from_millis(10),
            speed: 1.0,
        };
        change(config);
    })
}

async fn load(engine: &MockEngine, wanted: impl FnMut(&Vec<RankLoad>) -> bool) -> Vec<RankLoad> {
    let mut load = engine.load();
    tokio::time::timeout(Duration::from_secs(60), load.wait_for(wanted)).await.unwrap().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn prefill_takes_the_uncached_tokens_and_decode_its_steps() {
    let engine = paced(|_| {});
    let started = Instant::now();
    let mut stream = engine.generate(request(&"x".repeat(40), 5), EngineContext::new("r"));
    stream.next().await.unwrap().unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(450));
    assert_eq!(collect(stream).await.unwrap().len(), 4);
    assert_eq!(started.elapsed(), Duration::from_millis(490));

    let again = Instant::now();
    answer(&engine, request(&"x".repeat(44), 1)).await.unwrap();
    assert_eq!(again.elapsed(), Duration::from_millis(90), "only the new block is computed");

    let fast = paced(|config| config.timing.speed = 10.0);
    let started = Instant::now();
    answer(&fast, request(&"x".repeat(40), 5)).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(49));
}

#[tokio::test(start_paused = true)]
async fn a_rank_prefills_one_prompt_at_a_time_and_ranks_do_not_wait_for_each_other() {
    let engine = paced(|config| config.dp_size = 2);
    let started = Instant::now();
    let ask = |prompt: &str, dp_rank| {
        let mut wanted = request(&prompt.repeat(35), 1);
        wanted.routing = Some(Routing { dp_rank: Some(dp_rank), ..Routing::default() });
        let stream = engine.generate(wanted, EngineContext::new(prompt));
        async move {
            collect(stream).await.unwrap();
            started.elapsed().as_millis()
        }
    };
    let times = tokio::join!(ask("a", 0), ask("b", 0), ask("c", 1));
    assert_eq!(times, (400, 800, 400));
}

#[tokio::test(start_paused = true)]
async fn queued_requests_share_the_prefix_of_the_one_before() {
    let engine = paced(|_| {});
    let started = Instant::now();
    let prompt = "x".repeat(40);
    let (first, second) =
        tokio::join!(answer(&engine, request(&prompt, 1)), answer(&engine, request(&prompt, 1)));
    assert_eq!((super::cached(&first.unwrap()), super::cached(&second.unwrap())), (Some(0), Some(40)));
    assert_eq!(started.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn load_is_reported_and_returns_to_nothing() {
    let engine = paced(|_| {});
    let mut stream = engine.generate(request(&"x".repeat(40), 8), EngineContext::new("a"));
    let waiting = engine.generate(request(&"y".repeat(20), 8), EngineContext::new("b"));
    let busy = load(&engine, |load| load[0].running_requests == 1 && load[0].waiting_requests == 1).await;
    let expected = RankLoad {
        dp_rank: 0,
        running_requests: 1,
        waiting_requests: 1,
        active_blocks: 12,
        active_prefill_tokens: 60,
        used_blocks: 12,
        total_blocks: 64,
    };
    assert_eq!(busy[0], expected);
    stream.next().await.unwrap().unwrap();
    load(&engine, |load| load[0].active_prefill_tokens == 20).await;
    drop((stream, waiting));
    let idle = load(&engine, |load| load[0].running_requests == 0 && load[0].waiting_requests == 0).await;
    assert_eq!((idle[0].active_blocks, idle[0].active_prefill_tokens), (0, 0));
    assert_eq!(idle[0].used_blocks, 10, "the prompt stays cached");
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_makes_requests_wait() {
    let engine = paced(|config| config.total_blocks = 16);
    let first = engine.generate(request(&"x".repeat(40), 20), EngineContext::new("a"));
    let second = engine.generate(request(&"y".repeat(40), 20), EngineContext::new("b"));
    let (first, second) = tokio::join!(async { (collect(first).await.unwrap(), Instant::now()).1 }, async {
        (collect(second).await.unwrap(), Instant::now()).1
    });
    assert_eq!(second - first, Duration::from_millis(450 + 60), "the second begins when the first is done");
}

#[tokio::test(start_paused = true)]
async fn slots_limit_what_runs_at_once() {
    let engine = paced(|config| config.max_num_seqs = 1);
    let streams = ["a", "b"].map(|prompt| engine.generate(request(prompt, 5), EngineContext::new(prompt)));
    load(&engine, |load| load[0].running_requests == 1 && load[0].waiting_requests == 1).await;
    for stream in streams {
        assert_eq!(ids(&collect(stream).await.unwrap()).len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn kill_ends_at_once_and_stop_says_so() {
    for after in [1, 300] {
        for kill in [true, false] {
            let engine =
                paced(|config| config.answer = super::Answer::Tokens { vocabulary: 97..99, length: 99..100 });
            let cancel = Cancel::new();
            let context = EngineContext { id: "r".into(), cancel: cancel.clone() };
            let stream = engine.generate(request("xxxx", 90), context);
            tokio::time::sleep(Duration::from_millis(after)).await;
            if kill {
                cancel.kill();
            } else {
                cancel.stop();
            }
            let asked = Instant::now();
            let items = collect(stream).await.unwrap();
            assert_eq!(asked.elapsed(), Duration::ZERO);
            assert_eq!(finish(&items), (!kill).then_some(FinishReason::Cancelled), "after {after} ms");
            load(&engine, |load| load[0].active_blocks == 0 && load[0].running_requests == 0).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unread_answer_stalls_alone() {
    let engine = engine(|config| {
        config.total_blocks = 128;
        config.answer = super::Answer::Tokens { vocabulary: 97..99, length: 150..151 };
    });
    let mut unread = engine.generate(request("x", 150), EngineContext::new("a"));
    unread.next().await.unwrap().unwrap();
    assert_eq!(ids(&answer(&engine, request("y", 150)).await.unwrap()).len(), 150);
    assert_eq!(engine.load().borrow()[0].running_requests, 1);
    assert_eq!(ids(&collect(unread).await.unwrap()).len(), 149);
}
