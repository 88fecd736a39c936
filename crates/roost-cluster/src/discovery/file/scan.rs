//! Looking at a bucket directory: what changed since the last look, and what is stale.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::name;

/// A look at every file is taken at least this often, even when the directory itself did not change.
const FULL_LOOK: Duration = Duration::from_secs(1);
/// Longest record that is read; real ones have a few kilobytes.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// What is known of one bucket directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    files: HashMap<String, Known>,
    directory_modified: Option<SystemTime>,
    directory_inode: Option<u64>,
    looked: Option<SystemTime>,
}

#[derive(Debug)]
struct Known {
    key: String,
    identity: Identity,
    /// Last good content.
    value: Option<Bytes>,
    /// The present content is not good: partial, not JSON, or unreadable.
    pending: bool,
}

/// Tells a file from one that took its name. Touching a file does not change it, writing does on file systems without
/// birth times only through `modified`.
#[derive(Debug, PartialEq)]
struct Identity {
    inode: u64,
    size: u64,
    created: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        let created = meta.created().ok();
        let modified = if created.is_some() { None } else { meta.modified().ok() };
        Self { inode: meta.ino(), size: meta.len(), created, modified }
    }
}

/// Result of one look.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Look {
    /// The records differ from those of the look before.
    pub(super) changed: bool,
    /// The directory is another one than at the look before.
    pub(super) replaced: bool,
    /// File names of stale records.
    pub(super) stale: Vec<String>,
}

impl Listing {
    /// Good records by key.
    pub(super) fn records(&self) -> BTreeMap<String, Bytes> {
        let good = self.files.values().filter_map(|known| Some((known.key.clone(), known.value.clone()?)));
        good.collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Drops what this process has just deleted itself.
    pub(super) fn forget(&mut self, names: &[String]) {
        for name in names {
            self.files.remove(name);
        }
    }

    /// Looks at the directory. A directory that does not exist is an error of that kind; the listing is then unchanged.
    pub(super) fn look(&mut self, directory: &Path, ttl: Duration, now: SystemTime) -> io::Result<Look> {
        let meta = fs::metadata(directory)?;
        let modified = meta.modified()?;
        let replaced = self.directory_inode.is_some_and(|inode| inode != meta.ino());
        // A directory changed within the last second may change again without getting another time stamp.
        let settled =
            !replaced && since(modified, now) > FULL_LOOK && self.directory_modified == Some(modified);
        let fresh = self.looked.is_some_and(|looked| looked <= now && since(looked, now) < FULL_LOOK);
        if settled && fresh && !self.files.values().any(|known| known.pending) {
            return Ok(Look::default());
        }
        let mut look = self.look_at_all(directory, ttl, now)?;
        look.replaced = replaced;
        self.directory_inode = Some(meta.ino());
        self.directory_modified = Some(modified);
        self.looked = Some(now);
        Ok(look)
    }

    fn look_at_all(&mut self, directory: &Path, ttl: Duration, now: SystemTime) -> io::Result<Look> {
        let mut look = Look::default();
        let mut gone: HashMap<String, Known> = std::mem::take(&mut self.files);
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(file_name) = entry.file_name().into_string() else { continue };
            let Some(key) = name::key(&file_name) else { continue };
            let Ok(meta) = entry.metadata() else { continue };
            if !meta.is_file() {
                continue;
            }
            if since(meta.modified().unwrap_or(now), now) > ttl {
                look.stale.push(file_name.clone());
            }
            let before = gone.remove(&file_name);
            let known = refresh(before, &entry.path(), key, &meta, &mut look.changed);
            self.files.insert(file_name, known);
        }
        look.changed |= gone.values().any(|known| known.value.is_some());
        Ok(look)
    }
}

fn refresh(before: Option<Known>, path: &Path, key: String, meta: &Metadata, changed: &mut bool) -> Known {
    let identity = Identity::of(meta);
    let (old_value, was_pending) = match before {
        Some(known) if known.identity == identity && !known.pending => return known,
        Some(known) => (known.value, known.pending),
        None => (None, false),
    };
    match read(path, meta.len()) {
        Ok(value) => {
            *changed |= old_value.as_ref() != Some(&value);
            Known { key, identity, value: Some(value), pending: false }
        }
        Err(error) => {
            if !was_pending {
                tracing::warn!(key, %error, "discovery record is not readable yet; it is tried again");
            }
            Known { key, identity, value: old_value, pending: true }
        }
    }
}

fn read(path: &Path, size: u64) -> io::Result<Bytes> {
    if size > MAX_RECORD_BYTES {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("{size} bytes are too many for a record"),
        ));
    }
    let content = fs::read(path)?;
    serde_json::from_slice::<serde::de::IgnoredAny>(&content)?;
    Ok(content.into())
}

fn since(earlier: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(earlier).unwrap_or_default()
}
