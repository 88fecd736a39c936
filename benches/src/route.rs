//! The prompt path as a whole: body bytes in, wire bytes out.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use roost_frontend::{HashedPrompt, PromptMemory, PromptRequest, Recalled};
use roost_kv::{Blocks, hash};
use roost_openai::{ApiError, ChatRequest, FieldPolicy, Raw};
use roost_template::{ChatTemplate, RenderInput, TemplateFiles};
use roost_tokenizer::{Backend, Tokenizer};
use roost_wire::Codec;
use roost_wire::message::{EngineRequest, PromptTokens, TokenIdFormat};

/// Tokens per block.
pub const BLOCK_SIZE: u32 = 64;

/// Loads the tokenizer of a model folder.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn load_tokenizer(folder: &Path) -> anyhow::Result<Tokenizer> {
    Ok(Tokenizer::load(&folder.join("tokenizer.json"), Backend::Fast, true)?)
}

/// Loads the chat template of a model folder, or a built-in renderer for it.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn load_template(folder: &Path) -> anyhow::Result<ChatTemplate> {
    let model_name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ChatTemplate::from_files(&TemplateFiles { model_name, ..TemplateFiles::in_folder(folder) })?)
}

/// What turns a body into wire bytes.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    /// Messages to text.
    pub template: &'a ChatTemplate,
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// What is remembered.
    pub memory: &'a PromptMemory,
}

impl Route<'_> {
    /// From a parsed body to ids and block hashes.
    ///
    /// # Errors
    /// The body cannot be rendered or encoded.
    pub fn prompt(
        &self,
        body: &Bytes,
        request: &ChatRequest,
        recalled: Option<Recalled>,
    ) -> anyhow::Result<HashedPrompt> {
        Ok(self.memory.prompt(&PromptRequest {
            model: "m",
            session: Some("s"),
            parent: None,
            template: self.template,
            tokenizer: self.tokenizer,
            messages_at: request.messages.offset_in(body).context("messages are part of the body")?,
            body: body.clone(),
            recalled,
            input: input(request),
            cut: BLOCK_SIZE.into(),
            seed: hash::BASE_SEED,
        })?)
    }

    /// From body bytes to block hashes and wire bytes.
    ///
    /// # Errors
    /// The body is no chat request, or cannot be rendered or encoded.
    pub fn turn(&self, body: &Bytes) -> anyhow::Result<(Blocks, Bytes)> {
        let recalled = self.memory.recall("s", body);
        let request = match &recalled {
            Some(recalled) => {
                parsed(ChatRequest::parse_familiar(body, recalled.familiar, FieldPolicy::Ignore))?
            }
            None => parse(body)?,
        };
        let HashedPrompt { ids, blocks, .. } = self.prompt(body, &request, recalled)?;
        Ok((blocks, wire(ids)?))
    }
}

/// Reads a body.
///
/// # Errors
/// The body is no chat request.
pub fn parse(body: &Bytes) -> anyhow::Result<ChatRequest> {
    parsed(ChatRequest::parse(body, FieldPolicy::Ignore))
}

fn parsed(request: Result<ChatRequest, ApiError>) -> anyhow::Result<ChatRequest> {
    request.map_err(|e| anyhow!("{}", e.message()))
}

/// What the template is given.
#[must_use]
pub fn input(request: &ChatRequest) -> RenderInput<'_> {
    RenderInput {
        tools: request.tools.as_ref().map(Raw::as_str),
        ..RenderInput::new(request.messages.as_str(), SystemTime::now())
    }
}

/// The request as a worker gets it.
///
/// # Errors
/// None, with these values.
pub fn wire(token_ids: PromptTokens) -> anyhow::Result<Bytes> {
    let engine = EngineRequest { model: "m".to_owned(), token_ids, ..EngineRequest::default() };
    Ok(engine.encode(Codec::Msgpack, TokenIdFormat::Array)?)
}
