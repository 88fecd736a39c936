//! Follows one collection: list it, watch from there, list again when that is not possible any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::api::{Api, Failure};
use super::objects::{Bookmark, Collection, Event, List, Object, Status};

/// Objects of one page of a listing.
const PAGE: u32 = 500;
/// The server ends a watch after this time.
const WATCH: Duration = Duration::from_secs(290);
/// A watch that outlives its end by this much is lost.
const OVERTIME: Duration = Duration::from_secs(10);
/// A watch that lasted this long was a good one: the pauses begin anew.
const STABLE: Duration = Duration::from_secs(2);
/// Pauses after a failure; the server may ask for longer ones, up to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What happened in a collection.
#[derive(Debug)]
pub(super) enum Report<S> {
    /// All that is in it.
    Listed(Vec<S>),
    /// One object is new or has changed.
    Changed(S),
    /// The object of this name is gone.
    Deleted(String),
    /// It is being watched.
    Here,
    /// It cannot be looked at.
    Away(Failure),
}

/// The reader of the reports has gone.
#[derive(Debug)]
struct Unheard;

/// Reports on a collection until nobody listens.
pub(super) async fn follow<T: Object>(
    api: Arc<Api>,
    collection: Collection,
    reports: mpsc::Sender<Report<T::Seen>>,
) {
    let mut follower = Follower::<T> { api, collection, reports, position: None };
    let mut pause = PAUSES.0;
    loop {
        let begun = Instant::now();
        let ended = match follower.once().await {
            Err(Unheard) => return,
            Ok(ended) => ended,
        };
        if begun.elapsed() > STABLE {
            pause = PAUSES.0;
        }
        let mut rest = pause / 2 + pause.mul_f64(fastrand::f64() / 2.0);
        match ended {
            // The ordinary end.
            Ok(()) if begun.elapsed() > STABLE => continue,
            Ok(()) => {}
            Err(failure) if failure.is_expired() => {
                tracing::info!(collection = collection.plural(), "too far behind to watch on; listing again");
                follower.position = None;
            }
            Err(failure) => {
                rest = rest.max(failure.retry_after().unwrap_or_default().min(LONGEST_PAUSE));
                if follower.reports.send(Report::Away(failure)).await.is_err() {
                    return;
                }
            }
        }
        pause = (pause * 2).min(PAUSES.1);
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = follower.reports.closed() => return,
        }
    }
}

struct Follower<T: Object> {
    api: Arc<Api>,
    collection: Collection,
    reports: mpsc::Sender<Report<T::Seen>>,
    /// Up to where the collection's history is known.
    position: Option<String>,
}

impl<T: Object> Follower<T> {
    /// One watch, with a listing before it if one is needed.
    async fn once(&mut self) -> Result<Result<(), Failure>, Unheard> {
        let position = match &self.position {
            Some(position) => position.clone(),
            None => match self.list().await {
                Err(failure) => return Ok(Err(failure)),
                Ok((listing, position)) => {
                    self.report(Report::Listed(listing)).await?;
                    self.position = Some(position.clone());
                    position
                }
            },
        };
        let seconds = WATCH.as_secs();
        let parameters = format!(
            "watch=true&timeoutSeconds={seconds}&allowWatchBookmarks=true&resourceVersion={position}"
        );
        let target = self.collection.query(&self.api.namespace, &parameters);
        let mut lines = match self.api.watch(&target).await {
            Err(failure) => return Ok(Err(failure)),
            Ok(lines) => lines,
        };
        self.report(Report::Here).await?;
        let end = tokio::time::Instant::now() + WATCH + OVERTIME;
        loop {
            let line = tokio::select! {
                line = timeout_at(end, lines.next()) => line,
                () = self.reports.closed() => return Err(Unheard),
            };
            match line {
                Err(_) => return Ok(Err(Failure::Timeout(WATCH + OVERTIME))),
                Ok(Err(failure)) => return Ok(Err(failure)),
                Ok(Ok(None)) => return Ok(Ok(())),
                Ok(Ok(Some(line))) => match self.read(&line) {
                    Err(failure) => return Ok(Err(failure)),
                    Ok(None) => {}
                    Ok(Some(report)) => self.report(report).await?,
                },
            }
        }
    }

    async fn report(&self, report: Report<T::Seen>) -> Result<(), Unheard> {
        self.reports.send(report).await.map_err(|_| Unheard)
    }

    /// Reads the whole collection, page by page, and tells up to where its history is then known.
    async fn list(&self) -> Result<(Vec<T::Seen>, String), Failure> {
        let mut seen = Vec::new();
        let mut parameters = format!("limit={PAGE}");
        loop {
            let target = self.collection.query(&self.api.namespace, &parameters);
            let page: List<T> = self.api.get(&target).await?;
            seen.extend(page.items.into_iter().flatten().map(Object::seen));
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => parameters = format!("limit={PAGE}&continue={}", escaped(&next)),
                None => {
                    let position = page.metadata.resource_version.unwrap_or_default();
                    return Ok((seen, position));
                }
            }
        }
    }

    /// Reads a line of a watch.
    fn read(&mut self, line: &[u8]) -> Result<Option<Report<T::Seen>>, Failure> {
        let broken =
            |error: serde_json::Error| Failure::Transport(format!("a watch that is not understood: {error}"));
        let event: Event<'_> = serde_json::from_slice(line).map_err(broken)?;
        let object = event.object.get();
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" | "DELETED" => {
                let read = serde_json::from_str::<T>(object).map_err(broken)?;
                self.reached(read.metadata().resource_version.clone());
                Ok(Some(if event.kind == "DELETED" {
                    Report::Deleted(read.metadata().name.clone())
                } else {
                    Report::Changed(read.seen())
                }))
            }
            "BOOKMARK" => {
                let read: Bookmark = serde_json::from_str(object).map_err(broken)?;
                self.reached(read.metadata.resource_version);
                Ok(None)
            }
            "ERROR" => {
                let Status { code, reason, message } = serde_json::from_str(object).map_err(broken)?;
                // Whatever went wrong, a new listing begins on firm ground.
                self.position = None;
                let request = format!("the watch of {}", self.collection.plural());
                Err(Failure::Status { request, code, reason, message, retry_after: None })
            }
            other => {
                tracing::debug!(kind = other, "an unknown kind of event in a watch");
                Ok(None)
            }
        }
    }

    fn reached(&mut self, position: Option<String>) {
        if let Some(position) = position.filter(|position| !position.is_empty()) {
            self.position = Some(position);
        }
    }
}

/// A query value: what the server chose comes back byte for byte.
fn escaped(value: &str) -> String {
    let mut out = String::new();
    crate::record::percent_encode_into(&mut out, value, |b| {
        b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~')
    });
    out
}
