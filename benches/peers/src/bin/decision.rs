//! `decision`: time of one placement from cached block hashes: booked, committed, first token, given back.
//! Prompts of 1562 blocks that some ranks have cached; every rank runs requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roost_kv::{Overlap, OwnerOverlap, SequenceHash, WorkerId, WorkerRank};
use roost_router::{BookingId, Config, Core, End, Mode, Request, Worker};

const BLOCKS: u64 = 1562;
const CALLS: usize = 20_000;

fn main() {
    println!("| ranks | running | place p50 (p99) us | whole life p50 us |");
    println!("| ---: | ---: | ---: | ---: |");
    for (workers, ranks) in [(8, 1), (64, 1), (64, 8)] {
        row(workers, ranks, 8);
    }
}

fn row(workers: u64, ranks: u32, each: u64) {
    let mut core = Core::new(Config { mode: Mode::Kv, ..Config::default() }, 7).expect("valid options");
    let mut now = Instant::now();
    for id in 1..=workers {
        core.worker_joined(now, Worker { id: WorkerId(id), ranks, ..Worker::default() });
    }
    let all: Vec<WorkerRank> = (1..=workers)
        .flat_map(|id| (0..ranks).map(move |rank| WorkerRank::new(WorkerId(id), rank)))
        .collect();
    // 64 conversations over 16 shared beginnings of 128 blocks.
    let prompts: Vec<(Arc<[SequenceHash]>, Overlap)> = (0..64_u64)
        .map(|session| {
            let block = |i: u64| match i < 128 {
                true => (session % 16) << 32 | i,
                false => (1000 + session) << 32 | i,
            };
            let sequence = (0..BLOCKS).map(|i| SequenceHash(block(i).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            let home = session as usize * 7 % all.len();
            let overlap = (0..all.len())
                .step_by(3)
                .map(|at| OwnerOverlap::device_only(all[at], if at == home { 1500 } else { 128 }));
            (sequence.collect(), overlap.collect())
        })
        .collect();
    let mut running: Vec<BookingId> = Vec::new();
    let request = |call: usize| {
        let (sequence, overlap) = &prompts[call % prompts.len()];
        Request { id: Some("request"), ..Request::new(100_000, 64, sequence, overlap) }
    };
    for call in 0..(all.len() * each as usize) {
        let placement = core.place(now, &request(call)).expect("workers are there");
        core.first_token(now, placement.booking);
        running.push(placement.booking);
    }
    let (mut placed, mut lived) = (Vec::with_capacity(CALLS), Vec::with_capacity(CALLS));
    for call in 0..CALLS {
        now += Duration::from_micros(50);
        let request = request(call);
        let started = Instant::now();
        let placement = core.place(now, &request).expect("workers are there");
        placed.push(started.elapsed());
        core.first_token(now, placement.booking);
        let oldest = std::mem::replace(&mut running[call % (all.len() * each as usize)], placement.booking);
        core.finish(now, oldest, End::Ok);
        lived.push(started.elapsed());
    }
    let micros = |took: &mut Vec<Duration>, share: f64| {
        took.sort_unstable();
        took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e6
    };
    println!(
        "| {} | {} | {:.2} ({:.1}) | {:.2} |",
        all.len(),
        running.len(),
        micros(&mut placed, 0.5),
        micros(&mut placed, 0.99),
        micros(&mut lived, 0.5)
    );
}
