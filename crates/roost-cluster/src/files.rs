//! The files behind a model card: found, fetched, verified, cached.

mod cache;
mod download;
mod source;
mod target;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::record::{FileRef, ModelCard, ModelFile};
use cache::Cache;
use source::{Checksum, Source, base_name};

/// Largest file of a card.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Largest file that is read into memory as JSON or as a template.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Where and how [`CardFiles`] looks for files.
#[derive(Clone, Debug)]
pub struct CardFilesConfig {
    /// Directory for downloaded files; created when needed. Contents are named by their hash and never change.
    pub cache_dir: PathBuf,
    /// A local copy of the model, searched by file name when the worker's path is not readable here.
    pub model_path: Option<PathBuf>,
    /// Largest file, bytes. The size in a card limits further.
    pub max_bytes: u64,
    /// Longest wait for a connection, and for the next bytes of a download.
    pub idle_timeout: Duration,
    /// Longest download of one file.
    pub total_timeout: Duration,
}

impl CardFilesConfig {
    /// Default limits, with downloads cached under `cache_dir`.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            model_path: None,
            max_bytes: MAX_FILE_BYTES,
            idle_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(600),
        }
    }
}

/// The verified files of one card. What the card does not name is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadedFiles {
    /// The tokenizer on local disk.
    pub tokenizer: Option<TokenizerFile>,
    /// `config.json`.
    pub config: Option<Value>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<Value>,
    /// `generation_config.json`.
    pub generation_config: Option<Value>,
    /// Text of a chat template of its own. The one inside `tokenizer_config.json` is not repeated here.
    pub chat_template: Option<String>,
}

/// A tokenizer file and its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerFile {
    /// `tokenizer.json`.
    HfJson(PathBuf),
    /// A tiktoken vocabulary.
    Tiktoken(PathBuf),
}

/// Loads the files of model cards.
///
/// A file is taken from the worker's path if it is readable here, else from the configured model directory, else from
/// the cache, else from the worker by HTTP. Whatever the source, content that does not have the card's checksum is
/// never used.
#[derive(Clone, Debug)]
pub struct CardFiles {
    config: CardFilesConfig,
}

impl CardFiles {
    /// Makes a loader.
    pub fn new(config: CardFilesConfig) -> Self {
        Self { config }
    }

    /// Loads all files that the card names.
    ///
    /// Cancel safe: a dropped download leaves nothing behind but a temporary file that a later one replaces.
    ///
    /// # Errors
    /// The first file that could not be had, with every place that was tried.
    pub async fn load(&self, card: &ModelCard) -> Result<LoadedFiles, FilesError> {
        let tokenizer = match &card.tokenizer {
            None => None,
            Some(file) => {
                let path = self.fetch(file.file()).await?;
                Some(match file {
                    ModelFile::TikTokenModel(_) => TokenizerFile::Tiktoken(path),
                    _ => TokenizerFile::HfJson(path),
                })
            }
        };
        Ok(LoadedFiles {
            tokenizer,
            config: self.json(card.model_info.as_ref()).await?,
            tokenizer_config: self.json(card.prompt_formatter.as_ref()).await?,
            generation_config: self.json(card.gen_config.as_ref()).await?,
            chat_template: self.template(card.chat_template_file.as_ref()).await?,
        })
    }

    /// Finds or fetches one file and returns where it is on local disk.
    ///
    /// # Errors
    /// [`FilesError::Unavailable`] with every place that was tried, or [`FilesError::Reference`].
    pub async fn fetch(&self, file: &FileRef) -> Result<PathBuf, FilesError> {
        let checksum = Checksum::parse(file)?;
        let source = Source::parse(file)?;
        let limit = file.size.unwrap_or(u64::MAX).min(self.config.max_bytes);
        if let Some(size) = file.size.filter(|&size| size > self.config.max_bytes) {
            let reason = format!("its size is {size} bytes, the limit is {}", self.config.max_bytes);
            return Err(FilesError::Reference { path: file.path.clone(), reason });
        }
        let mut tried = Vec::new();
        let local = match &source {
            Source::Local(path) => Some(path.clone()),
            _ => None,
        };
        let copy = self.config.model_path.as_ref().map(|directory| directory.join(base_name(&file.path)));
        for path in local.into_iter().chain(copy) {
            match verify(path.clone(), checksum.clone(), limit).await {
                Ok(()) => return Ok(path),
                Err(reason) => tried.push(Attempt { place: path.display().to_string(), reason }),
            }
        }
        let cache = Cache::new(&self.config.cache_dir);
        if let Some(path) = cache.find(&checksum, limit).await {
            return Ok(path);
        }
        let reason = match source {
            Source::Local(_) => None,
            Source::Http(uri) => match download::download(&uri, &checksum, limit, &cache, &self.config).await {
                Ok(path) => return Ok(path),
                Err(reason) => Some(reason),
            },
            Source::Https => Some("https needs TLS, which this build does not have; serve the file over http".to_owned()),
            Source::Hub => Some(
                "files are not fetched from a hub; download the model and name its directory with --model-path".to_owned(),
            ),
        };
        tried.extend(reason.map(|reason| Attempt { place: file.path.clone(), reason }));
        Err(FilesError::Unavailable { path: file.path.clone(), tried })
    }

