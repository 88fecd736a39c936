//! One screen of `roost top`: a pure function of one or two states.

use std::fmt::Write as _;

use roost_config::{Top, TopOrder};
use serde_json::Value;

use super::text::{number, percent, plain, seconds};

/// How it is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Columns and rows.
    pub(super) size: (usize, usize),
    pub(super) is_coloured: bool,
}

const RED: &str = "31";
const YELLOW: &str = "33";
const BOLD: &str = "1";

/// Draws a state; with the one before it also what happened in between.
pub(super) fn screen(options: &Top, before: Option<&Value>, state: &Value, style: Style) -> String {
    let mut out = Lines { text: String::new(), style };
    headline(&mut out, before, state);
    for alarm in list(&state["alarms"]) {
        let colour = if alarm["level"] == "critical" { RED } else { YELLOW };
        out.line(colour, &format!("{}: {}", word(&alarm["level"]), word(&alarm["text"])));
    }
    for pool in list(&state["pools"]) {
        ranks(&mut out, options, pool);
    }
    sessions(&mut out, options, state);
    out.finish()
}

fn headline(out: &mut Lines, before: Option<&Value>, state: &Value) {
    let curves = &state["curves"];
    let mut text = format!("roost {}  running {}", word(&state["state"]), curves["active"]);
    if let Some(before) = before {
        let span = (float(&state["at_ms"]) - float(&before["at_ms"])).max(1.0) / 1e3;
        let rate = |name: &str| Some((float(&curves[name]) - float(&before["curves"][name])).max(0.0) / span);
        let middle = |name: &str, part| seconds(quantile(&before["curves"][name], &curves[name], part));
        let _infallible = write!(
            text,
            "  requests/s {} (failed {})  tokens/s {}  ttft p50 {} p99 {}  itl p50 {} p99 {}",
            number(rate("succeeded")),
            number(rate("failed")),
            number(rate("output_tokens")),
            middle("ttft_s", 0.5),
            middle("ttft_s", 0.99),
            middle("itl_s", 0.5),
            middle("itl_s", 0.99)
        );
    } else {
        let _infallible = write!(text, "  succeeded {}  failed {}", curves["succeeded"], curves["failed"]);
    }
    out.line(BOLD, &text);
}

fn ranks(out: &mut Lines, options: &Top, pool: &Value) {
    let all = list(&pool["ranks"]);
    let sum = |name: &str| all.iter().map(|rank| float(&rank[name])).sum::<f64>();
    out.line("", "");
    out.line(
        BOLD,
        &format!(
            "{} {}: {} ranks, {} running, {} waiting, {} sessions, hit rate {}",
            word(&pool["model"]),
            word(&pool["role"]),
            all.len(),
            pool["active_requests"],
            pool["queued_requests"],
            pool["bindings"],
            percent(share(sum("cached_tokens"), sum("asked_tokens")))
        ),
    );
    let mut shown: Vec<&Value> = all.iter().filter(|rank| named(options, &name(rank))).collect();
    // Names of sessions are looked for, too: then no rank may be left, and all are shown.
    if shown.is_empty() {
        shown = all.iter().collect();
    }
    shown.sort_by(|a, b| key(options.order, b).total_cmp(&key(options.order, a)));
    out.line(
        "",
        &format!(
            "{:<21} {:<11} {:>7} {:>9} {:>6} {:>8} {:>5} {:>8}  {}",
            "WORKER/RANK", "STATE", "RUNNING", "PREFILL", "KV", "SESSIONS", "HIT", "PLACED", "ADDRESS"
        ),
    );
    for rank in shown.iter().take(options.limit) {
        let state = word(&rank["state"]);
        let colour = match &*state {
            "quarantined" => RED,
            "ready" => "",
            _ => YELLOW,
        };
        out.line(
            colour,
            &format!(
                "{:<21} {state:<11} {:>7} {:>9} {:>6} {:>8} {:>5} {:>8}  {}",
                name(rank),
                count(&rank["active_requests"]),
                number(rank["prefill_tokens"].as_f64()),
                percent(kv_use(rank)),
                count(&rank["sessions"]),
                percent(hit_rate(rank)),
                number(rank["placed"].as_f64()),
                word(&rank["address"])
            ),
        );
    }
    out.rest(shown.len(), options.limit, "ranks");
}

