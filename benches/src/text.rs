//! Code-like text from a seed.

use fastrand::Rng;

const NAMES: [&str; 48] = [
    "request", "buffer", "token", "worker", "index", "block", "hash", "stream", "session", "router", "cache",
    "prefix", "lease", "batch", "frame", "queue", "config", "metric", "header", "cursor", "parent", "child",
    "segment", "offset", "length", "budget", "window", "schema", "column", "record", "shard", "replica",
    "epoch", "ticket", "signal", "handle", "socket", "payload", "digest", "marker", "bucket", "ledger",
    "policy", "target", "sample", "vector", "kernel", "tensor",
];
const VERBS: [&str; 16] = [
    "read", "write", "open", "close", "merge", "split", "insert", "remove", "parse", "encode", "flush",
    "resolve", "compute", "select", "update", "collect",
];
const WORDS: [&str; 40] = [
    "the", "a", "this", "when", "because", "must", "not", "before", "after", "every", "only", "if", "it",
    "is", "was", "failed", "passes", "returns", "expects", "found", "missing", "value", "test", "line",
    "file", "change", "function", "error", "should", "now", "still", "with", "without", "from", "into",
    "same", "other", "new", "old", "next",
];

fn pick<'a>(rng: &mut Rng, list: &[&'a str]) -> &'a str {
    list[rng.usize(..list.len())]
}

fn name(rng: &mut Rng) -> String {
    match rng.u8(..6) {
        0 => format!("{}_{}", pick(rng, &NAMES), pick(rng, &NAMES)),
        1 => format!("{}_{}_{}", pick(rng, &VERBS), pick(rng, &NAMES), rng.u16(..1000)),
        // A word no vocabulary has as one token.
        2 => (0..rng.usize(4..12)).map(|_| char::from(rng.u8(b'a'..=b'z'))).collect(),
        _ => pick(rng, &NAMES).to_owned(),
    }
}

/// Lines of source code, `bytes` or a little more.
pub(crate) fn code(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 128);
    let mut depth = 0;
    while text.len() < bytes {
        let indent = "    ".repeat(depth);
        let (a, b, c, n) = (name(rng), name(rng), name(rng), rng.u32(..100_000));
        let line = match rng.u8(..9) {
            0 => format!(
                "fn {}_{a}(&mut self, {b}: &[u{n}], {c}: Option<usize>) -> Result<Vec<u8>, Error> {{",
                pick(rng, &VERBS)
            ),
            1 => format!("if {a}.{b}.len() != {n} && !self.{c}.is_empty() {{"),
            2 => format!("let {a} = self.{b}.get({n}).map(|x| x.{c} + 0x{n:x})?;"),
            3 => format!(
                "// {} {} {} `{a}` {} {}",
                pick(rng, &WORDS),
                pick(rng, &WORDS),
                pick(rng, &WORDS),
                pick(rng, &WORDS),
                pick(rng, &WORDS)
            ),
            4 => format!(
                "assert_eq!({a}(\"{b}/{c}.rs\"), {n}, \"{} {}\");",
                pick(rng, &WORDS),
                pick(rng, &WORDS)
            ),
            5 => format!("test {a}::{b}::tests::{c} ... ok ({}.{n:03}s)", n % 7),
            6 => format!("\tself.{a}[{b}..].copy_from_slice(&{c}[{n}..]); // naïve → fast"),
            _ => "}".to_owned(),
        };
        depth = if line.ends_with('{') {
            (depth + 1).min(5)
        } else {
            depth.saturating_sub(usize::from(line == "}"))
        };
        text.push_str(&indent);
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A few sentences.
pub(crate) fn prose(rng: &mut Rng, words: usize) -> String {
    let mut text = String::new();
    for n in 0..words {
        text.push_str(if n == 0 {
            ""
        } else if n % 13 == 0 {
            ". "
        } else {
            " "
        });
        if rng.u8(..5) == 0 { text.push_str(&name(rng)) } else { text.push_str(pick(rng, &WORDS)) }
    }
    text + "."
}
