//! Every way a worker can fail, at every moment of a request, on every leg: what the client gets and by when, and that
//! nothing is left behind.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use roost_tests::{Cluster, MODEL, Options, worker_of};
use roost_wire::Misbehaviour;
use roost_worker::{Fault, Role};
use serde_json::{Value, json};

/// Items of an answer: five tokens and the end.
const ITEMS: u64 = 6;
/// Limit of every wait for a worker where one has to pass. The healthy workers must keep it too, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(1);
/// Limit where none may pass: longer than the test waits.
const FAR: Duration = Duration::from_secs(60);
/// How late a slow worker is.
const SLOW: Duration = Duration::from_millis(300);
/// More than a loaded machine needs for what takes no time.
const SLACK: Duration = Duration::from_secs(10);

/// What befalls the worker.
#[derive(Debug, Clone)]
enum Fate {
    /// It misbehaves with the next request.
    Fault(Fault),
    /// `kill -9` before the request: its records stay.
    Killed,
    /// `kill -9` when it has acknowledged the request.
    KilledAfterAck,
    /// `SIGTERM` before the request.
    Terminated,
    /// `SIGTERM` when it has acknowledged the request.
    TerminatedAfterAck,
    /// `SIGTERM` while it runs the request.
    TerminatedMeanwhile,
    /// `SIGTERM` when all is said but the end.
    TerminatedAtTheEnd,
}

