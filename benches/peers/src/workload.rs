//! The workload: sessions that share application prefixes, spread over 64 workers, stored turn by turn.

use roost_kv::hash::{BASE_SEED, block_hashes, sequence_hashes};
use roost_kv::{BlockHash, SequenceHash};

const WORKERS: u64 = 64;
const TOKENS: u64 = 100_000;
const SHARED: u64 = 8192;
const TURN: usize = 2048;

/// Blocks that one worker stores or drops at once.
pub struct Event {
    pub worker: u64,
    pub parent: Option<u64>,
    pub local: Vec<u64>,
    /// Also the engine's names.
    pub sequence: Vec<u64>,
}

pub struct Session {
    pub worker: u64,
    pub local: Vec<u64>,
    pub sequence: Vec<u64>,
}

pub struct Workload {
    pub block_size: u32,
    pub sessions: Vec<Session>,
    pub store: Vec<Event>,
    pub residencies: usize,
    /// Prompts by kind, as content and as chained hashes.
    pub lookups: [(&'static str, Vec<(Vec<u64>, Vec<u64>)>); 4],
}

fn splitmix64(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn token(stream: u64, index: u64) -> u32 {
    (splitmix64((stream << 32) ^ index) % 150_000) as u32
}

/// `shared` tokens of one stream, then the other.
fn prompt(first: u64, shared: u64, then: u64, block_size: u32) -> (Vec<u64>, Vec<u64>) {
    let tokens: Vec<u32> = (0..TOKENS).map(|i| token(if i < shared { first } else { then }, i)).collect();
    hashes(&tokens, block_size)
}

fn hashes(tokens: &[u32], block_size: u32) -> (Vec<u64>, Vec<u64>) {
    let local: Vec<BlockHash> = block_hashes(tokens, block_size, BASE_SEED);
    let sequence: Vec<SequenceHash> = sequence_hashes(&local);
    (local.iter().map(|h| h.0).collect(), sequence.iter().map(|h| h.0).collect())
}

impl Workload {
    pub fn new(block_size: u32, sessions: u64) -> Self {
        let application = |s: u64| (s / 64 + s) % 16;
        let list: Vec<Session> = (0..sessions)
            .map(|s| {
                let (local, sequence) = prompt(1 + application(s), SHARED, 1000 + s, block_size);
                Session { worker: s % WORKERS, local, sequence }
            })
            .collect();
        let prefix = (SHARED / u64::from(block_size)) as usize;
        let mut store = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (s, session) in list.iter().enumerate() {
            if seen.insert((session.worker, application(s as u64))) {
                store.push(session.event(0..prefix));
            }
        }
        let turn = TURN / block_size as usize;
        let blocks = list[0].local.len();
        let mut at = prefix;
        while at < blocks {
            let end = (at + turn).min(blocks);
            store.extend(list.iter().map(|session| session.event(at..end)));
            at = end;
        }
        let of = |i: u64| &list[((i * 7919) % sessions) as usize];
        let tail = |i: u64, keep: u64, stream: u64| {
            let s = (i * 7919) % sessions;
            let tokens: Vec<u32> = (0..TOKENS)
                .map(|t| match t {
                    _ if t >= keep => token(stream, t),
                    _ if t < SHARED => token(1 + application(s), t),
                    _ => token(1000 + s, t),
                })
                .collect();
            hashes(&tokens, block_size)
        };
        let each = |f: &dyn Fn(u64) -> (Vec<u64>, Vec<u64>)| (0..256).map(f).collect::<Vec<_>>();
        let lookups = [
            ("resume", each(&|i| (of(i).local.clone(), of(i).sequence.clone()))),
            ("fork", each(&|i| tail(i, TOKENS / 2, (1 << 20) + i))),
            ("new", each(&|i| tail(i, SHARED, (1 << 20) + 5000 + i))),
            ("cold", each(&|i| tail(i, 0, (1 << 20) + 10_000 + i))),
        ];
        let residencies = store.iter().map(|event| event.local.len()).sum();
        Self { block_size, sessions: list, store, residencies, lookups }
    }

    pub fn prefix(&self) -> usize {
        (SHARED / u64::from(self.block_size)) as usize
    }

    /// The events that drop a session's own blocks, tail first, and those that store them again.
    pub fn churn(&self, session: usize) -> (Vec<Event>, Vec<Event>) {
        let session = &self.sessions[session];
        let turn = TURN / self.block_size as usize;
        let (mut at, mut store) = (self.prefix(), Vec::new());
        while at < session.local.len() {
            let end = (at + turn).min(session.local.len());
            store.push(session.event(at..end));
            at = end;
        }
        let drop = store.iter().rev().map(|event| Event {
            worker: event.worker,
            parent: None,
            local: Vec::new(),
            sequence: event.sequence.iter().rev().copied().collect(),
        });
        (drop.collect(), store)
    }
}

impl Session {
    fn event(&self, range: std::ops::Range<usize>) -> Event {
        Event {
            worker: self.worker,
            parent: range.start.checked_sub(1).map(|before| self.sequence[before]),
            local: self.local[range.clone()].to_vec(),
            sequence: self.sequence[range].to_vec(),
        }
    }
}
