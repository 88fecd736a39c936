//! A server's model files, and how long one waits for a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use roost_sglang::{Health, HealthConfig, InfoError, Probe, Server, ServerInfo};
use roost_worker::ModelFiles;

/// Finds the files: those of the option, else those that the server itself uses, if they are on this machine.
///
/// # Errors
/// There is no such folder, or a file is missing in it: what to do about it.
pub fn files(info: &ServerInfo, model_path: Option<&Path>) -> Result<ModelFiles> {
    let folder = match model_path {
        Some(path) => path.to_owned(),
        None => readable(&info.tokenizer_path)?,
    };
    let mut files = ModelFiles::in_dir(&folder);
    // The weights may be in another folder than the tokenizer, and their settings with them.
    if model_path.is_none() && info.model_path != info.tokenizer_path {
        let weights = ModelFiles::in_dir(&info.model_path);
        if weights.config.is_file() {
            (files.config, files.generation_config) = (weights.config, weights.generation_config);
        }
    }
    for (file, what) in [
        (&files.config, "config.json"),
        (&files.tokenizer, "tokenizer.json"),
        (&files.tokenizer_config, "tokenizer_config.json"),
    ] {
        if !file.is_file() {
            bail!(
                "{} has no {what}: give the folder of the model's tokenizer with --model-path",
                folder.display()
            );
        }
    }
    let template = info.chat_template.as_deref().map(Path::new).filter(|path| path.is_file());
    if let Some(template) = template {
        files.chat_template = Some(template.to_owned());
    }
    files.source_path.clone_from(&info.model_path);
    Ok(files)
}

fn readable(path: &str) -> Result<PathBuf> {
    let folder = PathBuf::from(path);
    if !folder.is_dir() {
        bail!(
            "the server's tokenizer {path:?} is no folder on this machine: give the folder of the model's tokenizer with \
             --model-path"
        );
    }
    Ok(folder)
}

/// Looks at a server that is in use; resolves with the last look when it is not to be used any more. Cancel safe.
pub async fn watch_over(server: &Server, interval: Duration) -> Probe {
    let mut health = Health::new(HealthConfig::default());
    loop {
        tokio::time::sleep(interval).await;
        let probe = health.probe(server).await;
        if !health.observe(probe) {
            tracing::warn!(server = %server.url(), ?probe, "this SGLang server is not used any more");
            return probe;
        }
    }
}

/// Waits until a server is ready and has told of itself. Complains once for each new reason. Cancel safe.
pub async fn watch_for(server: &Server, interval: Duration) -> ServerInfo {
    let health = Health::new(HealthConfig::default());
    let mut told = None;
    loop {
        let reason = match health.probe(server).await {
            Probe::Ready => match ServerInfo::read(server).await {
                Ok(info) => return info,
                Err(error @ InfoError::Unusable { .. }) => error.to_string(),
                Err(error) => format!("it does not tell of itself: {error}"),
            },
            Probe::NotReady => "it is not ready yet".to_owned(),
            Probe::Unreachable => "nobody answers there".to_owned(),
            Probe::Late => "it does not answer in time".to_owned(),
        };
        if told.as_ref() != Some(&reason) {
            tracing::warn!(server = %server.url(), reason, "waiting for this SGLang server");
            told = Some(reason);
        }
        tokio::time::sleep(interval).await;
    }
}
