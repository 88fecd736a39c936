//! A seeded generator of agent sessions, fitted to a measured trace.
//!
//! The trace: 710 coding sessions with 49,334 requests. Prompts of 42k/104k/234k/499k tokens (p10/50/90/99), answers
//! of 105/216/898/3,687, 46 turns a session (p50; p90 160), 704 new tokens a turn (p50; p90 4,800, p99 94k), 96.3 % of
//! the prompt in the session's previous one, 15k tokens of tools and system prompt, 10 s to think (p50; p90 162 s).
//! What is not measured is chosen: how many applications there are, and what sub-agents share with their parent.

use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;
use roost_kv::BlockHash;

use crate::trace::scramble;
use crate::{Content, Origin, Session, Start, Trace, Turn};
use quantiles::draw;

mod quantiles;
#[cfg(test)]
mod tests;

/// Tools and system prompt, tokens.
const SHARED: u32 = 15_100;
/// The same of a sub-agent.
const SUBAGENT_SHARED: u32 = 9_000;
/// How often a turn does not begin like the one before it, beyond tools and system prompt.
const REWRITES: f64 = 0.021;
/// Sub-agents started together, at most.
const MOST_TOGETHER: u32 = 10;
/// The longest prompt, tokens.
const LONGEST: u32 = 990_000;

const TURNS: &[(f64, f64)] =
    &[(0.0, 4.0), (0.1, 14.0), (0.5, 46.0), (0.9, 160.0), (0.99, 390.0), (1.0, 561.0)];
const FIRST_MESSAGE: &[(f64, f64)] =
    &[(0.0, 800.0), (0.1, 8_000.0), (0.5, 33_000.0), (0.9, 76_000.0), (1.0, 160_000.0)];
const NEW: &[(f64, f64)] = &[(0.0, 60.0), (0.5, 650.0), (0.9, 2_400.0), (0.98, 15_000.0), (1.0, 70_000.0)];
const OUTPUT: &[(f64, f64)] =
    &[(0.0, 20.0), (0.1, 105.0), (0.5, 216.0), (0.9, 898.0), (0.99, 3_687.0), (1.0, 12_000.0)];
const THINK: &[(f64, f64)] = &[(0.0, 0.3), (0.5, 10.0), (0.9, 162.0), (1.0, 900.0)];
/// Context at which a session starts afresh from a summary.
const LIMIT: &[(f64, f64)] = &[(0.0, 120_000.0), (0.5, 200_000.0), (0.8, 500_000.0), (1.0, 980_000.0)];
const SUMMARY: &[(f64, f64)] = &[(0.0, 5_000.0), (0.5, 20_000.0), (1.0, 60_000.0)];
const SUBAGENT_TURNS: &[(f64, f64)] = &[(0.0, 2.0), (0.5, 9.0), (0.9, 25.0), (1.0, 60.0)];
const SUBAGENT_TASK: &[(f64, f64)] = &[(0.0, 200.0), (0.5, 1_200.0), (1.0, 8_000.0)];
const SUBAGENT_THINK: &[(f64, f64)] = &[(0.0, 0.2), (0.5, 2.5), (0.9, 15.0), (1.0, 60.0)];

/// Options of the generator. Read from `sessions=200,seed=7`.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    /// Sessions, sub-agents not counted.
    pub sessions: usize,
    /// Determines everything that is drawn.
    pub seed: u64,
    /// Tokens per block.
    pub block_size: u32,
    /// Applications: sessions of one have tools and system prompt in common. The first is the most used.
    pub applications: u32,
    /// Probability that a turn starts sub-agents.
    pub subagents: f64,
    /// Share of sub-agents whose prompt begins with their parent's.
    pub forks: f64,
    /// Factor on the time to think.
    pub think: f64,
    /// Factor on the number of turns.
    pub turns: f64,
    /// Factor on prompt sizes, tools and system prompt included.
    pub context: f64,
}

impl Default for Generator {
    fn default() -> Self {
        Self {
            sessions: 200,
            seed: 1,
            block_size: 64,
            applications: 4,
            subagents: 0.03,
            forks: 0.25,
            think: 1.0,
            turns: 1.0,
            context: 1.0,
        }
    }
}

