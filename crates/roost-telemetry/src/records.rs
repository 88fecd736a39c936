//! Records to a file, one JSON object a line, written by a thread of its own; the file is replaced when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Where records go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFile {
    /// The file that is written. Full ones are renamed: `.000000`, `.000001` and so on behind its name.
    pub path: PathBuf,
    /// Bytes after which it is full.
    pub roll_bytes: u64,
    /// Lines after which it is full, if that is limited.
    pub roll_lines: Option<u64>,
    /// Full files that are kept, the newest ones.
    pub keep: usize,
    /// Records that may wait for the thread; further ones are dropped.
    pub capacity: usize,
    /// Longest time that a record stays in memory once the thread has it.
    pub flush: Duration,
}

/// What has become of records so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RecordStats {
    /// Written, or about to be.
    pub written: u64,
    /// Dropped because too many waited.
    pub dropped: u64,
    /// Lost because the file could not be written.
    pub failed: u64,
}

/// The way to the thread. Clones share it.
#[derive(Debug)]
pub struct Records<T> {
    queue: SyncSender<Message<T>>,
    counters: Arc<Counters>,
}

/// Ends the thread.
#[derive(Debug)]
pub struct RecordKeeper<T> {
    records: Records<T>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counters {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
enum Message<T> {
    Record(T),
    End,
}

/// A record with the time since the start, milliseconds.
#[derive(Serialize)]
struct Line<'a, T> {
    timestamp: u64,
    event: &'a T,
}

impl<T> Clone for Records<T> {
    fn clone(&self) -> Self {
        Records { queue: self.queue.clone(), counters: Arc::clone(&self.counters) }
    }
}

impl<T: Serialize + Send + 'static> Records<T> {
    /// Opens the file, to add to it, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no thread to be had.
    pub fn open(file: RecordFile) -> io::Result<(Self, RecordKeeper<T>)> {
        let (queue, received) = sync_channel(file.capacity.max(1));
        let counters = Arc::new(Counters::default());
        let writer = Writer::open(file)?;
        let records = Records { queue, counters: Arc::clone(&counters) };
        let thread = std::thread::Builder::new()
            .name("records".into())
            .spawn(move || run(writer, &received, &counters))?;
        Ok((records.clone(), RecordKeeper { records, thread }))
    }

    /// Hands a record to the thread; it is dropped and counted if too many wait. Never blocks.
    pub fn put(&self, record: T) {
        let sent = self.queue.try_send(Message::Record(record));
        let counter = if sent.is_ok() { &self.counters.written } else { &self.counters.dropped };
        counter.fetch_add(1, Relaxed);
    }

    /// What has become of records so far.
    pub fn stats(&self) -> RecordStats {
        let failed = self.counters.failed.load(Relaxed);
        RecordStats {
            written: self.counters.written.load(Relaxed).saturating_sub(failed),
            dropped: self.counters.dropped.load(Relaxed),
            failed,
        }
    }
}

impl<T> RecordKeeper<T> {
    /// Waits until what was handed over is in the file. Blocks.
    pub fn stop(self) {
        let RecordKeeper { records, thread } = self;
        // A thread that has panicked has said so.
        let _ended = records.queue.send(Message::End);
        let _panicked = thread.join();
    }
}

fn run<T: Serialize>(mut writer: Writer, received: &Receiver<Message<T>>, counters: &Counters) {
    let began = Instant::now();
    let mut complained = false;
    let mut line = Vec::new();
    loop {
        let done = match received.recv_timeout(writer.file.flush) {
            Ok(Message::Record(event)) => {
                let timestamp = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                line.clear();
                let made = serde_json::to_writer(&mut line, &Line { timestamp, event: &event });
                line.push(b'\n');
                made.map_err(io::Error::from).and_then(|()| writer.write(&line))
            }
            Err(RecvTimeoutError::Timeout) => writer.flush(),
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                if let Err(error) = writer.flush() {
                    tracing::error!(path = %writer.file.path.display(), %error, "the last records are lost");
                }
                return;
            }
        };
        match done {
            Ok(()) => complained = false,
            Err(error) => {
                counters.failed.fetch_add(1, Relaxed);
                if !std::mem::replace(&mut complained, true) {
                    tracing::error!(path = %writer.file.path.display(), %error, "records cannot be written");
                }
            }
        }
    }
}

