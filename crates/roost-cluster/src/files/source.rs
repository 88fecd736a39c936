//! Reading a card's file reference.

use std::path::PathBuf;

use hyper::Uri;

use super::FilesError;
use crate::record::{FileRef, percent_decode};

/// Where a reference points.
#[derive(Debug, PartialEq)]
pub(super) enum Source {
    Local(PathBuf),
    Http(Uri),
    Https,
    Hub,
}

impl Source {
    pub(super) fn parse(file: &FileRef) -> Result<Self, FilesError> {
        let fail =
            |reason: &str| FilesError::Reference { path: file.path.clone(), reason: reason.to_owned() };
        let Some((scheme, rest)) = file.path.split_once("://") else {
            return Ok(Source::Local(PathBuf::from(&file.path)));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "file" => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                let path = percent_decode(path).filter(|path| path.starts_with('/'));
                path.map(|path| Source::Local(path.into())).ok_or_else(|| fail("not a local file URL"))
            }
            "http" => file.path.parse().map(Source::Http).map_err(|_| fail("not a URL")),
            "https" => Ok(Source::Https),
            "hf" => Ok(Source::Hub),
            _ => Err(fail("unknown scheme; a local path, file://, http:// or hf:// is possible")),
        }
    }
}

/// The file name at the end of a path or URL, without query.
pub(super) fn base_name(path: &str) -> &str {
    let path = if path.contains("://") { path.split(['?', '#']).next().unwrap_or_default() } else { path };
    path.rsplit('/').next().unwrap_or_default()
}

/// The digest that a file must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksum(blake3::Hash);

impl Checksum {
    pub(super) fn parse(file: &FileRef) -> Result<Self, FilesError> {
        let hash = file.checksum.strip_prefix("blake3:").and_then(|hex| blake3::Hash::from_hex(hex).ok());
        hash.map(Self).ok_or_else(|| FilesError::Reference {
            path: file.path.clone(),
            reason: format!("its checksum {:?} is not blake3:HEX", file.checksum),
        })
    }

    pub(super) fn check(&self, got: &blake3::Hash) -> Result<(), String> {
        if *got == self.0 {
            return Ok(());
        }
        Err(format!("wrong checksum: expected blake3:{}, got blake3:{}", self.hex(), got.to_hex()))
    }

    pub(super) fn hex(&self) -> String {
        self.0.to_hex().to_string()
    }
}
