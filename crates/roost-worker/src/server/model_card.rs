//! The model card of an engine, with the checksums of its files.

use std::io;
use std::path::Path;

use bytes::Bytes;
use roost_cluster::record::{
    BootstrapEndpoint, FileRef, ModelCard, ModelFile, ModelInput, ModelType, RuntimeConfig, WorkerType,
};
use serde_json::{Map, Value, json};

use super::StartError;
use crate::{EngineCard, ModelFiles, Role};

/// One file of the model, read.
#[derive(Debug)]
pub(super) struct ReadFile {
    kind: Kind,
    /// Base name.
    pub(super) name: String,
    /// Where frontends find it: a path, or a URL.
    pub(super) path: String,
    pub(super) content: Bytes,
    checksum: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Config,
    Tokenizer,
    TokenizerConfig,
    GenerationConfig,
    ChatTemplate,
}

impl ReadFile {
    fn reference(&self) -> FileRef {
        let size = Some(self.content.len() as u64);
        FileRef { path: self.path.clone(), checksum: self.checksum.clone(), size }
    }
}

/// Reads the files off the runtime's threads.
pub(super) async fn read_files(files: &ModelFiles) -> Result<Vec<ReadFile>, StartError> {
    let mut wanted = vec![
        (Kind::Config, files.config.clone()),
        (Kind::Tokenizer, files.tokenizer.clone()),
        (Kind::TokenizerConfig, files.tokenizer_config.clone()),
    ];
    wanted.extend(files.generation_config.clone().map(|path| (Kind::GenerationConfig, path)));
    wanted.extend(files.chat_template.clone().map(|path| (Kind::ChatTemplate, path)));
    let reading = tokio::task::spawn_blocking(move || {
        wanted.into_iter().map(|(kind, path)| read_file(kind, &path)).collect()
    });
    reading.await.expect("reading files does not panic")
}

fn read_file(kind: Kind, path: &Path) -> Result<ReadFile, StartError> {
    let failed = |source: io::Error| StartError::ModelFile { path: path.display().to_string(), source };
    let path = std::path::absolute(path).map_err(failed)?;
    let content = Bytes::from(std::fs::read(&path).map_err(failed)?);
    Ok(ReadFile {
        kind,
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_string_lossy().into_owned(),
        checksum: format!("blake3:{}", blake3::hash(&content).to_hex()),
        content,
    })
}

/// How a worker's KV events can be had.
#[derive(Debug, Clone, Copy)]
pub(super) struct Publishing {
    pub(super) events: bool,
    /// Frontends can ask for the state of a rank.
    pub(super) queries: bool,
}

impl EngineCard {
    /// The card of an engine that a frontend hosts in its own process: it hears of the engine's cache without a publisher,
    /// and finds the model's files where they are.
    ///
    /// # Errors
    /// A file of the model cannot be read.
    pub async fn hosted(&self) -> Result<ModelCard, StartError> {
        let files = read_files(&self.files).await?;
        Ok(model_card(self, &files, Publishing { events: true, queries: false }))
    }
}

/// The card that a worker registers for its engine.
pub(super) fn model_card(card: &EngineCard, files: &[ReadFile], publishing: Publishing) -> ModelCard {
    let file = |kind| files.iter().find(|file| file.kind == kind);
    let reference = |kind| file(kind).map(ReadFile::reference);
    let publishes = card.publishes_kv_events && publishing.events;
    ModelCard {
        display_name: card.model_name.clone(),
        slug: slug(&card.model_name),
        aliases: card.aliases.clone(),
        source_path: Some(card.files.source_path.clone()),
        model_info: reference(Kind::Config).map(ModelFile::HfConfigJson),
        tokenizer: reference(Kind::Tokenizer).map(ModelFile::HfTokenizerJson),
        prompt_formatter: reference(Kind::TokenizerConfig).map(ModelFile::HfTokenizerConfigJson),
        chat_template_file: reference(Kind::ChatTemplate)
            .map(|file| ModelFile::HfChatTemplate { is_custom: false, file }),
        gen_config: reference(Kind::GenerationConfig).map(ModelFile::HfGenerationConfigJson),
        extra_files: Vec::new(),
        architectural_max_context_length: file(Kind::Config).and_then(|file| positions(&file.content)),
        context_length: Some(0),
        kv_cache_block_size: Some(card.kv_block_size),
        migration_limit: 0,
        model_type: ModelType(card.role.model_type().to_owned()),
        model_input: ModelInput::Tokens,
        worker_type: Some(worker_type(card.role)),
        needs: match card.role {
            Role::Aggregated => Vec::new(),
            Role::Prefill => vec![vec![WorkerType::Decode]],
            Role::Decode => vec![vec![WorkerType::Prefill]],
        },
        runtime_config: RuntimeConfig {
            context_length: Some(card.context_length),
            total_kv_blocks: Some(card.total_kv_blocks),
            max_num_seqs: Some(card.max_num_seqs),
            max_num_batched_tokens: Some(card.max_num_batched_tokens),
            tool_call_parser: card.tool_call_parser.clone(),
            reasoning_parser: card.reasoning_parser.clone(),
            data_parallel_start_rank: card.dp_start_rank,
            data_parallel_size: card.dp_size,
            enable_local_indexer: publishes && publishing.queries,
            kv_event_publishing_enabled: publishes,
            disaggregated_endpoint: card.bootstrap.as_ref().map(|server| BootstrapEndpoint {
                bootstrap_host: Some(server.host.clone()),
                bootstrap_port: Some(server.port),
            }),
            enable_eagle: card.eagle,
            runtime_data: card.runtime_data.clone(),
            other: tool_call_output().into_iter().chain(card.runtime_config.clone()).collect(),
        },
        other: Map::new(),
    }
}

/// How tool calls are shaped: Dynamo's defaults.
fn tool_call_output() -> Map<String, Value> {
    let Value::Object(settings) = json!({
        "tool_call_arguments_format": "json_string",
        "structural_tag_mode": "off",
        "structural_tag_scope": "auto",
        "structural_tag_schema": "auto",
        "exclude_tools_when_tool_choice_none": true,
    }) else {
        return Map::new();
    };
    settings
}

fn worker_type(role: Role) -> WorkerType {
    match role {
        Role::Aggregated => WorkerType::Aggregated,
        Role::Prefill => WorkerType::Prefill,
        Role::Decode => WorkerType::Decode,
    }
}

/// The name in a form that is safe in file names and URLs.
pub(super) fn slug(name: &str) -> String {
    name.to_ascii_lowercase()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
        .collect()
}

/// `max_position_embeddings` of a model's configuration, which may be nested in the part for text.
fn positions(config: &[u8]) -> Option<u32> {
    let config: Value = serde_json::from_slice(config).ok()?;
    let positions = [&config, &config["text_config"]]
        .into_iter()
        .find_map(|part| part["max_position_embeddings"].as_u64());
    positions.and_then(|positions| u32::try_from(positions).ok())
}
