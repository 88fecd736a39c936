//! Downloaded files by their hash.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};

use super::source::Checksum;
use super::{blocking, verify_now};

/// A directory of files that are named by what they contain.
#[derive(Debug)]
pub(super) struct Cache {
    blobs: PathBuf,
}

impl Cache {
    pub(super) fn new(directory: &Path) -> Self {
        Self { blobs: directory.join("blobs") }
    }

    fn path(&self, checksum: &Checksum) -> PathBuf {
        self.blobs.join(checksum.hex())
    }

    /// The cached file, verified again; a damaged one is removed.
    pub(super) async fn find(&self, checksum: &Checksum, limit: u64) -> Option<PathBuf> {
        let (path, checksum) = (self.path(checksum), checksum.clone());
        let found = blocking(move || {
            if !path.exists() {
                return Ok(None);
            }
            if let Err(reason) = verify_now(&path, &checksum, limit) {
                tracing::warn!(path = %path.display(), reason, "damaged file in the cache is removed");
                std::fs::remove_file(&path)?;
                return Ok(None);
            }
            Ok(Some(path))
        });
        found.await.ok().flatten()
    }

    /// A new temporary file on the cache's file system.
    pub(super) async fn begin(&self) -> std::io::Result<(tokio::fs::File, Unfinished)> {
        tokio::fs::create_dir_all(&self.blobs).await?;
        let name = format!(".tmp_{:016x}", RandomState::new().build_hasher().finish());
        let unfinished = Unfinished(Some(self.blobs.join(name)));
        let path = unfinished.0.clone().expect("set one line above");
        Ok((tokio::fs::File::create_new(path).await?, unfinished))
    }

    /// Gives a complete and verified file its name.
    pub(super) async fn finish(
        &self,
        mut unfinished: Unfinished,
        checksum: &Checksum,
    ) -> std::io::Result<PathBuf> {
        let path = self.path(checksum);
        let temporary = unfinished.0.clone().expect("taken only below, by value");
        tokio::fs::rename(temporary, &path).await?;
        unfinished.0 = None;
        Ok(path)
    }
}

/// A temporary file that disappears unless it is finished.
#[derive(Debug)]
pub(super) struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