fn sessions(out: &mut Lines, options: &Top, state: &Value) {
    let pools = list(&state["pools"]);
    let mut all: Vec<&Value> = pools.iter().flat_map(|pool| list(&pool["sessions"]["longest"])).collect();
    if all.is_empty() {
        return;
    }
    all.sort_by(|a, b| float(&b["context_tokens"]).total_cmp(&float(&a["context_tokens"])));
    out.line("", "");
    out.line(
        "",
        &format!(
            "{:<32} {:<21} {:>8} {:>5} {:>6} {:>8} {:>7}  {}",
            "SESSION", "WORKER/RANK", "CONTEXT", "HIT", "TURNS", "REBINDS", "THERE", "NOW"
        ),
    );
    for session in all.iter().take(options.limit) {
        let now = match session["running"].as_u64() {
            Some(0) | None => format!("idle {}", seconds(session["idle_s"].as_f64())),
            Some(running) => format!("{running} running"),
        };
        out.line(
            "",
            &format!(
                "{:<32} {:<21} {:>8} {:>5} {:>6} {:>8} {:>7}  {now}",
                plain(&word(&session["session"]), 32),
                name(session),
                number(session["context_tokens"].as_f64()),
                percent(session["hit_rate"].as_f64()),
                count(&session["turns"]),
                count(&session["rebinds"]),
                seconds(session["bound_for_s"].as_f64())
            ),
        );
    }
    let found: u64 = pools.iter().filter_map(|pool| pool["sessions"]["found"].as_u64()).sum();
    out.rest(usize::try_from(found).unwrap_or(usize::MAX), all.len().min(options.limit), "sessions");
}

/// Lines that fit the terminal.
struct Lines {
    text: String,
    style: Style,
}

impl Lines {
    fn line(&mut self, colour: &str, text: &str) {
        let text = plain(text, self.style.size.0);
        if self.style.is_coloured && !colour.is_empty() {
            let _infallible = writeln!(self.text, "\x1b[{colour}m{text}\x1b[0m");
        } else {
            let _infallible = writeln!(self.text, "{}", text.trim_end());
        }
    }

    /// Says how many are not shown.
    fn rest(&mut self, all: usize, shown: usize, what: &str) {
        if all > shown {
            self.line("", &format!("… {} more {what}", all - shown));
        }
    }

    fn finish(self) -> String {
        let lines: Vec<&str> = self.text.lines().take(self.style.size.1).collect();
        lines.join("\n")
    }
}

fn name(of: &Value) -> String {
    format!("{}/{}", word(&of["worker"]), of["dp_rank"])
}

fn named(options: &Top, name: &str) -> bool {
    name.contains(&options.filter)
}

fn key(order: TopOrder, rank: &Value) -> f64 {
    match order {
        TopOrder::Requests => float(&rank["active_requests"]),
        TopOrder::Kv => kv_use(rank).unwrap_or(0.0),
        TopOrder::Sessions => float(&rank["sessions"]),
        TopOrder::Hits => hit_rate(rank).unwrap_or(0.0),
    }
}

fn kv_use(rank: &Value) -> Option<f64> {
    let used = rank["used_blocks"].as_f64().or_else(|| rank["active_blocks"].as_f64())?;
    share(used, float(&rank["total_blocks"]))
}

fn hit_rate(rank: &Value) -> Option<f64> {
    share(float(&rank["cached_tokens"]), float(&rank["asked_tokens"]))
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// The value below which this part of the new values lies, between the bounds of its bucket.
pub(super) fn quantile(before: &Value, now: &Value, part: f64) -> Option<f64> {
    let count = float(&now["count"]) - float(&before["count"]);
    if count <= 0.0 {
        return None;
    }
    let (mut low, mut below) = (0.0, 0.0);
    for (at, bound) in list(&now["bounds"]).iter().enumerate() {
        let here = float(&now["cumulative"][at]) - float(&before["cumulative"][at]);
        let high = float(bound);
        if here >= part * count {
            return Some(low + (high - low) * ((part * count - below) / (here - below).max(1.0)));
        }
        (low, below) = (high, here);
    }
    Some(low)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// A whole number, which unlike the value itself can be aligned.
fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string())
}

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