/// A mistake in the text of a [`Generator`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorError {
    /// A part is not `name=value`.
    #[error("`{0}` is not NAME=VALUE")]
    Syntax(String),
    /// The name does not exist.
    #[error(
        "`{0}` is not known; there are sessions, seed, block, applications, subagents, forks, think, turns, context"
    )]
    Name(String),
    /// The value is no number, or out of range.
    #[error("{name}: `{value}` is not {range}")]
    Value {
        /// What it is for.
        name: &'static str,
        /// The value given.
        value: String,
        /// What is accepted.
        range: &'static str,
    },
}

impl FromStr for Generator {
    type Err = GeneratorError;

    fn from_str(text: &str) -> Result<Self, GeneratorError> {
        let mut generator = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| GeneratorError::Syntax(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let whole = |name, range: std::ops::RangeInclusive<u64>, text| {
                let read = value.parse().ok().filter(|value| range.contains(value));
                read.ok_or_else(|| GeneratorError::Value { name, value: value.to_owned(), range: text })
            };
            let number = |name, most: f64, text| {
                let read = value.parse().ok().filter(|value: &f64| (0.0..=most).contains(value));
                read.ok_or_else(|| GeneratorError::Value { name, value: value.to_owned(), range: text })
            };
            match name {
                "sessions" => {
                    generator.sessions = whole("sessions", 1..=1_000_000, "1 to 1000000")? as usize;
                }
                "seed" => generator.seed = whole("seed", 0..=u64::MAX, "a whole number")?,
                "block" => generator.block_size = whole("block", 1..=65_536, "1 to 65536")? as u32,
                "applications" => {
                    generator.applications = whole("applications", 1..=10_000, "1 to 10000")? as u32;
                }
                "subagents" => generator.subagents = number("subagents", 1.0, "0 to 1")?,
                "forks" => generator.forks = number("forks", 1.0, "0 to 1")?,
                "think" => generator.think = number("think", 1e6, "0 to 1000000")?,
                "turns" => generator.turns = number("turns", 1e3, "0 to 1000")?,
                "context" => generator.context = number("context", 100.0, "0 to 100")?,
                _ => return Err(GeneratorError::Name(name.to_owned())),
            }
        }
        Ok(generator)
    }
}

/// A session that grows turn by turn.
struct Growth<'a> {
    generator: &'a Generator,
    rng: Rng,
    /// Blocks that other sessions begin with too.
    shared: u32,
    /// Length of the last prompt, tokens.
    prompt: u32,
    /// Context at which it starts afresh.
    limit: u32,
}

impl Generator {
    /// Makes the trace. The same options give the same trace.
    pub fn trace(&self) -> Trace {
        let mut trace = Trace { block_size: self.block_size, sessions: Vec::new() };
        for number in 0..self.sessions {
            self.add_session(&mut trace, number);
        }
        trace
    }

    /// Adds a session and the sub-agents that it starts. Each has draws of its own, so that one session more changes
    /// nothing in those before it.
    fn add_session(&self, trace: &mut Trace, number: usize) {
        let mut rng = Rng::with_seed(scramble(self.seed) ^ scramble(number as u64));
        let application = self.application(&mut rng);
        let turns = (draw(&mut rng, TURNS) * self.turns).round().max(1.0) as usize;
        let first = draw(&mut rng, FIRST_MESSAGE);
        let limit = self.tokens(draw(&mut rng, LIMIT));
        let at = trace.sessions.len();
        let id = format!("s{number}");
        let shared = self.shared_blocks(application, SHARED);
        let mut growth = Growth { generator: self, rng, shared: shared.len() as u32, prompt: 0, limit };
        let mut list = vec![growth.first(shared, first, Duration::ZERO)];
        while list.len() < turns {
            let turn = growth.next(THINK);
            list.push(turn);
        }
        let mut rng = growth.rng;
        let mut fans = Vec::new();
        for turn in 0..turns.saturating_sub(1) {
            if rng.f64() < self.subagents {
                fans.push((turn, together(&mut rng)));
            }
        }
        let prompts: Vec<u32> = list.iter().map(|turn| turn.prompt_tokens).collect();
        trace.sessions.push(Session { id: id.clone(), parent: None, origin: None, turns: list });
        for (turn, count) in fans {
            for child in 0..count {
                let inherited = match rng.f64() < self.forks {
                    true => prompts[turn] / self.block_size,
                    false => 0,
                };
                let origin = Origin { session: at, turn, inherited };
                let turns = self.subagent(&mut rng, application, inherited);
                let (id, parent) = (format!("{id}.{turn}.{child}"), Some(id.clone()));
                trace.sessions.push(Session { id, parent, origin: Some(origin), turns });
            }
        }
    }

