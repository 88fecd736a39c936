//! `roost-bench-peers [64|16] [SUBJECT]`: ingest, lookups, readers under churn, removal and memory of the prefix
//! index beside those of dynamo-kv-router 1.6.1 and kv-index 2.0.0, in one run. Prints one Markdown row a subject.

mod memory;
mod subjects;
mod workload;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use subjects::{Chain, Dynamo, Roost, Subject};
use workload::Workload;

/// Timed calls per kind of lookup.
const CALLS: usize = 4096;
/// Length of the mixed phase.
const MIXED: Duration = Duration::from_secs(2);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let block_size: u32 = arguments.next().map_or(64, |size| size.parse().expect("64 or 16"));
    let wanted = arguments.next();
    let workload = Workload::new(block_size, if block_size == 64 { 704 } else { 192 });
    println!(
        "block size {block_size}: {} residencies, {} events",
        workload.residencies,
        workload.store.len()
    );
    println!(
        "| Index | ingest Mblk/s | resume us p50 (p99) | fork | new | cold | mixed k lookups/s, p50 (p99) | writer Mblk/s | remove Mblk/s | bytes/residency | workers, blocks matched |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| name.starts_with(wanted));
    if is_wanted("roost") {
        row("roost", &workload, || Roost::default());
    }
    if is_wanted("kv-index") {
        row("kv-index ChainIndex", &workload, Chain::new);
    }
    if is_wanted("dynamo") {
        row("dynamo concurrent, 1 thread", &workload, || Dynamo::new(1, block_size));
        row("dynamo concurrent, 4 threads", &workload, || Dynamo::new(4, block_size));
    }
}

fn row<S: Subject>(name: &str, workload: &Workload, make: impl FnOnce() -> S) {
    let before = memory::in_use();
    let subject = make();
    let events: Vec<S::Event> = workload.store.iter().map(|event| subject.store(event)).collect();
    let started = Instant::now();
    for event in events {
        subject.apply(event);
    }
    subject.flush();
    let ingest = rate(workload.residencies, started.elapsed());
    let bytes = (memory::in_use() - before) as f64 / workload.residencies as f64;

    let mut matched = Vec::new();
    let mut timings = Vec::new();
    let mut resume = Vec::new();
    for (kind, prompts) in &workload.lookups {
        let prompts: Vec<S::Prompt> = prompts.iter().map(|(l, s)| subject.prompt(l, s)).collect();
        let found = prompts.iter().map(|prompt| subject.lookup(prompt));
        let (workers, blocks) = found.fold((0, 0), |(w, b), (workers, blocks)| (w + workers, b + blocks));
        matched.push(format!("{kind} {workers}/{blocks}"));
        let mut took: Vec<Duration> = (0..CALLS)
            .map(|call| {
                let started = Instant::now();
                std::hint::black_box(subject.lookup(&prompts[call % prompts.len()]));
                started.elapsed()
            })
            .collect();
        timings.push(spread(&mut took));
        if *kind == "resume" {
            resume = prompts;
        }
    }
    let (lookups, mixed, writer) = churn(&subject, workload, &resume);

    let dropped: Vec<_> = (0..workload.sessions.len()).step_by(4).flat_map(|s| workload.churn(s).0).collect();
    let blocks: usize = dropped.iter().map(|event| event.sequence.len()).sum();
    let dropped: Vec<S::Event> = dropped.iter().map(|event| subject.remove(event)).collect();
    let started = Instant::now();
    for event in dropped {
        subject.apply(event);
    }
    subject.flush();
    let remove = rate(blocks, started.elapsed());
    println!(
        "| {name} | {ingest:.1} | {} | {} | {} | {} | {lookups:.0}, {mixed} | {writer:.1} | {remove:.1} | {bytes:.0} | {} |",
        timings[0],
        timings[1],
        timings[2],
        timings[3],
        matched.join(", ")
    );
}

/// One writer drops and stores sessions again while one reader looks them up.
fn churn<S: Subject>(subject: &S, workload: &Workload, prompts: &[S::Prompt]) -> (f64, String, f64) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut blocks, mut spent, mut session) = (0, Duration::ZERO, 0);
            while !stop.load(Ordering::Relaxed) {
                let (dropped, stored) = workload.churn(session);
                session = (session + 5) % workload.sessions.len();
                let events: Vec<S::Event> = dropped
                    .iter()
                    .map(|event| subject.remove(event))
                    .chain(stored.iter().map(|event| subject.store(event)))
                    .collect();
                blocks += dropped.iter().chain(&stored).map(|event| event.sequence.len()).sum::<usize>();
                let started = Instant::now();
                for event in events {
                    subject.apply(event);
                }
                subject.flush();
                spent += started.elapsed();
            }
            rate(blocks, spent)
        });
        let mut took = Vec::with_capacity(1 << 20);
        let started = Instant::now();
        while started.elapsed() < MIXED {
            let call = Instant::now();
            std::hint::black_box(subject.lookup(&prompts[took.len() % prompts.len()]));
            took.push(call.elapsed());
        }
        let rate = took.len() as f64 / started.elapsed().as_secs_f64() / 1e3;
        stop.store(true, Ordering::Relaxed);
        (rate, spread(&mut took), writer.join().expect("the writer does not panic"))
    })
}

/// Millions a second.
fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}

/// Median and 99th percentile, microseconds.
fn spread(took: &mut [Duration]) -> String {
    took.sort_unstable();
    let at = |share: f64| took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e6;
    format!("{:.2} ({:.1})", at(0.5), at(0.99))
}