/// The file that is written, and how full it is.
struct Writer {
    file: RecordFile,
    out: BufWriter<File>,
    flushed: Instant,
    bytes: u64,
    lines: u64,
    next: u64,
}

impl Writer {
    fn open(file: RecordFile) -> io::Result<Self> {
        if let Some(folder) = file.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let out = append(&file.path)?;
        let bytes = out.metadata()?.len();
        let next = full_files(&file.path)?.last().map_or(0, |last| last + 1);
        Ok(Writer { file, out: BufWriter::new(out), flushed: Instant::now(), bytes, lines: 0, next })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let is_full = self.bytes + line.len() as u64 > self.file.roll_bytes
            || self.file.roll_lines.is_some_and(|limit| self.lines >= limit);
        if is_full && self.bytes > 0 {
            self.roll()?;
        }
        self.out.write_all(line)?;
        self.bytes += line.len() as u64;
        self.lines += 1;
        if self.flushed.elapsed() >= self.file.flush { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.out.flush()
    }

    fn roll(&mut self) -> io::Result<()> {
        self.flush()?;
        fs::rename(&self.file.path, numbered(&self.file.path, self.next))?;
        self.next += 1;
        self.out = BufWriter::new(append(&self.file.path)?);
        (self.bytes, self.lines) = (0, 0);
        let full = full_files(&self.file.path)?;
        for old in &full[..full.len().saturating_sub(self.file.keep)] {
            fs::remove_file(numbered(&self.file.path, *old))?;
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number:06}"));
    name.into()
}

/// Numbers of the full files, in order.
fn full_files(path: &Path) -> io::Result<Vec<u64>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let other = entry?.file_name();
        let number: Option<u64> =
            other.to_str().and_then(|other| other.strip_prefix(&*name)?.strip_prefix('.')?.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path) -> RecordFile {
        RecordFile {
            path: folder.join("sub/trace.jsonl"),
            roll_bytes: 1 << 20,
            roll_lines: Some(2),
            keep: 2,
            capacity: 100,
            flush: Duration::from_secs(3600),
        }
    }

    fn events(path: &Path) -> Vec<u64> {
        let text = fs::read_to_string(path).expect("the file is there");
        let event =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["event"].as_u64();
        text.lines().map(|line| event(line).expect("a number")).collect()
    }

    fn write(file: RecordFile, records: std::ops::Range<u64>) {
        let (out, keeper) = Records::open(file).expect("it can be opened");
        records.for_each(|record| out.put(record));
        keeper.stop();
    }

    #[test]
    fn full_files_are_renamed_and_the_newest_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path());
        write(file.clone(), 0..7);
        assert_eq!(events(&file.path), [6]);
        assert_eq!(full_files(&file.path).expect("readable"), [1, 2]);
        assert_eq!(events(&numbered(&file.path, 2)), [4, 5]);
        // Started again, it goes on: the file is added to, and numbers are not used twice.
        write(RecordFile { roll_lines: None, roll_bytes: 80, ..file.clone() }, 7..11);
        assert_eq!(full_files(&file.path).expect("readable").len(), 2);
        let last = full_files(&file.path).expect("readable")[1];
        assert!(last > 2, "{last}");
        let mut after: Vec<u64> = events(&numbered(&file.path, last));
        after.extend(events(&file.path));
        assert_eq!(after.last(), Some(&10));
    }

    #[test]
    fn what_is_too_much_is_dropped_and_counted() {
        // Held back by a record that cannot be written before it is let go.
        struct Gate(std::sync::mpsc::Receiver<()>);
        impl Serialize for Gate {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let _let_go = self.0.recv();
                serializer.serialize_unit()
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (out, keeper) =
            Records::open(RecordFile { capacity: 1, ..file(folder.path()) }).expect("it can be opened");
        let gates: Vec<_> = (0..4)
            .map(|_| {
                let (open, gate) = sync_channel::<()>(1);
                out.put(Gate(gate));
                open
            })
            .collect();
        let stats = out.stats();
        // One with the thread or not yet, one that waits; the others found no room.
        assert!(stats.dropped >= 2 && stats.written + stats.dropped == 4, "{stats:?}");
        drop(gates);
        keeper.stop();
    }
}