    fn subagent(&self, rng: &mut Rng, application: u32, inherited: u32) -> Vec<Turn> {
        let turns = draw(rng, SUBAGENT_TURNS).round().max(1.0) as usize;
        let task = draw(rng, SUBAGENT_TASK);
        let mut growth = Growth {
            generator: self,
            rng: Rng::with_seed(rng.u64(..)),
            shared: inherited,
            prompt: 0,
            limit: LONGEST,
        };
        let shared = match inherited {
            0 => self.shared_blocks(application + self.applications, SUBAGENT_SHARED),
            _ => Vec::new(),
        };
        growth.shared += shared.len() as u32;
        let mut list = vec![growth.first(shared, task, Duration::from_millis(50))];
        while list.len() < turns {
            let turn = growth.next(SUBAGENT_THINK);
            list.push(turn);
        }
        list
    }

    /// The k-th application is used a k-th as often as the first.
    fn application(&self, rng: &mut Rng) -> u32 {
        let weight = |application: u32| 1.0 / f64::from(application + 1);
        let mut left = rng.f64() * (0..self.applications).map(weight).sum::<f64>();
        for application in 0..self.applications {
            left -= weight(application);
            if left < 0.0 {
                return application;
            }
        }
        self.applications - 1
    }

    fn shared_blocks(&self, prefix: u32, tokens: u32) -> Vec<BlockHash> {
        let blocks = self.tokens(f64::from(tokens)) / self.block_size;
        let seed = scramble(u64::from(prefix) | 1 << 40);
        (0..u64::from(blocks)).map(|block| BlockHash(scramble(seed.wrapping_add(block)))).collect()
    }

    fn tokens(&self, tokens: f64) -> u32 {
        (tokens * self.context).round().clamp(1.0, f64::from(LONGEST)) as u32
    }
}

impl Growth<'_> {
    fn first(&mut self, shared: Vec<BlockHash>, message: f64, start: Duration) -> Turn {
        let block = self.generator.block_size;
        self.prompt = (self.shared * block + self.generator.tokens(message)).min(LONGEST);
        let own = (self.prompt / block).saturating_sub(self.shared);
        // A block of the message occurs nowhere else; it is named after its place in the trace.
        let seed = self.rng.u64(..);
        let own = (0..u64::from(own)).map(|block| BlockHash(scramble(seed.wrapping_add(block))));
        // What a sub-agent inherits is not content of its own.
        let kept = self.shared - shared.len() as u32;
        Turn {
            start: Start::After(start),
            prompt_tokens: self.prompt,
            output_tokens: draw(&mut self.rng, OUTPUT).round() as u32,
            kept,
            content: Content::Given(shared.into_iter().chain(own).collect()),
        }
    }

    fn next(&mut self, think: &[(f64, f64)]) -> Turn {
        let block = self.generator.block_size;
        let think = draw(&mut self.rng, think) * self.generator.think;
        let mut kept = self.prompt / block;
        let grown = self.prompt.saturating_add(self.generator.tokens(draw(&mut self.rng, NEW)));
        if grown > self.limit {
            kept = kept.min(self.shared);
            self.prompt = self.shared * block + self.generator.tokens(draw(&mut self.rng, SUMMARY));
        } else {
            self.prompt = grown.min(LONGEST);
            if self.rng.f64() < REWRITES {
                kept = kept.min(self.shared);
            }
        }
        Turn {
            start: Start::After(Duration::from_secs_f64(think)),
            prompt_tokens: self.prompt,
            output_tokens: draw(&mut self.rng, OUTPUT).round() as u32,
            kept,
            content: Content::Fresh((self.prompt / block).saturating_sub(kept)),
        }
    }
}

/// Sub-agents of one turn: each one more is as likely as not.
fn together(rng: &mut Rng) -> u32 {
    let mut count = 1;
    while count < MOST_TOGETHER && rng.f64() < 0.55 {
        count += 1;
    }
    count
}
