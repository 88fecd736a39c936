//! What the last turn of each session left for the next: ids, hashes, and which parts of them stay.
//!
//! A turn's messages usually are those of the turn before and some more. The memory tells which are the same by their
//! bytes, the template which of their texts are ([`Trace`]), the tokenizer which of their ids are ([`Mark`]s); only the
//! rest is rendered, encoded and hashed. The result is that of doing everything anew.
//!
//! [`Mark`]: roost_tokenizer::Mark

mod ids;
mod seen;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use roost_kv::{Blocks, Cut};
use roost_openai::Familiar;
use roost_template::{ChatTemplate, RenderError, RenderInput, Trace, Turn as TemplateTurn};
use roost_tokenizer::{Fingerprinter, Segment, SegmentCache, Tokenizer, without_nul};
use roost_wire::message::{PackedIds, PromptTokens};

use ids::Ids;
use seen::Seen;
use turns::Turns;

/// Prompts of earlier turns, by session.
#[derive(Debug)]
pub struct PromptMemory {
    fingerprinter: Fingerprinter,
    turns: Mutex<Turns>,
    segments: Arc<SegmentCache>,
}

/// Limits of a [`PromptMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Bytes for the last turns of all sessions together; 0 turns that off. A session takes about 4 for each token of
    /// its last prompt. The sessions that were longest without a turn are forgotten first.
    pub session_bytes: usize,
    /// Bytes for ids of prompt segments, shared by all sessions and models; 0 turns that off. A token takes about 5.
    pub segment_bytes: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { session_bytes: 256 << 20, segment_bytes: 64 << 20 }
    }
}

/// A chat request on its way to ids.
#[derive(Clone, Debug)]
pub struct PromptRequest<'a> {
    /// What tells models apart: the checksum of the card.
    pub model: &'a str,
    /// Session; without one, the beginning of the conversation stands for it.
    pub session: Option<&'a str>,
    /// Session that a new session begins with the messages of.
    pub parent: Option<&'a str>,
    /// The model's template.
    pub template: &'a ChatTemplate,
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The body that the messages came in.
    pub body: Bytes,
    /// Where `input.messages` stands in it.
    pub messages_at: usize,
    /// What [`PromptMemory::recall`] said of the body.
    pub recalled: Option<Recalled>,
    /// What is rendered.
    pub input: RenderInput<'a>,
    /// How the workers cut prompts into blocks.
    pub cut: Cut,
    /// Seed of the block hashes.
    pub seed: u64,
}

/// A body that starts as the one of the session's last turn did.
#[derive(Clone)]
pub struct Recalled {
    turn: Arc<Turn>,
    unchanged: usize,
    /// What need not be parsed again.
    pub familiar: Familiar,
}

impl std::fmt::Debug for Recalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recalled").field("familiar", &self.familiar).finish_non_exhaustive()
    }
}

/// A prompt as ids and hashes.
#[derive(Clone, Debug)]
pub struct HashedPrompt {
    /// The prompt, packed.
    pub ids: PromptTokens,
    /// Its hashes.
    pub blocks: Blocks,
    /// How many of its first ids an earlier turn had made.
    pub reused_tokens: usize,
    /// Time for messages to text.
    pub rendering: Duration,
    /// Time for text to ids.
    pub tokenizing: Duration,
    /// Time for ids to hashes.
    pub hashing: Duration,
}

/// Why there is no prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// It cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// It cannot be encoded.
    #[error(transparent)]
    Encode(#[from] roost_tokenizer::Error),
}

/// One remembered turn.
#[derive(Debug)]
struct Turn {
    /// What the body had before the messages: bytes and fingerprint.
    head: (usize, u128),
    seen: Seen,
    trace: Trace,
    ids: Ids,
    blocks: Blocks,
}

impl Turn {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.seen.bytes()
            + self.trace.bytes()
            + self.ids.bytes()
            + size_of_val(&*self.blocks.local)
            + size_of_val(&*self.blocks.sequence)
    }
}

impl PromptMemory {
    /// An empty memory.
    #[must_use]
    pub fn new(config: MemoryConfig) -> Self {
        Self {
            fingerprinter: Fingerprinter::random(),
            turns: Mutex::new(Turns::new(config.session_bytes)),
            segments: Arc::new(SegmentCache::new(config.segment_bytes)),
        }
    }

    /// The cache for the tokenizers of the models.
    #[must_use]
    pub fn segments(&self) -> &Arc<SegmentCache> {
        &self.segments
    }

