//! Model files to text assets, off the network runtime, with back-off.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use roost_cluster::record::ModelFile;
use roost_cluster::{
    CardFiles, CardFilesConfig, FilesError, LoadedFiles, ModelCard, TokenizerFile, WorkerInfo,
};
use roost_parser::ParserSpec;
use roost_template::{ChatTemplate, LoadError, TemplateFiles};
use roost_tokenizer::{SegmentCache, Tokenizer};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::config::ModelSource;
use crate::models::Assets;

/// First pause before a failed load is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A finished load.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) model: String,
    pub(crate) mdcsum: String,
    pub(crate) attempt: u32,
    pub(crate) took: Duration,
    pub(crate) result: Result<Assets, String>,
}

/// Starts loads; at most one per card at a time.
#[derive(Debug)]
pub(crate) struct Loader {
    source: ModelSource,
    cache: Arc<SegmentCache>,
    done: mpsc::Sender<Loaded>,
    running: HashSet<String>,
    io: Handle,
}

impl Loader {
    pub(crate) fn new(
        source: ModelSource,
        cache: Arc<SegmentCache>,
        done: mpsc::Sender<Loaded>,
        io: Handle,
    ) -> Self {
        Loader { source, cache, done, running: HashSet::new(), io }
    }

    /// Loads the files of a worker's card, unless that runs already.
    pub(crate) fn load(&mut self, info: &Arc<WorkerInfo>) {
        if self.running.insert(info.mdcsum.clone()) {
            self.start(info, 0, Duration::ZERO);
        }
    }

    /// Tries again after a pause.
    pub(crate) fn retry(&mut self, info: &Arc<WorkerInfo>, attempt: u32) {
        let pause = FIRST_PAUSE.saturating_mul(1 << attempt.saturating_sub(1).min(5)).min(LONGEST_PAUSE);
        self.start(info, attempt, pause);
    }

    /// A load has ended for good.
    pub(crate) fn forget(&mut self, mdcsum: &str) {
        self.running.remove(mdcsum);
    }

    fn start(&self, info: &Arc<WorkerInfo>, attempt: u32, pause: Duration) {
        let (source, info, done) = (self.source.clone(), Arc::clone(info), self.done.clone());
        let cache = Arc::clone(&self.cache);
        self.io.spawn(async move {
            tokio::time::sleep(pause).await;
            let started = Instant::now();
            let result = load(&source, cache, &info).await;
            let loaded = Loaded {
                model: info.card.display_name.clone(),
                mdcsum: info.mdcsum.clone(),
                attempt,
                took: started.elapsed(),
                result,
            };
            // The pump has ended: nobody is left to tell.
            let _ended = done.send(loaded).await;
        });
    }
}

async fn load(source: &ModelSource, cache: Arc<SegmentCache>, info: &WorkerInfo) -> Result<Assets, String> {
    let mut config = CardFilesConfig::new(source.cache_dir.clone());
    config.model_path.clone_from(&source.path);
    let files = CardFiles::new(config);
    let loaded = files.load(&info.card).await.map_err(|e| e.to_string())?;
    let mut template = template_files(&files, &info.card).await.map_err(|e| e.to_string())?;
    template.deepseek = source.deepseek;
    let source = source.clone();
    let runtime = &info.card.runtime_config;
    let names = (runtime.tool_call_parser.clone(), runtime.reasoning_parser.clone());
    let (tx, rx) = oneshot::channel();
    // On a thread of its own, whose heap goes with it: loading takes a multiple of the memory that it leaves in use.
    let thread = std::thread::Builder::new().name("load-model".to_owned()).spawn(move || {
        let names = (names.0.as_deref(), names.1.as_deref());
        // The frontend may have ended meanwhile.
        let _gone = tx.send(build(&source, cache, &loaded, &template, names));
    });
    thread.map_err(|e| format!("there is no thread to load on: {e}"))?;
    rx.await.map_err(|_| "loading panicked".to_owned())?
}

