//! The two encoder libraries behind one face.

use std::path::Path;
use std::sync::OnceLock;

use crate::error::Error;

/// Which library encodes. Both give the same ids for the models either of them loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// `fastokens`: byte-pair encoding only, tens to hundreds of MB/s.
    #[default]
    Fast,
    /// Hugging Face `tokenizers`: every model type, about 1 MB/s per core.
    Hf,
}

/// A loaded encoder. Truncation and padding of the file are off.
pub(crate) enum Encoder {
    Fast(Box<fastokens::Tokenizer>),
    Hf(Box<HfEncoder>),
}

/// A token that is found in the text before anything else is done to it.
#[derive(Debug)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    /// May be left out of decoded text.
    pub(crate) special: bool,
    /// Found in normalized text, after those that are not.
    pub(crate) normalized: bool,
    /// Takes no white space beside it and does not care what stands there.
    pub(crate) is_plain: bool,
}

/// The Hugging Face encoder, with a second one for text that must not become control tokens.
pub(crate) struct HfEncoder {
    full: tokenizers::Tokenizer,
    /// Same model without the added vocabulary; built when it is first asked for.
    ordinary: OnceLock<Result<tokenizers::Tokenizer, String>>,
}

impl Encoder {
    pub(crate) fn load(path: &Path, backend: Backend) -> Result<Self, Error> {
        match backend {
            Backend::Fast => load_fast(path),
            Backend::Hf => load_hf(path),
        }
    }

    pub(crate) fn backend(&self) -> Backend {
        match self {
            Self::Fast(_) => Backend::Fast,
            Self::Hf(_) => Backend::Hf,
        }
    }

    pub(crate) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, Error> {
        match self {
            Self::Fast(fast) => {
                fast.encode_with_special_tokens(text, add_special).map_err(|e| Error::Encode(e.to_string()))
            }
            Self::Hf(hf) => hf_ids(&hf.full, text, add_special),
        }
    }

    /// Encodes `text` as if the tokenizer had no added tokens.
    pub(crate) fn encode_ordinary(&self, text: &str) -> Result<Vec<u32>, Error> {
        match self {
            Self::Fast(fast) => fast.encode_ordinary(text).map_err(|e| Error::Encode(e.to_string())),
            Self::Hf(hf) => {
                let ordinary =
                    hf.ordinary.get_or_init(|| without_added_tokens(&hf.full).map_err(|e| e.to_string()));
                hf_ids(ordinary.as_ref().map_err(|e| Error::Encode(e.clone()))?, text, false)
            }
        }
    }

    pub(crate) fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        match self {
            Self::Fast(fast) => fast.decode(ids, skip_special).unwrap_or_default(),
            Self::Hf(hf) => hf.full.decode(ids, skip_special).unwrap_or_default(),
        }
    }

    pub(crate) fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            Self::Fast(fast) => fast.id_to_token(id).map(str::to_owned),
            Self::Hf(hf) => hf.full.id_to_token(id),
        }
    }

    pub(crate) fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Fast(fast) => fast.token_to_id(token),
            Self::Hf(hf) => hf.full.token_to_id(token),
        }
    }

    /// Number of distinct token strings, added ones included.
    pub(crate) fn vocab_size(&self) -> usize {
        match self {
            Self::Fast(fast) => fast.vocab_size(),
            Self::Hf(hf) => hf.full.get_vocab_size(true),
        }
    }

    /// The added tokens.
    pub(crate) fn added_tokens(&self) -> Vec<AddedToken> {
        match self {
            Self::Fast(fast) => fast
                .added_token_configs()
                .iter()
                .map(|t| AddedToken {
                    id: t.id,
                    content: t.content.clone(),
                    special: t.special,
                    normalized: t.normalized,
                    is_plain: !(t.single_word || t.lstrip || t.rstrip),
                })
                .collect(),
            Self::Hf(hf) => hf
                .full
                .get_added_tokens_decoder()
                .into_iter()
                .map(|(id, t)| AddedToken {
                    id,
                    content: t.content,
                    special: t.special,
                    normalized: t.normalized,
                    is_plain: !(t.single_word || t.lstrip || t.rstrip),
                })
                .collect(),
        }
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoder::{:?}", self.backend())
    }
}

