//! Models that ship their vocabulary as a tiktoken file and no `tokenizer.json`.
//!
//! Such a file has only byte strings and their ranks, which are both their ids and the order of merging. How text is cut
//! before merging, and the added tokens, stand elsewhere: in code that the model ships, which is known here by the
//! model's family, and in `tokenizer_config.json`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use fastokens::AddedTokenConfig;
use serde_json::{Value, json};

use crate::backend;
use crate::boundaries::Boundaries;
use crate::detokenizer::{Detokenizer, Plan, spelled};
use crate::error::Error;
use crate::tokenizer::{Inner, Tokenizer};

/// Model types whose vocabulary is cut as Kimi's. Some Kimi models name the architecture they are built on; no model of
/// that type itself comes with a tiktoken file.
const KIMI_TYPES: [&str; 6] = ["kimi", "kimi_k2", "kimi_k25", "kimi_k3", "kimi_linear", "deepseek_v3"];

/// The module with the tokenizer's code, as `tokenizer_config.json` names it.
const KIMI_MODULE: &str = "tokenization_kimi";

/// Ids behind the ranks that are added tokens, named or not.
const KIMI_RESERVED: u32 = 256;

impl Tokenizer {
    /// Loads a tiktoken file. `config` and `tokenizer_config` are the model's files of these names; they tell its
    /// family and its added tokens. Encoded by [`Backend::Fast`](crate::Backend), or by the other backend where that one
    /// refuses the vocabulary.
    ///
    /// # Errors
    /// [`Error::Read`] when the file cannot be read, [`Error::Load`] when it is none, or of an unknown family.
    pub fn load_tiktoken(
        path: &Path,
        config: Option<&Value>,
        tokenizer_config: Option<&Value>,
    ) -> Result<Self, Error> {
        let fail = |reason: String| Error::Load { path: path.to_owned(), reason };
        let model_type = config.and_then(|config| config["model_type"].as_str()).unwrap_or_default();
        let module = tokenizer_config.map(module).unwrap_or_default();
        if !KIMI_TYPES.contains(&model_type) && module != KIMI_MODULE {
            return Err(fail(format!(
                "how text is cut for a tiktoken vocabulary of model type {model_type:?} is not known; \
                 give the model a tokenizer.json"
            )));
        }
        let ranks = read(path)?;
        let bound = bound(&ranks);
        let declared = tokenizer_config.map(declared).transpose().map_err(fail)?.unwrap_or_default();
        let added = with_reserved(declared, bound, KIMI_RESERVED);
        Self::of_ranks(path, &ranks, fastokens::KIMI_PATTERN, &added)
    }

    fn of_ranks(
        path: &Path,
        ranks: &[(Vec<u8>, u32)],
        pattern: &str,
        added: &[AddedTokenConfig],
    ) -> Result<Self, Error> {
        let encoder = match backend::of_ranks(path, ranks, pattern, added) {
            Err(Error::Load { reason, .. }) => {
                tracing::warn!(path = %path.display(), reason, "the fast tokenizer backend refuses the vocabulary, using the other one");
                backend::of_json(path, converted(ranks, pattern, added).to_string().as_bytes())?
            }
            made => made?,
        };
        let detokenizer =
            Detokenizer::with_plan(path, &encoder, Some(Plan::byte_level()), bound(ranks) as usize)?;
        // What a tokenizer.json with the same steps would say.
        let steps = json!({"model": {"type": "BPE"}, "pre_tokenizer": cutting(pattern)});
        let boundaries = Boundaries::of_json(steps.to_string().as_bytes(), &encoder);
        Ok(Self::of(Arc::new(Inner { encoder, detokenizer, boundaries })))
    }
}

fn cutting(pattern: &str) -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
    ]})
}

/// The vocabulary as a `tokenizer.json`. Any two tokens that make up a third merge, in the order of its rank; text that
/// is a token as a whole is never merged, which also finds tokens that no two others make up.
fn converted(ranks: &[(Vec<u8>, u32)], pattern: &str, added: &[AddedTokenConfig]) -> Value {
    let by_bytes: HashMap<&[u8], u32> = ranks.iter().map(|(bytes, rank)| (bytes.as_slice(), *rank)).collect();
    let mut merges: Vec<(u32, u32, u32, [String; 2])> = Vec::with_capacity(2 * ranks.len());
    for (bytes, rank) in ranks {
        for at in 1..bytes.len() {
            let (left, right) = bytes.split_at(at);
            if let (Some(l), Some(r)) = (by_bytes.get(left), by_bytes.get(right)) {
                merges.push((*rank, *l, *r, [spelled(left), spelled(right)]));
            }
        }
    }
    merges.sort_unstable_by_key(|(rank, l, r, _)| (*rank, *l, *r));
    let merges: Vec<[String; 2]> = merges.into_iter().map(|(.., pair)| pair).collect();
    let vocab: serde_json::Map<String, Value> =
        ranks.iter().map(|(bytes, rank)| (spelled(bytes), Value::from(*rank))).collect();
    let added: Vec<Value> = added
        .iter()
        .map(|token| {
            json!({"id": token.id, "content": token.content, "single_word": token.single_word,
                "lstrip": token.lstrip, "rstrip": token.rstrip, "normalized": token.normalized,
                "special": token.special})
        })
        .collect();
    json!({
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": cutting(pattern),
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges},
    })
}

fn read(path: &Path) -> Result<Vec<(Vec<u8>, u32)>, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    fastokens::tiktoken::parse_tiktoken_model(&text)
        .map_err(|e| Error::Load { path: path.to_owned(), reason: e.to_string() })
}

/// One more than the largest rank; there may be holes.
fn bound(ranks: &[(Vec<u8>, u32)]) -> u32 {
    ranks.iter().map(|(_, rank)| rank.saturating_add(1)).max().unwrap_or(0)
}

/// Module part of `auto_map.AutoTokenizer`, which is a class or a list of a slow and a fast one.
fn module(tokenizer_config: &Value) -> &str {
    let class = &tokenizer_config["auto_map"]["AutoTokenizer"];
    let class = class.as_str().or_else(|| class[0].as_str()).unwrap_or_default();
    class.split('.').next().unwrap_or_default()
}

/// `added_tokens_decoder` of `tokenizer_config.json`.
fn declared(tokenizer_config: &Value) -> Result<BTreeMap<u32, AddedTokenConfig>, String> {
    let members = tokenizer_config["added_tokens_decoder"].as_object().into_iter().flatten();
    members
        .filter(|(_, token)| token["content"].as_str().is_some_and(|content| !content.is_empty()))
        .map(|(id, token)| {
            let id: u32 = id.parse().map_err(|_| format!("added token with the id {id:?}"))?;
            let flag = |name: &str| token[name].as_bool().unwrap_or(false);
            let config = AddedTokenConfig {
                id,
                content: token["content"].as_str().unwrap_or_default().to_owned(),
                single_word: flag("single_word"),
                lstrip: flag("lstrip"),
                rstrip: flag("rstrip"),
                normalized: false,
                special: flag("special"),
            };
            Ok((id, config))
        })
        .collect()
}

/// The declared tokens, and names for the ids up to `first + count` that nobody declares.
fn with_reserved(
    mut declared: BTreeMap<u32, AddedTokenConfig>,
    first: u32,
    count: u32,
) -> Vec<AddedTokenConfig> {
    for id in first..first.saturating_add(count) {
        declared.entry(id).or_insert_with(|| AddedTokenConfig {
            id,
            content: format!("<|reserved_token_{id}|>"),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        });
    }
    declared.into_values().collect()
}

#[cfg(test)]
mod tests;