    async fn json(&self, file: Option<&ModelFile>) -> Result<Option<Value>, FilesError> {
        let Some(text) = self.text(file).await? else { return Ok(None) };
        let path = file.map_or_else(String::new, |file| file.file().path.clone());
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| FilesError::Content { path, reason: error.to_string() })
    }

    async fn template(&self, file: Option<&ModelFile>) -> Result<Option<String>, FilesError> {
        match file {
            Some(ModelFile::HfChatTemplateJson(reference)) => {
                let json = self.json(file).await?;
                let text = json.as_ref().and_then(|json| json["chat_template"].as_str());
                text.map(|text| Some(text.to_owned())).ok_or_else(|| FilesError::Content {
                    path: reference.path.clone(),
                    reason: "no text under \"chat_template\"".to_owned(),
                })
            }
            file => self.text(file).await,
        }
    }

    async fn text(&self, file: Option<&ModelFile>) -> Result<Option<String>, FilesError> {
        let Some(reference) = file.map(ModelFile::file) else { return Ok(None) };
        let content = |reason: String| FilesError::Content { path: reference.path.clone(), reason };
        let path = self.fetch(reference).await?;
        blocking(move || {
            let size = std::fs::metadata(&path)?.len();
            if size > MAX_TEXT_BYTES {
                let reason = format!("{size} bytes are too many for a text of at most {MAX_TEXT_BYTES}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            std::fs::read_to_string(&path)
        })
        .await
        .map(Some)
        .map_err(|error| content(error.to_string()))
    }
}

/// Why the files of a card could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// No place had the file with the right content.
    #[error("model file {path} is not available: {}", list(tried))]
    Unavailable {
        /// The card's reference.
        path: String,
        /// Every place that was tried.
        tried: Vec<Attempt>,
    },
    /// The reference itself is of no use.
    #[error("model file {path} cannot be used: {reason}")]
    Reference {
        /// The card's reference.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The content has the right checksum, but not the right form.
    #[error("model file {path} cannot be read: {reason}")]
    Content {
        /// The card's reference.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// One place where a file was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Path or URL.
    pub place: String,
    /// Why it was not usable.
    pub reason: String,
}

fn list(tried: &[Attempt]) -> String {
    let places: Vec<String> =
        tried.iter().map(|attempt| format!("{}: {}", attempt.place, attempt.reason)).collect();
    places.join("; ")
}

/// Checks a local file against size limit and checksum.
async fn verify(path: PathBuf, checksum: Checksum, limit: u64) -> Result<(), String> {
    let checked = blocking(move || Ok(verify_now(&path, &checksum, limit))).await;
    checked.unwrap_or_else(|error| Err(error.to_string()))
}

fn verify_now(path: &Path, checksum: &Checksum, limit: u64) -> Result<(), String> {
    let known = std::fs::metadata(path).map_err(|error| error.to_string())?;
    // Devices and pipes have no size and perhaps no end.
    if !known.is_file() {
        return Err("no regular file".to_owned());
    }
    let size = known.len();
    if size > limit {
        return Err(format!("{size} bytes instead of at most {limit}"));
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut hasher = blake3::Hasher::new();
    // What grows while it is read is not the file that was looked at.
    let read =
        io::copy(&mut file.take(size.saturating_add(1)), &mut hasher).map_err(|error| error.to_string())?;
    if read > size {
        return Err("it grows while it is read".to_owned());
    }
    checksum.check(&hasher.finalize())
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(act).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