    /// Bytes taken by sessions' turns; never more than their budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.turns.lock().bytes()
    }

    /// Forgets a session.
    pub fn forget(&self, model: &str, session: &str) {
        let gone = self.turns.lock().remove(self.session_key(model, session));
        drop(gone);
    }

    /// What a body shares with that of the session's last turn, by fingerprints at the speed of memory; `None` when
    /// that is nothing.
    #[must_use]
    pub fn recall(&self, session: &str, body: &[u8]) -> Option<Recalled> {
        if !self.turns.lock().is_on() {
            return None;
        }
        let session = self.session_only(session);
        let turn = self.turns.lock().latest(session)?;
        let (start, head) = turn.head;
        if self.head(body.get(..start)?) != head {
            return None;
        }
        let (unchanged, length) = turn.seen.shared(&body[start..], |piece| self.message(piece));
        let familiar = Familiar { messages: start, end: start + length };
        (unchanged > 0).then_some(Recalled { turn, unchanged, familiar })
    }

    /// Renders, encodes and hashes a request. CPU work: up to a second for the largest prompts.
    ///
    /// # Errors
    /// Any [`PromptError`]; nothing is remembered then.
    pub fn prompt(&self, request: &PromptRequest<'_>) -> Result<HashedPrompt, PromptError> {
        let key = self.key(request);
        let before = key.and_then(|key| self.before(key, request));
        match key.and_then(|key| self.continued(key, request, before.as_deref())) {
            Some(prompt) => Ok(prompt),
            None => fresh(request),
        }
    }

    /// As [`prompt`](Self::prompt), with neither earlier turns nor a trace left for later ones.
    ///
    /// # Errors
    /// Any [`PromptError`].
    pub fn unremembered(request: &PromptRequest<'_>) -> Result<HashedPrompt, PromptError> {
        fresh(request)
    }

    /// The turn that this one may continue.
    fn before(&self, key: u128, request: &PromptRequest<'_>) -> Option<Arc<Turn>> {
        let mut turns = self.turns.lock();
        let parent = || request.parent.map(|parent| self.session_key(request.model, parent));
        turns.get(key).or_else(|| turns.get(parent()?))
    }

    /// The prompt as a continuation, remembered; `None` when it has to be made in one piece.
    fn continued(
        &self,
        key: u128,
        request: &PromptRequest<'_>,
        before: Option<&Turn>,
    ) -> Option<HashedPrompt> {
        let started = Instant::now();
        let fingerprint = |bytes: &[u8]| self.message(bytes);
        let raw = request.input.messages;
        let unchanged = before.map_or(0, |turn| match &request.recalled {
            Some(recalled) if std::ptr::eq(&*recalled.turn, turn) => recalled.unchanged,
            _ => turn.seen.shared(raw.as_bytes(), fingerprint).0,
        });
        let split = Seen::split(raw, (before.map(|turn| &turn.seen), unchanged), fingerprint)?;
        let continued = request.template.render_continued(
            &request.input,
            &TemplateTurn {
                messages: split.messages(raw).collect(),
                source: request.body.slice(request.messages_at..),
                unchanged: split.unchanged,
                trace: before.map(|turn| &turn.trace),
            },
        )?;
        // A prompt is encoded without NUL characters; one that has them is not what its trace tells.
        if continued.prompt.text.contains('\0') {
            return None;
        }
        let rendered = Instant::now();
        let mut trace = continued.trace?;
        let kept = before.filter(|_| continued.skipped > 0);
        let places = trace.ends().skip(continued.skipped).map(|end| end - continued.reused);
        let mark = kept.and_then(|turn| turn.ids.mark(continued.skipped));
        if mark.is_none() && continued.skipped > 0 {
            return None;
        }
        let encoded = request
            .tokenizer
            .encode_prompt(
                mark,
                continued.prompt.parts().map(|(text, special)| Segment { text, special }),
                places,
            )
            .ok()?;
        let kept = kept.zip(mark);
        let reused_tokens = mark.map_or(0, roost_tokenizer::Mark::tokens);
        let ids = match kept {
            Some((turn, _)) => turn.ids.grown(continued.skipped, &encoded),
            None => Ids::new(&encoded),
        };
        trace.set_resumable(ids.resumable());
        let tokenized = Instant::now();
        let same_hashes = |turn: &Turn| turn.blocks.cut == request.cut && turn.blocks.seed == request.seed;
        let last_ids;
        let blocks = match kept {
            Some((turn, _)) if same_hashes(turn) => {
                let whole = request.cut.blocks(reused_tokens).min(turn.blocks.len());
                let first = whole * request.cut.block_size as usize;
                let rest = ids.from(first, reused_tokens, &encoded.ids);
                let blocks = Blocks::extend_behind(&turn.blocks, whole, &rest);
                last_ids = rest;
                blocks
            }
            _ => {
                last_ids = ids.from(0, reused_tokens, &encoded.ids);
                Blocks::compute(&last_ids, request.cut, request.seed)
            }
        };
        let hashing = tokenized.elapsed();
        let hashed = HashedPrompt {
            ids: ids.tokens(&last_ids),
            blocks: blocks.clone(),
            reused_tokens,
            rendering: rendered - started,
            tokenizing: tokenized - rendered,
            hashing,
        };
        let head = match &request.recalled {
            Some(recalled) => recalled.turn.head,
            None => (request.messages_at, self.head(&request.body[..request.messages_at])),
        };
        let turn = Turn { head, seen: split.seen, trace, ids, blocks };
        let bytes = turn.bytes();
        let session = request.session.map(|session| self.session_only(session));
        let gone = self.turns.lock().insert(key, session, Arc::new(turn), bytes);
        // Freed without the lock.
        drop(gone);
        Some(hashed)
    }

    /// `None` when nothing is remembered at all.
    fn key(&self, request: &PromptRequest<'_>) -> Option<u128> {
        if !self.turns.lock().is_on() {
            return None;
        }
        match request.session {
            Some(session) => Some(self.session_key(request.model, session)),
            None => {
                let opening = seen::opening(request.input.messages)?;
                Some(
                    self.fingerprinter.of(2, &[request.model.as_bytes(), b"\0", opening.as_bytes()].concat()),
                )
            }
        }
    }

    /// Fingerprint of a message with what stands between it and the one before.
    fn message(&self, bytes: &[u8]) -> u128 {
        self.fingerprinter.of(0, bytes)
    }

    fn head(&self, bytes: &[u8]) -> u128 {
        self.fingerprinter.of(3, bytes)
    }

    fn session_only(&self, session: &str) -> u128 {
        self.fingerprinter.of(4, session.as_bytes())
    }

    fn session_key(&self, model: &str, session: &str) -> u128 {
        self.fingerprinter.of(1, &[model.as_bytes(), b"\0", session.as_bytes()].concat())
    }
}

