//! What a session's next turn costs between body bytes and wire bytes, stage by stage and as a whole.
//!
//! `cargo run --release -p roost-benches --bin prompt_path -- MODEL_DIR [context bytes] [runs] [turn]`
//!
//! With `turn` (`stateless`, `segments`, `session`, `both`) nothing is timed: that turn and the one before it are run so
//! many times, for tools that count instructions. Pin the process to one core: the encoder spreads long texts over all.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use roost_benches::route::{BLOCK_SIZE, Route, input, load_template, load_tokenizer, parse, wire};
use roost_benches::time::{Timing, timed};
use roost_benches::{Conversation, Size};
use roost_frontend::{MemoryConfig, PromptMemory};
use roost_kv::{Blocks, hash};
use roost_tokenizer::{Segment, Tokenizer};
use roost_wire::message::PromptTokens;

/// As in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder =
        PathBuf::from(arguments.next().context("usage: prompt_path MODEL_DIR [context bytes] [runs]")?);
    let context = arguments.next().map_or(Ok(300_000), |n| n.parse())?;
    let runs = arguments.next().map_or(Ok(101), |n| n.parse())?;
    let mut conversation = Conversation::new("m", 1, Size { context, turn: 2400, tools: 12 });
    let body = conversation.body();
    conversation.grow();
    Bench { folder: &folder, runs, body, next: conversation.body() }.run(arguments.next().as_deref())
}

struct Bench<'a> {
    folder: &'a Path,
    runs: usize,
    /// The turn before.
    body: Bytes,
    /// The turn that is measured.
    next: Bytes,
}

impl Bench<'_> {
    fn run(&self, only: Option<&str>) -> anyhow::Result<()> {
        let Bench { runs, next, .. } = self;
        let runs = *runs;
        let template = &load_template(self.folder)?;
        let tokenizer = &load_tokenizer(self.folder)?;
        let memory = &PromptMemory::new(MemoryConfig::default());
        let cached = &tokenizer.clone().with_cache(Arc::clone(memory.segments()));
        let off = &PromptMemory::new(MemoryConfig { session_bytes: 0, segment_bytes: 0 });
        let [stateless, segments, session, both] =
            [(tokenizer, off), (cached, off), (tokenizer, memory), (cached, memory)]
                .map(|(tokenizer, memory)| Route { template, tokenizer, memory });

        if let Some(only) = only {
            let turn = match only {
                "stateless" => &stateless,
                "segments" => &segments,
                "session" => &session,
                "both" => &both,
                _ => anyhow::bail!("no such turn: {only}"),
            };
            for _ in 0..runs {
                turn.turn(&self.body)?;
                turn.turn(next)?;
            }
            return Ok(());
        }

        let request = parse(next)?;
        let prompt = template.render(&input(&request))?;
        let encode = |tokenizer: &Tokenizer| {
            tokenizer.encode_segments(prompt.parts().map(|(text, special)| Segment { text, special }))
        };
        let ids = encode(tokenizer)?;
        let before = stateless.turn(&self.body)?;
        anyhow::ensure!(both.turn(&self.body)? == before && both.turn(next)? == stateless.turn(next)?);
        let new = ids.len() - stateless.prompt(&self.body, &parse(&self.body)?, None)?.ids.len();

        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "body {} bytes, prompt {} bytes, {} tokens, {new} new; medians of {runs} runs (fastest)",
            next.len(),
            prompt.text.len(),
            ids.len()
        )?;
        let mut row = |name: &str, timing: Timing| {
            writeln!(out, "{name:38} {:8.3} ms  ({:.3})", timing.ms(), timing.min.as_secs_f64() * 1e3)
        };
        row("parse", timed(runs, || (), |()| parse(next)))?;
        row("render", timed(runs, || (), |()| template.render(&input(&request))))?;
        row("tokenize, text never seen", self.unseen(&|tokenizer| encode(tokenizer).map(drop))?)?;
        row("tokenize, text seen", timed(runs, || (), |()| encode(tokenizer)))?;
        row("tokenize, segments cached", timed(runs, || (), |()| encode(cached)))?;
        row("hash", timed(runs, || (), |()| Blocks::compute(&ids, BLOCK_SIZE, hash::BASE_SEED)))?;
        row("wire", timed(runs, || (), |()| wire(PromptTokens::from(&ids[..]))))?;
        let prime = || both.turn(&self.body);
        row("render to hash, session remembered", timed(runs, prime, |_| both.prompt(next, &request, None)))?;
        let cold =
            self.unseen(&|tokenizer| Route { template, tokenizer, memory: off }.turn(next).map(drop))?;
        row("turn, cold", cold)?;
        row("turn, stateless, text seen", timed(runs, || (), |()| stateless.turn(next)))?;
        row("turn, segments cached", timed(runs, || (), |()| segments.turn(next)))?;
        let prime = || session.turn(&self.body);
        row("turn, session remembered", timed(runs, prime, |_| session.turn(next)))?;
        let warm = timed(runs, || both.turn(&self.body), |_| both.turn(next));
        row("turn, session and segments", warm)?;
        drop(out);
        let mut out = std::io::stdout().lock();
        writeln!(out, "warm / cold {:.3}", warm.ms() / cold.ms())?;
        let per_token = |bytes: usize, tokens: usize| bytes as f64 / tokens as f64;
        writeln!(out, "session memory {:.2} bytes per token", per_token(memory.bytes(), ids.len()))?;
        let stats = memory.segments().stats();
        let held = per_token(stats.bytes, usize::try_from(stats.uncached_tokens)?);
        writeln!(out, "segment cache {held:.2} bytes per token")?;
        let memory = &PromptMemory::new(MemoryConfig::default());
        let tokenizer = &tokenizer.clone().with_cache(Arc::clone(memory.segments()));
        let alone = Route { template, tokenizer, memory };
        for body in [&self.body, next] {
            alone.turn(body)?;
        }
        let held = per_token(memory.bytes() + memory.segments().stats().bytes, ids.len());
        writeln!(out, "both, after two turns of a session: {held:.2} bytes per token")?;
        Ok(())
    }

    /// Times something on tokenizers that have seen no text.
    fn unseen<E: Into<anyhow::Error>>(
        &self,
        step: &dyn Fn(&Tokenizer) -> Result<(), E>,
    ) -> anyhow::Result<Timing> {
        let mut fresh: Vec<Tokenizer> =
            (0..5).map(|_| load_tokenizer(self.folder)).collect::<Result<_, _>>()?;
        let mut failed = None;
        let timing = timed(
            fresh.len(),
            || fresh.pop(),
            |tokenizer| {
                if let Some(Err(error)) = tokenizer.as_ref().map(step) {
                    failed = Some(error);
                }
                tokenizer
            },
        );
        failed.map_or(Ok(timing), |error| Err(error.into()))
    }
}
