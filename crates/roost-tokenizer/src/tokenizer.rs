//! The loaded tokenizer of one model.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use crate::backend::{Backend, Encoder};
use crate::boundaries::Boundaries;
use crate::cache::SegmentCache;
use crate::decode_stream::DecodeStream;
use crate::detokenizer::Detokenizer;
use crate::error::Error;

/// One piece of a prompt with its own trust, see [`Tokenizer::encode_segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The text of the piece.
    pub text: &'a str,
    /// Whether spellings of control tokens in `text` become control tokens.
    pub special: bool,
}

/// A model's tokenizer: encoder and detokenizer tables. A clone shares everything; all methods take `&self`
/// and may be called from any number of threads. Encoding and loading are CPU work: keep them off I/O threads.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    pub(crate) inner: Arc<Inner>,
    cache: Option<Cached>,
}

/// A place in a cache.
#[derive(Clone, Debug)]
struct Cached {
    cache: Arc<SegmentCache>,
    /// Name space of text with control tokens.
    prompts: u64,
    /// Name space of ordinary text.
    ordinary: u64,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) encoder: Encoder,
    pub(crate) detokenizer: Detokenizer,
    /// `None` where prompts cannot be cut safely.
    pub(crate) boundaries: Option<Boundaries>,
}

impl Tokenizer {
    /// Loads `tokenizer.json` (and `tokenizer_config.json` beside it, if present, for added tokens).
    /// When `backend` refuses the model and `fallback` is set, the other backend is tried.
    /// Takes 0.2–6 s for real vocabularies.
    ///
    /// # Errors
    /// [`Error::Read`] when the file cannot be read, [`Error::Load`] when no allowed backend can use it.
    pub fn load(path: &Path, backend: Backend, fallback: bool) -> Result<Self, Error> {
        let encoder = match Encoder::load(path, backend) {
            Err(Error::Load { reason, .. }) if fallback => {
                let other = match backend {
                    Backend::Fast => Backend::Hf,
                    Backend::Hf => Backend::Fast,
                };
                tracing::warn!(path = %path.display(), ?backend, ?other, reason, "tokenizer backend refuses the model, using the other one");
                Encoder::load(path, other)?
            }
            loaded => loaded?,
        };
        let detokenizer = Detokenizer::build(path, &encoder)?;
        let boundaries = Boundaries::of(path, &encoder);
        Ok(Self::of(Arc::new(Inner { encoder, detokenizer, boundaries })))
    }

    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        if inner.boundaries.is_none() {
            tracing::info!("prompts of this tokenizer cannot be cut safely, they are not cached");
        }
        Self { inner, cache: None }
    }

    /// The same tokenizer, with ids of segments taken from `cache` and left there. The ids are the same as without:
    /// a model whose prompts cannot be cut safely does not use the cache.
    #[must_use]
    pub fn with_cache(self, cache: Arc<SegmentCache>) -> Self {
        let cached = (self.inner.boundaries.is_some() && cache.is_on()).then(|| {
            let (prompts, ordinary) = (cache.space(), cache.space());
            Cached { cache, prompts, ordinary }
        });
        Self { cache: cached, ..self }
    }

    /// Whether encoding uses a cache.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.cache.is_some()
    }

    /// The backend in use; differs from the one asked for after a fallback.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.inner.encoder.backend()
    }

    /// Encodes `text`; spellings of added tokens become those tokens. `add_special` lets the file's
    /// post-processor add its tokens (BOS, EOS): wanted for raw prompts, not for rendered templates.
    ///
    /// # Errors
    /// [`Error::Encode`] when the backend refuses the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, Error> {
        if add_special {
            return self.inner.encoder.encode(text, true);
        }
        let mut ids = Vec::new();
        self.extend(&mut ids, Segment { text, special: true })?;
        Ok(ids)
    }

    /// Encodes pieces one by one and joins the ids. Text of a piece with `special: false` never becomes a
    /// control token, whatever it spells; nothing is merged across the edge of a piece.
    ///
    /// # Errors
    /// [`Error::Encode`] when the backend refuses one of the texts.
    pub fn encode_segments<'a>(
        &self,
        segments: impl IntoIterator<Item = Segment<'a>>,
    ) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        for segment in segments {
            self.extend(&mut ids, segment)?;
        }
        Ok(ids)
    }

    /// Appends the ids of one piece.
    pub(crate) fn extend(&self, ids: &mut Vec<u32>, segment: Segment<'_>) -> Result<(), Error> {
        let encoder = &self.inner.encoder;
        let Segment { text, special } = segment;
        match (&self.cache, special) {
            (Some(place), true) => {
                // Prompts have about four bytes to a token.
                ids.reserve(text.len() / 4 + 16);
                let segments = self.inner.boundaries.iter().flat_map(|boundaries| boundaries.segments(text));
                for range in segments {
                    let part = &text[range];
                    place.cache.extend(place.prompts, part, ids, || encoder.encode(part, false))?;
                }
                Ok(())
            }
            (Some(place), false) => {
                place.cache.extend(place.ordinary, text, ids, || encoder.encode_ordinary(text))
            }
            (None, _) => self.extend_uncached(ids, segment),
        }
    }

    /// The same without the cache.
    pub(crate) fn extend_uncached(&self, ids: &mut Vec<u32>, segment: Segment<'_>) -> Result<(), Error> {
        let encoder = &self.inner.encoder;
        let Segment { text, special } = segment;
        let part = if special { encoder.encode(text, false) } else { encoder.encode_ordinary(text) }?;
        if ids.is_empty() {
            *ids = part
        } else {
            ids.extend_from_slice(&part)
        }
        Ok(())
    }

    /// Decodes a whole sequence at once. Unknown ids are skipped; invalid bytes become U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut text = String::new();
        let mut stream = self.decode_stream(&[], skip_special);
        for &id in ids {
            stream.push(id, &mut text);
        }
        stream.finish(&mut text);
        text
    }

    /// Starts decoding a generated sequence. `prompt` are the ids before it (only the last few are looked at):
    /// they decide whether the first generated token stands at the start of the text, where some models drop a
    /// leading space. `skip_special` leaves out added tokens marked special.
    #[must_use]
    pub fn decode_stream(&self, prompt: &[u32], skip_special: bool) -> DecodeStream {
        DecodeStream::new(self.clone(), prompt, skip_special)
    }

    /// Number of distinct token strings, added ones included.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.inner.encoder.vocab_size()
    }

    /// The id of a token by its spelling in the file (byte-level models spell a space `Ġ`).
    #[must_use]
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.encoder.token_to_id(token)
    }

    /// The spelling of a token in the file.
    #[must_use]
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.encoder.id_to_token(id)
    }

    /// The raw bytes a token stands for; they need not be valid UTF-8. `None` for an unknown id.
    #[must_use]
    pub fn id_to_bytes(&self, id: u32) -> Option<&[u8]> {
        self.inner.detokenizer.bytes(id)
    }

    /// Whether the id is known and not left out.
    pub(crate) fn has_text(&self, id: u32, skip_special: bool) -> bool {
        self.id_to_bytes(id).is_some() && !(skip_special && self.is_special(id))
    }

    /// Whether the id is an added token marked special.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.detokenizer.is_special(id)
    }
}

/// Prompt text without NUL characters. Inference servers leave them out before encoding, so a prompt whose ids are
/// to equal theirs must go through here; [`Tokenizer::encode`] itself encodes what it is given.
#[must_use]
pub fn without_nul(text: &str) -> Cow<'_, str> {
    match memchr::memchr(0, text.as_bytes()) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.replace('\0', "")),
    }
}

#[cfg(test)]
mod tests;
