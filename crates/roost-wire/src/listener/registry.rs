use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{Target, line::Line};

/// Subjects that an answer is awaited for. Its size is bounded by the calls in progress.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<Uuid, Entry>>);

/// A request that waits for its answer.
#[derive(Debug)]
struct Entry {
    line: oneshot::Sender<Line>,
    address: SocketAddr,
    path: Arc<str>,
    /// Used up once the worker has left.
    left: Option<oneshot::Sender<()>>,
}

impl Registry {
    /// Takes the request that waits for this subject; a subject serves once.
    pub(super) fn take(&self, subject: Uuid) -> Option<oneshot::Sender<Line>> {
        self.0.lock().remove(&subject).map(|entry| entry.line)
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn left(&self, target: &Target) {
        for entry in self.0.lock().values_mut() {
            if entry.address == target.address
                && entry.path == target.path
                && let Some(left) = entry.left.take()
            {
                // The request may be over by now.
                let _ = left.send(());
            }
        }
    }
}

/// A registered subject. Dropping it withdraws the subject.
#[derive(Debug)]
pub(crate) struct Waiting {
    registry: Arc<Registry>,
    subject: Uuid,
    line: oneshot::Receiver<Line>,
    left: Option<oneshot::Receiver<()>>,
}

/// What happens to a request that waits.
#[derive(Debug)]
pub(crate) enum News {
    /// The worker called home.
    Line(Line),
    /// The worker has left; told once.
    Left,
    /// The listener is gone.
    ListenerGone,
}

impl Waiting {
    pub(super) fn new(registry: Arc<Registry>, subject: Uuid, target: &Target) -> Self {
        let (sender, line) = oneshot::channel();
        let (leaver, left) = oneshot::channel();
        let (address, path) = (target.address, Arc::clone(&target.path));
        let entry = Entry { line: sender, address, path, left: Some(leaver) };
        registry.0.lock().insert(subject, entry);
        Self { registry, subject, line, left: Some(left) }
    }

    pub(crate) fn subject(&self) -> Uuid {
        self.subject
    }

    /// Waits for the worker's connection; `None` when the listener is gone. Cancel safe.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        (&mut self.line).await.ok()
    }

    /// Waits for the worker's connection or its leaving. Cancel safe.
    pub(crate) async fn news(&mut self) -> News {
        let Some(left) = &mut self.left else {
            return self.line().await.map_or(News::ListenerGone, News::Line);
        };
        tokio::select! {
            biased;
            line = &mut self.line => line.map_or(News::ListenerGone, News::Line),
            left = left => {
                self.left = None;
                match left {
                    Ok(()) => News::Left,
                    // The entry was taken by the line that is about to come.
                    Err(_) => self.line().await.map_or(News::ListenerGone, News::Line),
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.registry.0.lock().remove(&self.subject);
    }
}
