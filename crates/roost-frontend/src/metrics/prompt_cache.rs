//! What the caches of the prompt path save.

use prometheus::{IntCounter, IntCounterVec, IntGauge};
use roost_telemetry::{Error, Name, Registry};
use roost_tokenizer::CacheStats;

/// Label `cache`: a session's last prompt, and the ids of prompt segments that all sessions share.
const CACHES: [&str; 2] = ["session", "segment"];

/// Handles of both caches.
#[derive(Debug)]
pub(super) struct PromptCacheFamilies {
    prompt_hits: IntCounter,
    prompt_misses: IntCounter,
    pub(super) cached_tokens: IntCounterVec,
    pub(super) uncached_tokens: IntCounterVec,
    session: PromptCache,
    segment: PromptCache,
}

/// Handles of one cache.
#[derive(Debug)]
pub(super) struct PromptCache {
    hits: IntCounter,
    misses: IntCounter,
    reused_tokens: IntCounter,
    new_tokens: IntCounter,
    bytes: IntGauge,
}

impl PromptCacheFamilies {
    pub(super) fn register(r: &Registry) -> Result<Self, Error> {
        let counter = |name, help| r.counter_vec(Name::Full(name), help, &["cache"]);
        let hits = counter(
            "roost_prompt_cache_hits_total",
            "Prompts that continue an earlier one (session), or parts of prompts whose ids were known (segment).",
        )?;
        let misses = counter(
            "roost_prompt_cache_misses_total",
            "Prompts that continue none (session), or parts of prompts that were tokenized (segment).",
        )?;
        let reused = counter("roost_prompt_cache_reused_tokens_total", "Prompt tokens that a cache gave.")?;
        let new = counter("roost_prompt_cache_new_tokens_total", "Prompt tokens that a cache did not have.")?;
        let bytes =
            r.gauge_vec(Name::Full("roost_prompt_cache_bytes"), "Bytes that a cache holds.", &["cache"])?;
        let [session, segment] = CACHES.map(|cache| PromptCache {
            hits: hits.with_label_values(&[cache]),
            misses: misses.with_label_values(&[cache]),
            reused_tokens: reused.with_label_values(&[cache]),
            new_tokens: new.with_label_values(&[cache]),
            bytes: bytes.with_label_values(&[cache]),
        });
        let of_model = |name, help| r.counter_vec(Name::FixedFrontend(name), help, &["model"]);
        Ok(PromptCacheFamilies {
            prompt_hits: r.counter(
                Name::FixedFrontend("tokenizer_cache_hits_total"),
                "Chat prompts that go on from ids of an earlier turn.",
            )?,
            prompt_misses: r
                .counter(Name::FixedFrontend("tokenizer_cache_misses_total"), "Chat prompts that do not.")?,
            cached_tokens: of_model(
                "tokenizer_cache_cached_tokens_total",
                "Tokens of chat prompts whose ids an earlier turn had made.",
            )?,
            uncached_tokens: of_model(
                "tokenizer_cache_uncached_tokens_total",
                "Tokens of chat prompts whose ids no earlier turn had made.",
            )?,
            session,
            segment,
        })
    }

    /// A prompt of `tokens` was made, `reused` of them without encoding.
    pub(super) fn prompt(&self, reused: usize, tokens: usize) {
        let which = if reused > 0 { &self.prompt_hits } else { &self.prompt_misses };
        which.inc();
        self.session.prompt(reused, tokens);
    }

    /// Takes over what the segment cache counted since `before`, and how much both hold.
    pub(super) fn take(&self, before: &CacheStats, now: &CacheStats, session_bytes: usize) {
        let segment = &self.segment;
        segment.hits.inc_by(now.hits.saturating_sub(before.hits));
        segment.misses.inc_by(now.misses.saturating_sub(before.misses));
        segment.reused_tokens.inc_by(now.cached_tokens.saturating_sub(before.cached_tokens));
        segment.new_tokens.inc_by(now.uncached_tokens.saturating_sub(before.uncached_tokens));
        segment.bytes.set(i64::try_from(now.bytes).unwrap_or(i64::MAX));
        self.session.bytes.set(i64::try_from(session_bytes).unwrap_or(i64::MAX));
    }
}

impl PromptCache {
    /// A prompt of `tokens` was made, `reused` of them without encoding.
    fn prompt(&self, reused: usize, tokens: usize) {
        let which = if reused > 0 { &self.hits } else { &self.misses };
        which.inc();
        self.reused_tokens.inc_by(reused as u64);
        self.new_tokens.inc_by(tokens.saturating_sub(reused) as u64);
    }
}