/// The files that decide on the template, as paths here.
async fn template_files(files: &CardFiles, card: &ModelCard) -> Result<TemplateFiles, FilesError> {
    let mut found = TemplateFiles { model_name: card.display_name.clone(), ..TemplateFiles::default() };
    if let Some(file) = &card.chat_template_file {
        let path = files.fetch(file.file()).await?;
        match file {
            ModelFile::HfChatTemplateJson(_) => found.chat_template_json = Some(path),
            _ => found.custom = Some(path),
        }
    }
    if let Some(file) = &card.prompt_formatter {
        found.tokenizer_config = Some(files.fetch(file.file()).await?);
    }
    if let Some(file) = &card.model_info {
        found.config = Some(files.fetch(file.file()).await?);
    }
    Ok(found)
}

fn build(
    source: &ModelSource,
    cache: Arc<SegmentCache>,
    files: &LoadedFiles,
    template: &TemplateFiles,
    names: (Option<&str>, Option<&str>),
) -> Result<Assets, String> {
    let parsers = parsers(names, files);
    let tokenizer = match &files.tokenizer {
        Some(TokenizerFile::HfJson(path)) => Tokenizer::load(path, source.backend, source.fallback),
        Some(TokenizerFile::Tiktoken(path)) => {
            Tokenizer::load_tiktoken(path, files.config.as_ref(), files.tokenizer_config.as_ref())
        }
        None => return Err("the card names no tokenizer file".into()),
    };
    let tokenizer = tokenizer.map_err(|e| e.to_string())?.with_cache(cache);
    let template = ChatTemplate::from_files(template).map_err(|error| {
        tracing::warn!(%error, "the model has no usable chat template; only raw prompts are served");
        match error {
            LoadError::Missing => {
                "The model has no chat template; send the prompt to /v1/completions.".to_owned()
            }
            LoadError::Syntax { .. } => error.to_string(),
            LoadError::Read { .. } | LoadError::Json { .. } => {
                "The model's chat template cannot be read.".to_owned()
            }
        }
    });
    let eos = eos_ids(files.generation_config.as_ref(), files.config.as_ref());
    Ok(Assets { tokenizer, template, eos, parsers })
}

/// The parsers that the card names; `auto` lets the model's type or its template decide. A name that is not served is
/// said once, and the text then passes as it is.
fn parsers((tool, reasoning): (Option<&str>, Option<&str>), files: &LoadedFiles) -> ParserSpec {
    if [tool, reasoning].contains(&Some("auto")) {
        let text = |json: &Option<Value>, member: &str| {
            json.as_ref().and_then(|json| json[member].as_str()).unwrap_or_default().to_owned()
        };
        let template =
            files.chat_template.clone().unwrap_or_else(|| text(&files.tokenizer_config, "chat_template"));
        return ParserSpec::auto(&text(&files.config, "model_type"), &template);
    }
    ParserSpec::by_name(tool, reasoning).unwrap_or_else(|error| {
        tracing::warn!(%error, "reasoning and tool calls of this model are passed on as text");
        ParserSpec::default()
    })
}

/// `eos_token_id` of the generation config, else of the model's own: a number or a list.
fn eos_ids(generation: Option<&Value>, config: Option<&Value>) -> Vec<u32> {
    let ids = |json: Option<&Value>| -> Vec<u32> {
        let value = json.and_then(|json| json.get("eos_token_id"));
        let list = match value {
            Some(Value::Array(list)) => list.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        list.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
    };
    let found = ids(generation);
    if found.is_empty() { ids(config) } else { found }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn eos_ids_from_either_file() {
        let list = json!({"eos_token_id": [3, 4]});
        let one = json!({"eos_token_id": 5});
        assert_eq!(eos_ids(Some(&list), Some(&one)), [3, 4]);
        assert_eq!(eos_ids(None, Some(&one)), [5]);
        assert_eq!(eos_ids(Some(&json!({"eos_token_id": null})), Some(&one)), [5]);
        assert_eq!(eos_ids(None, None), [0u32; 0]);
    }
}