/// What the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The whole answer, from whichever worker.
    Whole,
    /// An error with this status: as an event where the stream had begun.
    Error(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leg {
    Aggregated,
    Prefill,
    Decode,
}

use Outcome::{Error, Whole};

/// Fate, moment, outcome on a leg that answers, whether a limit has to pass.
fn answering() -> Vec<(&'static str, Fate, Outcome, bool)> {
    use Fault::{BadItemAfter, CloseAfter, CrashAfter, LatePrologue, Misbehave, PauseAfter, StallAfter};
    use Misbehaviour::{CloseBeforeAck, CloseBeforePrologue, GarbledAck, GarbledPrologue, LateAck};
    let fault = Fate::Fault;
    vec![
        ("kill -9 before the acknowledgement", Fate::Killed, Whole, false),
        ("kill -9 after the acknowledgement", Fate::KilledAfterAck, Whole, false),
        ("kill -9 after the prologue", fault(CrashAfter(0)), Whole, false),
        ("kill -9 in the middle", fault(CrashAfter(2)), Error(503), false),
        ("kill -9 at the end", fault(CrashAfter(ITEMS)), Error(503), false),
        ("SIGSTOP before the acknowledgement", fault(Fault::NoAck), Whole, true),
        ("SIGSTOP after the acknowledgement", fault(Fault::NoCallHome), Whole, true),
        ("SIGSTOP before the prologue", fault(Fault::NoPrologue), Whole, true),
        ("SIGSTOP after the prologue", fault(StallAfter(0)), Whole, true),
        ("SIGSTOP in the middle", fault(StallAfter(2)), Error(504), true),
        ("SIGSTOP at the end", fault(StallAfter(ITEMS)), Whole, true),
        ("network cut before the acknowledgement", fault(Misbehave(CloseBeforeAck)), Whole, false),
        ("network cut after the acknowledgement", fault(Misbehave(CloseBeforePrologue)), Whole, false),
        ("network cut after the prologue", fault(CloseAfter(0)), Whole, false),
        ("network cut in the middle", fault(CloseAfter(2)), Error(503), false),
        ("network cut at the end", fault(CloseAfter(ITEMS)), Error(503), false),
        ("garbage before the acknowledgement", fault(Misbehave(GarbledAck)), Whole, false),
        ("garbage after the acknowledgement", fault(Misbehave(GarbledPrologue)), Whole, false),
        ("garbage after the prologue", fault(BadItemAfter(0)), Whole, false),
        ("garbage in the middle", fault(BadItemAfter(2)), Error(500), false),
        ("garbage at the end", fault(BadItemAfter(ITEMS)), Error(500), false),
        ("overload", fault(Fault::Overloaded), Whole, false),
        ("not served", fault(Fault::Unavailable("gone".into())), Whole, false),
        ("SIGTERM before the request", Fate::Terminated, Whole, false),
        ("SIGTERM after the acknowledgement", Fate::TerminatedAfterAck, Whole, false),
        ("SIGTERM after the prologue and in the middle", Fate::TerminatedMeanwhile, Whole, false),
        ("SIGTERM at the end", Fate::TerminatedAtTheEnd, Whole, false),
        ("slow before the acknowledgement", fault(Misbehave(LateAck(SLOW))), Whole, false),
        ("slow after the acknowledgement", fault(LatePrologue(SLOW)), Whole, false),
        ("slow after the prologue", fault(PauseAfter(0, SLOW)), Whole, false),
        ("slow in the middle", fault(PauseAfter(2, SLOW)), Whole, false),
        ("slow at the end", fault(PauseAfter(ITEMS, SLOW)), Whole, false),
    ]
}

/// The same for the leg that only computes the prompt: it says two things, where the cache will be and that it is done.
/// Once decode has begun, nothing that happens here matters.
fn prefilling() -> Vec<(&'static str, Fate, Outcome, bool)> {
    let outcome = |name: &str, usual: Outcome| match name {
        name if name.ends_with("in the middle") || name.ends_with("at the end") => Whole,
        _ => usual,
    };
    // Of two items instead of six.
    let early = |items: u64| items.min(2) / 2 + items / ITEMS;
    let fates = answering().into_iter().map(|(name, fate, usual, waits)| {
        let fate = match fate {
            Fate::Fault(Fault::CrashAfter(n)) => Fate::Fault(Fault::CrashAfter(early(n))),
            Fate::Fault(Fault::StallAfter(n)) => Fate::Fault(Fault::StallAfter(early(n))),
            Fate::Fault(Fault::PauseAfter(n, by)) => Fate::Fault(Fault::PauseAfter(early(n), by)),
            Fate::Fault(Fault::CloseAfter(n)) => Fate::Fault(Fault::CloseAfter(early(n))),
            Fate::Fault(Fault::BadItemAfter(n)) => Fate::Fault(Fault::BadItemAfter(early(n))),
            other => other,
        };
        (name, fate, outcome(name, usual), waits)
    });
    fates.collect()
}

fn options(leg: Leg, limit: Duration) -> Result<Options> {
    let mut options = match leg {
        Leg::Aggregated => Options::new(2),
        Leg::Prefill => Options::split(2, 1),
        Leg::Decode => Options::split(1, 2),
    };
    options.client.ack_timeout = limit;
    options.client.call_home_timeout = limit;
    options.client.prologue_timeout = limit;
    options.config.http.worker_silence = Some(limit);
    options.config.route.first_token = Some(limit * 2);
    options.config.route.kv_transfer = Some(limit);
    // Prefill takes a moment, so that what befalls it does so before it is done.
    let five = json!([{"role": "prefill", "sleep_s": 0.15}, {"text": "x"}, {"text": "x"}, {"text": "x"},
        {"text": "x"}, {"text": "x"}, {"finish": "stop"}]);
    let slow = json!([{"sleep_s": 0.15}, {"text_repeat": ["x", 5], "per": 1, "gap_s": 0.15}, {"sleep_s": 0.3},
        {"finish": "stop"}]);
    options.scripts.insert("five", serde_json::from_value(five)?);
    options.scripts.insert("slow", serde_json::from_value(slow)?);
    Ok(options)
}

/// The number of the worker that has the session's leg.
async fn home(cluster: &Cluster, leg: Leg) -> Result<usize> {
    let reply = cluster.chat("@@hello@@").session("s").send().await?;
    let answer = reply.json()?;
    let id = match leg {
        Leg::Prefill => answer["nvext"]["worker_id"]["prefill_worker_id"].as_u64().context("worker_id")?,
        Leg::Aggregated | Leg::Decode => worker_of(&answer),
    };
    Ok(cluster.index_of(id))
}

fn role(leg: Leg) -> Role {
    match leg {
        Leg::Aggregated => Role::Aggregated,
        Leg::Prefill => Role::Prefill,
        Leg::Decode => Role::Decode,
    }
}

/// What came of a request.
async fn ask(
    cluster: &Cluster,
    script: &str,
    stream: bool,
    meanwhile: impl Future<Output = ()>,
) -> Result<Outcome> {
    let body = json!({"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": script}]});
    let request = cluster.post("/v1/chat/completions", &body).session("s");
    let (reply, ()) = tokio::join!(request.send(), meanwhile);
    let reply = reply?;
    if reply.status != 200 {
        return Ok(Error(reply.status));
    }
    let whole = |content: &str, finish: &Value| {
        assert_eq!((content, finish), ("xxxxx", &json!("stop")), "{}", reply.text());
        Whole
    };
    if !stream {
        let choice = &reply.json()?["choices"][0];
        return Ok(whole(
            choice["message"]["content"].as_str().unwrap_or_default(),
            &choice["finish_reason"],
        ));
    }
    let events = reply.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")), "every stream has its end mark");
    let delta =
        |event: &Value| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned();
    let finishes: Vec<&Value> =
        events.iter().map(|event| &event["choices"][0]["finish_reason"]).filter(|f| f.is_string()).collect();
    match events.iter().find_map(|event| event["error"]["code"].as_u64()) {
        Some(code) => {
            assert!(finishes.is_empty(), "a broken answer does not look whole: {events:?}");
            Ok(Error(u16::try_from(code)?))
        }
        None => Ok(whole(&events.iter().map(delta).collect::<String>(), finishes[0])),
    }
}

