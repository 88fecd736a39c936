//! The blocking file operations of one bucket directory.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::name::file_name;
use crate::discovery::DiscoveryError;
use crate::record::{Bucket, RecordKey};

/// How long a mutation waits for the directory's lock. A participant that was stopped while holding it must not stall
/// our keep-alives beyond the time to live.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Store {
    pub(super) root: PathBuf,
    pub(super) ttl: Duration,
}

impl Store {
    pub(super) fn directory(&self, bucket: Bucket) -> PathBuf {
        self.root.join(bucket.path())
    }

    pub(super) fn path(&self, key: &RecordKey) -> PathBuf {
        self.directory(key.bucket).join(file_name(&key.key))
    }

    /// Writes a record that must not exist; a stale one of a dead owner does not count.
    pub(super) fn create(&self, key: &RecordKey, value: &[u8]) -> Result<(), DiscoveryError> {
        let directory = self.directory(key.bucket);
        fs::create_dir_all(&directory).map_err(|e| failed("create", &directory, e))?;
        let _lock = lock(&directory)?;
        let path = self.path(key);
        let temporary = Temporary::write(&directory, value)?;
        match fs::hard_link(&temporary.0, &path) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                if !self.is_stale(&path, SystemTime::now()) {
                    return Err(DiscoveryError::Exists { key: key.clone() });
                }
                fs::rename(&temporary.0, &path).map_err(|e| failed("replace", &path, e))
            }
            Err(e) => Err(failed("create", &path, e)),
        }
    }

    /// Writes a record over one that is ours.
    pub(super) fn replace(&self, key: &RecordKey, value: &[u8]) -> Result<(), DiscoveryError> {
        let directory = self.directory(key.bucket);
        fs::create_dir_all(&directory).map_err(|e| failed("create", &directory, e))?;
        let _lock = lock(&directory)?;
        let path = self.path(key);
        let temporary = Temporary::write(&directory, value)?;
        fs::rename(&temporary.0, &path).map_err(|e| failed("replace", &path, e))
    }

    /// Deletes a record; one that is gone already is no error.
    pub(super) fn remove(&self, key: &RecordKey) -> Result<(), DiscoveryError> {
        let directory = self.directory(key.bucket);
        let _lock = match lock(&directory) {
            Err(DiscoveryError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("delete", &path, e)),
            _ => Ok(()),
        }
    }

    /// Renews a record's lease. `false` means that somebody has deleted it.
    pub(super) fn touch(&self, key: &RecordKey) -> Result<bool, DiscoveryError> {
        let path = self.path(key);
        let touched =
            OpenOptions::new().write(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
        match touched {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(failed("touch", &path, e)),
        }
    }

    /// Deletes records that are still stale under the lock. When somebody else holds the lock, later is soon enough.
    pub(super) fn reap(&self, bucket: Bucket, names: &[String]) -> Vec<String> {
        let directory = self.directory(bucket);
        let Ok(handle) = File::open(&directory) else { return Vec::new() };
        if handle.try_lock().is_err() {
            return Vec::new();
        }
        let now = SystemTime::now();
        let dead = names.iter().filter(|name| {
            let path = directory.join(name);
            self.is_stale(&path, now) && fs::remove_file(&path).is_ok()
        });
        dead.cloned().collect()
    }

    fn is_stale(&self, path: &Path, now: SystemTime) -> bool {
        let modified = fs::metadata(path).and_then(|meta| meta.modified());
        modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > self.ttl))
    }
}

/// A temporary file that is unlinked when dropped (a no-op after it was renamed).
struct Temporary(PathBuf);

impl Temporary {
    fn write(directory: &Path, value: &[u8]) -> Result<Self, DiscoveryError> {
        let path = directory.join(format!(".tmp_{:016x}", RandomState::new().build_hasher().finish()));
        let open = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = open.map_err(|e| failed("create", &path, e))?;
        let temporary = Self(path);
        file.write_all(value).map_err(|e| failed("write", &temporary.0, e))?;
        Ok(temporary)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Takes the directory's exclusive lock, which ends with the returned handle.
fn lock(directory: &Path) -> Result<File, DiscoveryError> {
    let handle = File::open(directory).map_err(|e| failed("open", directory, e))?;
    let begin = Instant::now();
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(handle),
            Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(failed("lock", directory, io::Error::from(ErrorKind::TimedOut)));
            }
            Err(TryLockError::Error(e)) => return Err(failed("lock", directory, e)),
        }
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> DiscoveryError {
    DiscoveryError::Io { action, path: path.to_owned(), source }
}