/// The prompt of messages with guards in place of the request's, in one piece and without the guards.
pub(crate) fn guarded(
    request: &PromptRequest<'_>,
    messages: &str,
    guard: char,
) -> Result<HashedPrompt, PromptError> {
    let started = Instant::now();
    let prompt = request.template.render(&RenderInput { messages, ..request.input })?;
    let rendered = Instant::now();
    let ids = request.tokenizer.encode_guarded(&without_nul(&prompt.text), guard)?;
    let tokenized = Instant::now();
    let blocks = Blocks::compute(&ids, request.cut, request.seed);
    let hashing = tokenized.elapsed();
    let ids = PromptTokens::packed(PackedIds::new(&ids), &ids);
    let (rendering, tokenizing) = (rendered - started, tokenized - rendered);
    Ok(HashedPrompt { ids, blocks, reused_tokens: 0, rendering, tokenizing, hashing })
}

/// The prompt in one piece.
fn fresh(request: &PromptRequest<'_>) -> Result<HashedPrompt, PromptError> {
    let started = Instant::now();
    let prompt = request.template.render(&request.input)?;
    let rendered = Instant::now();
    let tokenizer = request.tokenizer;
    let ids = match &prompt.segments {
        None => tokenizer.encode(&without_nul(&prompt.text), false)?,
        Some(_) => {
            let parts: Vec<_> = prompt.parts().map(|(text, special)| (without_nul(text), special)).collect();
            tokenizer
                .encode_segments(parts.iter().map(|(text, special)| Segment { text, special: *special }))?
        }
    };
    let tokenized = Instant::now();
    let blocks = Blocks::compute(&ids, request.cut, request.seed);
    let hashing = tokenized.elapsed();
    let ids = PromptTokens::packed(PackedIds::new(&ids), &ids);
    let (rendering, tokenizing) = (rendered - started, tokenized - rendered);
    Ok(HashedPrompt { ids, blocks, reused_tokens: 0, rendering, tokenizing, hashing })
}

#[cfg(test)]
mod tests;