async fn run(leg: Leg, cells: Vec<(&'static str, Fate, Outcome, bool)>) -> Result<()> {
    for (name, fate, expected, waits) in cells {
        for stream in [true, false] {
            let cell = format!("{leg:?}, {name}, stream {stream}");
            let mut cluster = options(leg, if waits { LIMIT } else { FAR })?.start().await?;
            let at = home(&cluster, leg).await.with_context(|| cell.clone())?;
            let mut script = "@@five@@";
            let mut leaving = None;
            let acknowledged = cluster.workers[at].stats().requests + 1;
            match &fate {
                Fate::Fault(fault) => cluster.workers[at].faults().next(fault.clone()),
                Fate::KilledAfterAck => cluster.workers[at].faults().next(Fault::NoCallHome),
                Fate::TerminatedAfterAck => {
                    cluster.workers[at].faults().next(Fault::LatePrologue(SLOW));
                    leaving = Some(cluster.workers.remove(at));
                }
                Fate::Killed => cluster.workers[at].kill().await,
                Fate::Terminated => {
                    cluster.workers.remove(at).shutdown().await;
                    cluster.wait_for_role(MODEL, role(leg), 1).await?;
                }
                Fate::TerminatedMeanwhile | Fate::TerminatedAtTheEnd => {
                    script = "@@slow@@";
                    leaving = Some(cluster.workers.remove(at));
                }
            }
            let greeting = cluster.metric_sum("dynamo_frontend_output_tokens_total", "").await?;
            let meanwhile = async {
                let pause = || tokio::time::sleep(Duration::from_millis(2));
                if let Fate::KilledAfterAck = fate {
                    while cluster.workers[at].stats().requests < acknowledged {
                        pause().await;
                    }
                    cluster.workers[at].kill().await;
                }
                let Some(worker) = leaving else { return };
                match fate {
                    Fate::TerminatedAfterAck => {
                        while worker.stats().requests < acknowledged {
                            pause().await;
                        }
                    }
                    // The prefill leg has nothing to say before its end.
                    Fate::TerminatedAtTheEnd if leg != Leg::Prefill => {
                        let said =
                            async || cluster.metric_sum("dynamo_frontend_output_tokens_total", "").await;
                        while said().await.unwrap_or(0.0) < greeting + 5.0 {
                            pause().await;
                        }
                    }
                    _ => {
                        while worker.journal().requests().len() < 2 {
                            pause().await;
                        }
                    }
                }
                worker.drain(Duration::ZERO, SLACK * 2).await;
            };
            let started = Instant::now();
            let outcome = ask(&cluster, script, stream, meanwhile).await.with_context(|| cell.clone())?;
            assert_eq!(outcome, expected, "{cell}");
            let limit = if waits { LIMIT * 3 + SLACK } else { SLACK };
            assert!(started.elapsed() < limit, "{cell}: {:?}", started.elapsed());
            cluster.until_idle().await.with_context(|| cell.clone())?;
            let reply = cluster.chat("@@hello@@").session("s").send().await?;
            assert_eq!(reply.status, 200, "{cell}: the next request is served: {}", reply.text());
        }
    }
    Ok(())
}

#[tokio::test]
async fn aggregated() -> Result<()> {
    run(Leg::Aggregated, answering()).await
}

#[tokio::test]
async fn decode_leg() -> Result<()> {
    run(Leg::Decode, answering()).await
}

#[tokio::test]
async fn prefill_leg() -> Result<()> {
    run(Leg::Prefill, prefilling()).await
}
