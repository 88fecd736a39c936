use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::line::Line;

/// Subjects that an answer is awaited for. Its size is bounded by the calls in progress.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<Uuid, oneshot::Sender<Line>>>);

impl Registry {
    /// Takes the request that waits for this subject; a subject serves once.
    pub(super) fn take(&self, subject: Uuid) -> Option<oneshot::Sender<Line>> {
        self.0.lock().remove(&subject)
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A registered subject. Dropping it withdraws the subject.
#[derive(Debug)]
pub(crate) struct Waiting {
    registry: Arc<Registry>,
    subject: Uuid,
    line: oneshot::Receiver<Line>,
}

impl Waiting {
    pub(super) fn new(registry: Arc<Registry>, subject: Uuid) -> Self {
        let (sender, line) = oneshot::channel();
        registry.0.lock().insert(subject, sender);
        Self { registry, subject, line }
    }

    pub(crate) fn subject(&self) -> Uuid {
        self.subject
    }

    /// Waits for the worker's connection; `None` when the listener is gone. Cancel safe.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        (&mut self.line).await.ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.registry.0.lock().remove(&self.subject);
    }
}
