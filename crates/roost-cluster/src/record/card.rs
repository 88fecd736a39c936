//! Model cards: what a worker serves and how to talk to its model.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::RecordError;
use super::endpoint::EndpointId;
use super::event::{decode_tagged, encode_tagged};
use super::key::RecordKey;
use super::runtime::RuntimeConfig;

/// A model card and the endpoint instance that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardRecord {
    /// Namespace.
    pub namespace: String,
    /// Component.
    pub component: String,
    /// Endpoint name.
    pub endpoint: String,
    /// The worker.
    pub instance_id: u64,
    /// The card.
    #[serde(rename = "card_json")]
    pub card: ModelCard,
}

impl CardRecord {
    const TYPE: &'static str = "Model";

    /// The endpoint that takes the model's requests.
    pub fn endpoint_id(&self) -> EndpointId {
        EndpointId::new(&self.namespace, &self.component, &self.endpoint)
    }

    /// Key in the cards bucket.
    pub fn key(&self) -> RecordKey {
        RecordKey::card(&self.endpoint_id(), self.instance_id)
    }

    /// Encodes the record as stored.
    pub fn encode(&self) -> Vec<u8> {
        encode_tagged(Self::TYPE, self)
    }

    /// Decodes a stored record.
    ///
    /// # Errors
    /// [`RecordError::Shape`], [`RecordError::Type`], or [`RecordError::Card`] when the card has no model name.
    pub fn decode(json: &[u8]) -> Result<Self, RecordError> {
        let record: Self = decode_tagged(Self::TYPE, json)?;
        if record.card.display_name.is_empty() {
            let reason = "display_name is empty".to_owned();
            return Err(RecordError::Card { id: record.instance_id, reason });
        }
        Ok(record)
    }
}

/// What one worker serves.
///
/// Typed fields are those that a frontend acts on; the rest is kept in [`ModelCard::other`] and survives a round trip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCard {
    /// Served model name.
    pub display_name: String,
    /// File-safe form of the name; not used for matching.
    #[serde(default, deserialize_with = "or_default")]
    pub slug: String,
    /// Further names of the model.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Model directory or hub name as the worker was given it.
    #[serde(default)]
    pub source_path: Option<String>,
    /// `config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_info: Option<ModelFile>,
    /// `tokenizer.json` or a tiktoken model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<ModelFile>,
    /// `tokenizer_config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_formatter: Option<ModelFile>,
    /// A chat template of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template_file: Option<ModelFile>,
    /// `generation_config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gen_config: Option<ModelFile>,
    /// Further files, not interpreted here.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extra_files: Vec<FileRef>,
    /// Context length of the model's own configuration, tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architectural_max_context_length: Option<u32>,
    /// Older copy of the effective context length, tokens; 0 means unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u32>,
    /// Tokens per KV block; `None` or 0 when the worker does not say.
    #[serde(default)]
    pub kv_cache_block_size: Option<u32>,
    /// Request retries that the worker allows.
    #[serde(default, deserialize_with = "or_default")]
    pub migration_limit: u32,
    /// What the model can do.
    #[serde(default, deserialize_with = "or_default")]
    pub model_type: ModelType,
    /// What the worker takes.
    #[serde(default, deserialize_with = "or_default")]
    pub model_input: ModelInput,
    /// Part that the worker plays; absent on workers up to 1.3.
    #[serde(default)]
    pub worker_type: Option<WorkerType>,
    /// Alternatives, each a list of worker types that must be present before the model is ready.
    #[serde(default, deserialize_with = "or_default")]
    pub needs: Vec<Vec<WorkerType>>,
    /// Facts of the engine.
    #[serde(default, deserialize_with = "or_default")]
    pub runtime_config: RuntimeConfig,
    /// Every key that is not a field above, in order.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ModelCard {
    /// Effective context length in tokens: the engine's, else the model's, else the older copy; 0 when unknown.
    ///
    /// An engine that says 0 is unknown, but it does count as an answer in [`ModelCard::mdcsum`].
    pub fn context_length_tokens(&self) -> u32 {
        [self.runtime_config.context_length, self.architectural_max_context_length, self.context_length]
            .into_iter()
            .flatten()
            .find(|&tokens| tokens > 0)
            .unwrap_or(0)
    }

    /// Tokens per KV block, if the worker says so.
    pub fn block_size_tokens(&self) -> Option<u32> {
        self.kv_cache_block_size.filter(|&size| size > 0)
    }

    /// All names under which the model may be asked for, the display name first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.display_name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// One file of a model, tagged with its format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFile {
    /// `config.json`.
    HfConfigJson(FileRef),
    /// `tokenizer.json`.
    HfTokenizerJson(FileRef),
    /// A tiktoken vocabulary.
    TikTokenModel(FileRef),
    /// `tokenizer_config.json`.
    HfTokenizerConfigJson(FileRef),
    /// A chat template in a JSON file.
    HfChatTemplateJson(FileRef),
    /// A chat template as Jinja text.
    HfChatTemplate {
        /// Given by the operator rather than found with the model.
        is_custom: bool,
        /// The file.
        file: FileRef,
    },
    /// `generation_config.json`.
    HfGenerationConfigJson(FileRef),
}

impl ModelFile {
    /// The file, whatever its format.
    pub fn file(&self) -> &FileRef {
        match self {
            ModelFile::HfConfigJson(file)
            | ModelFile::HfTokenizerJson(file)
            | ModelFile::TikTokenModel(file)
            | ModelFile::HfTokenizerConfigJson(file)
            | ModelFile::HfChatTemplateJson(file)
            | ModelFile::HfGenerationConfigJson(file)
            | ModelFile::HfChatTemplate { file, .. } => file,
        }
    }
}

/// Where a file is and what it must contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// A local path, or a `file://`, `http://`, `https://` or `hf://` URL.
    pub path: String,
    /// `blake3:` and the digest in lower hex.
    pub checksum: String,
    /// Length in bytes; absent in some older cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The flags of `model_type`, as on the wire: names joined by `" | "`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelType(pub String);

impl ModelType {
    /// True when the flag of that name is set; names are compared without case.
    pub fn has(&self, flag: &str) -> bool {
        self.0.split('|').any(|name| name.trim().eq_ignore_ascii_case(flag))
    }

    /// True when the model answers chat requests.
    pub fn chat(&self) -> bool {
        self.has("Chat")
    }

    /// True when the model answers plain completions.
    pub fn completions(&self) -> bool {
        self.has("Completions")
    }
}

/// What a worker takes as input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelInput {
    /// Token ids: the frontend tokenizes.
    #[default]
    Tokens,
    /// Text: the worker tokenizes.
    Text,
    /// Tensors.
    Tensor,
}

/// The part that a worker plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerType {
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
    /// Encoder of images and the like.
    Encode,
    /// Prefill and decode.
    Aggregated,
}

/// Reads an explicit `null` like a missing key.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
