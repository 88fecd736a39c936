//! Sessions for a long time, while workers die, events are lost and clients vanish: nothing hangs, nothing is wrong.
//!
//! Each answer follows from the ids of its prompt; the client knows those without the frontend (the model's tokens are
//! bytes, its template is written here once more), so a wrong, repeated or lost token shows. `ROOST_SOAK_SECS` and
//! `ROOST_SOAK_SESSIONS` make it longer and larger; docs/reliability.md has the figures of long runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use roost_tests::{Cluster, LongRun, MODEL, Options, Request};
use roost_worker::{Answer, MockTiming, TextCodec, recital};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const WORKERS: usize = 16;
/// Length of an answer, characters and tokens.
const ANSWER: usize = 48;
/// Turns of a session before another one begins in its place.
const TURNS: usize = 8;
/// A request without an end after this time hangs.
const HUNG: Duration = Duration::from_secs(120);
/// One change in so many of a cache is lost.
const LOST: u64 = 50;

/// How long and how much.
#[derive(Debug, Clone, Copy)]
struct Size {
    time: Duration,
    sessions: usize,
    /// Bounds of the time between two deaths.
    between_deaths: (Duration, Duration),
}

impl Size {
    #[expect(clippy::disallowed_methods, reason = "a test of a length that is chosen by hand")]
    fn chosen() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let seconds = number("ROOST_SOAK_SECS").unwrap_or(20);
        let between = (seconds / 60).clamp(1, 20);
        Size {
            time: Duration::from_secs(seconds),
            sessions: number("ROOST_SOAK_SESSIONS").unwrap_or(48) as usize,
            between_deaths: (Duration::from_secs(between), Duration::from_secs(3 * between)),
        }
    }
}

/// What became of all requests.
#[derive(Debug, Default)]
struct Tally {
    whole: u64,
    left: u64,
    /// Ended by an error event after their first token, with the worker that they ran on and when.
    cut: Vec<(u64, Instant)>,
    /// Anything else: there should be none.
    wrong: Vec<String>,
    deaths: Vec<(u64, Instant)>,
}

/// What all sessions share.
#[derive(Debug)]
struct Run {
    address: SocketAddr,
    codec: TextCodec,
    tally: Mutex<Tally>,
    over: AtomicBool,
}

impl Run {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The answer that these messages must get: the template and the tokens are made here, not by the frontend.
    fn expected(&self, messages: &[Value]) -> String {
        let mut prompt = String::new();
        for message in messages {
            let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
            prompt += &format!("<|im_start|>{}\n{}<|im_end|>\n", text("role"), text("content"));
        }
        prompt += "<|im_start|>assistant\n";
        recital(&self.codec.encode(&prompt), ANSWER)
    }
}

/// One answer, or what there is of it.
#[derive(Debug, Default)]
struct Heard {
    text: String,
    finish: Option<String>,
    error: Option<Value>,
    worker: u64,
    is_done: bool,
}

impl Heard {
    fn take(&mut self, event: &Value) {
        if *event == "[DONE]" {
            self.is_done = true;
            return;
        }
        if !event["error"].is_null() {
            self.error = Some(event.clone());
            return;
        }
        if let Some(id) = event["nvext"]["worker_id"]["decode_worker_id"].as_u64() {
            self.worker = id;
        }
        let choice = &event["choices"][0];
        let part = if choice["delta"].is_null() { &choice["message"] } else { &choice["delta"] };
        self.text += part["content"].as_str().unwrap_or_default();
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
    }
}

async fn ask(request: &Request, streamed: bool) -> Result<Heard> {
    let mut heard = Heard::default();
    if streamed {
        let mut events = request.stream().await?;
        ensure!(events.status == 200, "status {} in place of a stream", events.status);
        while let Some(event) = events.next().await? {
            heard.take(&event);
        }
    } else {
        let reply = request.send().await?;
        ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
        heard.take(&reply.json()?);
        heard.is_done = true;
    }
    Ok(heard)
}

/// One session after the other, until the run is over.
async fn sessions(run: Arc<Run>, number: usize, size: Size, migrates: bool) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut generation = 0;
    while !run.is_over() {
        generation += 1;
        let session = format!("soak-{number}-{generation}");
        let mut messages: Vec<Value> = Vec::new();
        for turn in 0..TURNS {
            if run.is_over() {
                return;
            }
            // The more sessions, the longer each thinks: the load is what one process in a debug build carries.
            let think = (10 * size.sessions as u64).max(400);
            tokio::time::sleep(Duration::from_millis(random.u64(0..think))).await;
            let words = format!("step {turn} of {session}, ").repeat(random.usize(1..40));
            messages.push(json!({"role": "user", "content": words}));
            let streamed = random.u8(0..4) > 0;
            let leaves = random.u8(0..20) == 0;
            let body = json!({"model": MODEL, "stream": streamed, "messages": messages,
                "nvext": {"extra_fields": ["worker_id"]}});
            let request = Request::post(run.address, "/v1/chat/completions", &body).session(&session);
            let asking = ask(&request, streamed);
            let heard = if leaves {
                let patience = Duration::from_millis(random.u64(0..60));
                match tokio::time::timeout(patience, asking).await {
                    Ok(heard) => heard,
                    Err(_) => {
                        run.tally.lock().left += 1;
                        break;
                    }
                }
            } else {
                match tokio::time::timeout(HUNG, asking).await {
                    Ok(heard) => heard,
                    Err(_) => {
                        run.tally.lock().wrong.push(format!("{session} turn {turn} hangs"));
                        break;
                    }
                }
            };
            let expected = run.expected(&messages);
            match judge(heard, &expected, streamed, migrates) {
                Verdict::Whole => run.tally.lock().whole += 1,
                Verdict::Cut(worker) => {
                    run.tally.lock().cut.push((worker, Instant::now()));
                    break;
                }
                Verdict::Wrong(why) => {
                    run.tally.lock().wrong.push(format!("{session} turn {turn}: {why}"));
                    break;
                }
            }
            messages.push(json!({"role": "assistant", "content": expected}));
        }
    }
}