/// Text that makes the encoder build its lazy tables once, before the first request pays for it.
const WARM_UP: &str =
    "fn main() {\n    let x = [1, 22, 333];\t// naïve 漢字 😀 don't\n}\n\n{\"key\": \"value\"}";

fn load_fast(path: &Path) -> Result<Encoder, Error> {
    let fail = |e: fastokens::Error| match e {
        fastokens::Error::Io(source) => Error::Read { path: path.to_owned(), source },
        other => Error::Load { path: path.to_owned(), reason: other.to_string() },
    };
    let mut fast = fastokens::Tokenizer::from_file(path).map_err(fail)?;
    fast.set_truncation(None);
    fast.set_padding(None);
    fast.encode(&WARM_UP.repeat(64)).map_err(fail)?;
    Ok(Encoder::Fast(Box::new(fast)))
}

/// A `tokenizer.json` in memory.
pub(crate) fn of_json(path: &Path, json: &[u8]) -> Result<Encoder, Error> {
    let fail = |e: tokenizers::Error| Error::Load { path: path.to_owned(), reason: e.to_string() };
    let full = tokenizers::Tokenizer::from_bytes(json).map_err(fail)?;
    Ok(Encoder::Hf(Box::new(HfEncoder { full, ordinary: OnceLock::new() })))
}

/// Byte-pair ranks with the pattern that cuts text before merging.
pub(crate) fn of_ranks(
    path: &Path,
    ranks: &[(Vec<u8>, u32)],
    pattern: &str,
    added: &[fastokens::AddedTokenConfig],
) -> Result<Encoder, Error> {
    let fail = |e: fastokens::Error| Error::Load { path: path.to_owned(), reason: e.to_string() };
    let fast =
        fastokens::Tokenizer::from_tiktoken_ranks_with_added_tokens(ranks, pattern, added).map_err(fail)?;
    fast.encode(&WARM_UP.repeat(64)).map_err(fail)?;
    Ok(Encoder::Fast(Box::new(fast)))
}

fn load_hf(path: &Path) -> Result<Encoder, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let fail = |e: tokenizers::Error| Error::Load { path: path.to_owned(), reason: e.to_string() };
    let mut full = tokenizers::Tokenizer::from_bytes(&bytes).map_err(fail)?;
    full.with_truncation(None).map_err(fail)?;
    full.with_padding(None);
    add_configured_tokens(&mut full, path).map_err(fail)?;
    Ok(Encoder::Hf(Box::new(HfEncoder { full, ordinary: OnceLock::new() })))
}

/// Some models declare added tokens only in `tokenizer_config.json`; they are appended where their ids follow on.
fn add_configured_tokens(full: &mut tokenizers::Tokenizer, path: &Path) -> Result<(), tokenizers::Error> {
    let Ok(config) = std::fs::read(path.with_file_name("tokenizer_config.json")) else { return Ok(()) };
    let config: serde_json::Value = serde_json::from_slice(&config)?;
    let Some(declared) = config.get("added_tokens_decoder").and_then(|d| d.as_object()) else {
        return Ok(());
    };
    let mut declared: Vec<(u32, &serde_json::Value)> =
        declared.iter().filter_map(|(id, token)| Some((id.parse().ok()?, token))).collect();
    declared.sort_by_key(|(id, _)| *id);
    for (id, token) in declared {
        let token: tokenizers::AddedToken = serde_json::from_value(token.clone())?;
        if full.token_to_id(&token.content).is_none() && id as usize == full.get_vocab_size(true) {
            full.add_tokens([token])?;
        }
    }
    Ok(())
}

fn hf_ids(hf: &tokenizers::Tokenizer, text: &str, add_special: bool) -> Result<Vec<u32>, Error> {
    let encoding = hf.encode_fast(text, add_special).map_err(|e| Error::Encode(e.to_string()))?;
    Ok(encoding.get_ids().to_vec())
}

fn without_added_tokens(full: &tokenizers::Tokenizer) -> Result<tokenizers::Tokenizer, tokenizers::Error> {
    let mut ordinary = tokenizers::Tokenizer::new(full.get_model().clone());
    ordinary.with_normalizer(full.get_normalizer().cloned())?;
    ordinary.with_pre_tokenizer(full.get_pre_tokenizer().cloned());
    Ok(ordinary)
}
