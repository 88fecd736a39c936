//! The file: a line that says what it is, then one line of JSON per binding.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use roost_kv::{WorkerId, WorkerRank};
use roost_router::{Role, SavedBinding};
use serde::{Deserialize, Serialize};

use super::Saved;

/// What is written; a file that says otherwise is not read.
const FORMAT: u32 = 1;
/// Longest line that is read, bytes.
const LINE_BYTES: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct Head {
    roost_bindings: u32,
    saved_at_unix_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    model: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    card: std::borrow::Cow<'a, str>,
    role: FileRole,
    #[serde(borrow)]
    session: std::borrow::Cow<'a, str>,
    worker: u64,
    dp_rank: u32,
    idle_ms: u64,
    tokens: u32,
    sequence: u64,
    writer: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileRole {
    Aggregated,
    Prefill,
    Decode,
}

/// Reads up to `limit` bindings. The time since they were written counts as idle. Lines that make no sense are skipped.
///
/// # Errors
/// The file cannot be read or is something else.
pub(super) fn read(path: &Path, now: SystemTime, limit: usize) -> io::Result<Saved> {
    let mut input = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| -> io::Result<bool> {
        line.clear();
        input.by_ref().take(LINE_BYTES).read_until(b'\n', line)?;
        Ok(!line.is_empty())
    };
    next(&mut line)?;
    let head: Head =
        serde_json::from_slice(&line).map_err(|_| io::Error::other("it is not a file of bindings"))?;
    if head.roost_bindings != FORMAT {
        return Err(io::Error::other("it was written by another version"));
    }
    let away = Duration::from_millis(unix_ms(now).saturating_sub(head.saved_at_unix_ms));
    let (mut saved, mut count) = (Saved::new(), 0);
    while count < limit && next(&mut line)? {
        let Ok(binding) = serde_json::from_slice::<Line<'_>>(&line) else { continue };
        let role = match binding.role {
            FileRole::Aggregated => Role::Aggregated,
            FileRole::Prefill => Role::Prefill,
            FileRole::Decode => Role::Decode,
        };
        count += 1;
        saved.entry((binding.model.into(), binding.card.into(), role)).or_default().push(SavedBinding {
            session: binding.session.into_owned(),
            rank: WorkerRank::new(WorkerId(binding.worker), binding.dp_rank),
            idle: Duration::from_millis(binding.idle_ms).saturating_add(away),
            promised_tokens: binding.tokens,
            sequence: binding.sequence,
            writer_id: binding.writer,
        });
    }
    Ok(saved)
}

/// Replaces the file. Whoever reads meanwhile, or after a crash, finds the old one or the new one.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn write(path: &Path, now: SystemTime, saved: &Saved) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let result = write_new(&new, now, saved).and_then(|()| fs::rename(&new, path));
    if result.is_err() {
        // It may not even exist; the error that matters is the first one.
        let _removed = fs::remove_file(&new);
    }
    result
}

fn write_new(path: &Path, now: SystemTime, saved: &Saved) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut output = BufWriter::new(options.open(path)?);
    let head = Head { roost_bindings: FORMAT, saved_at_unix_ms: unix_ms(now) };
    serde_json::to_writer(&mut output, &head)?;
    output.write_all(b"\n")?;
    for ((model, card, role), bindings) in saved {
        for binding in bindings {
            let line = Line {
                model: (&**model).into(),
                card: (&**card).into(),
                role: match role {
                    Role::Aggregated => FileRole::Aggregated,
                    Role::Prefill => FileRole::Prefill,
                    Role::Decode => FileRole::Decode,
                },
                session: (&*binding.session).into(),
                worker: binding.rank.worker.0,
                dp_rank: binding.rank.dp_rank,
                idle_ms: u64::try_from(binding.idle.as_millis()).unwrap_or(u64::MAX),
                tokens: binding.promised_tokens,
                sequence: binding.sequence,
                writer: binding.writer_id,
            };
            serde_json::to_writer(&mut output, &line)?;
            output.write_all(b"\n")?;
        }
    }
    output.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