enum Verdict {
    Whole,
    /// An error after a part of the answer, which is right as far as it goes.
    Cut(u64),
    Wrong(String),
}

fn judge(heard: Result<Heard>, expected: &str, streamed: bool, migrates: bool) -> Verdict {
    let heard = match heard {
        Ok(heard) => heard,
        // Without a stream there is a status instead: the part of the answer is not shown.
        Err(error) if !streamed && !migrates && error.to_string().starts_with("503") => {
            return Verdict::Cut(0);
        }
        Err(error) => return Verdict::Wrong(format!("{error:#}")),
    };
    if let Some(error) = &heard.error {
        let is_part = !heard.text.is_empty() && expected.starts_with(&heard.text);
        return match is_part && heard.finish.is_none() && !migrates {
            true => Verdict::Cut(heard.worker),
            false => Verdict::Wrong(format!("{error} after {:?}", heard.text)),
        };
    }
    match heard.text == expected && heard.finish.as_deref() == Some("stop") && heard.is_done {
        true => Verdict::Whole,
        false => Verdict::Wrong(format!("{heard:?} is not {expected:?}")),
    }
}

/// Kills a worker from time to time, and starts another some time later.
async fn deaths(cluster: &mut Cluster, run: &Run, size: Size) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(42);
    let begun = Instant::now();
    loop {
        let (least, most) = size.between_deaths;
        let pause = random.u64(least.as_millis() as u64..most.as_millis() as u64);
        if begun.elapsed() + Duration::from_millis(pause) >= size.time {
            tokio::time::sleep(size.time.saturating_sub(begun.elapsed())).await;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let victim = cluster.workers.swap_remove(random.usize(0..cluster.workers.len()));
        run.tally.lock().deaths.push((victim.id(), Instant::now()));
        victim.kill().await;
        tokio::time::sleep(Duration::from_millis(random.u64(0..pause / 2 + 1))).await;
        cluster.add_worker(MODEL).await?;
    }
}

/// Resident set of this process, client and workers included, MiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}

#[expect(clippy::print_stdout, reason = "for docs/reliability.md")]
async fn soak(migrates: bool) -> Result<()> {
    let size = Size::chosen();
    let codec = TextCodec::tiny_chat();
    let mut options = Options {
        long: Some(Box::new(LongRun {
            answer: Answer::Recital { mark: codec.encode("<|im_start|>assistant\n"), length: ANSWER },
            lost_events: LOST,
        })),
        timing: MockTiming {
            prefill_tokens_per_s: 1e6,
            itl: Duration::from_millis(5),
            ..MockTiming::default()
        },
        ..Options::new(WORKERS)
    };
    options.config.route.migration_limit = if migrates { 8 } else { 0 };
    let mut cluster = options.start().await?;
    let run = Arc::new(Run {
        address: cluster.address,
        codec,
        tally: Mutex::default(),
        over: AtomicBool::new(false),
    });
    let mut clients = JoinSet::new();
    (0..size.sessions)
        .for_each(|number| _ = clients.spawn(sessions(Arc::clone(&run), number, size, migrates)));
    let warm = async {
        tokio::time::sleep(size.time / 2).await;
        resident()
    };
    let (died, warm) = tokio::join!(deaths(&mut cluster, &run, size), warm);
    died?;
    let (warm, end) = (warm?, resident()?);
    run.over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended?;
    }
    cluster.until_idle().await?;
    let tally = std::mem::take(&mut *run.tally.lock());
    println!(
        "{} s, {} sessions at once, migration {}: {} whole, {} clients left, {} cut, {} deaths, {} wrong; {warm} and {end} MiB",
        size.time.as_secs(),
        size.sessions,
        if migrates { "on" } else { "off" },
        tally.whole,
        tally.left,
        tally.cut.len(),
        tally.deaths.len(),
        tally.wrong.len()
    );
    assert!(
        tally.wrong.is_empty(),
        "{} wrong: {:#?}",
        tally.wrong.len(),
        &tally.wrong[..tally.wrong.len().min(5)]
    );
    assert!(tally.whole > size.sessions as u64 && !tally.deaths.is_empty(), "{tally:?}");
    for (worker, at) in tally.cut.iter().filter(|(worker, _)| *worker != 0) {
        let died = tally.deaths.iter().any(|(dead, when)| dead == worker && when <= at);
        assert!(died, "an answer of worker {worker:x}, which lives, was cut");
    }
    assert!(end * 4 <= warm * 5 + 4 * 64, "the process grew from {warm} to {end} MiB");
    for gauge in [
        "dynamo_frontend_queued_requests",
        "dynamo_frontend_disconnected_clients_pending",
        "roost_held_requests",
    ] {
        assert_eq!(cluster.metric_sum(gauge, "").await?, 0.0, "{gauge}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: once in 24,000 requests a worker's death is an error before the first token, see docs/reliability.md"]
async fn nothing_hangs_and_only_answers_of_dead_workers_are_cut() -> Result<()> {
    soak(false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_migration_no_client_notices_a_death() -> Result<()> {
    soak(true).await
}
