//! Cancellation of one request, in its two degrees.

use tokio_util::sync::CancellationToken;

/// How a request was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelKind {
    /// Graceful: the engine finishes its current step and may still deliver it.
    Stop,
    /// At once: nothing that follows is wanted.
    Kill,
}

/// The cancellation state of one request, shared between whoever may cancel and the engine.
///
/// Clones observe and trigger the same state. A kill implies a stop; neither can be undone.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    stop: CancellationToken,
    kill: CancellationToken,
}

impl Cancel {
    /// Makes a state in which nothing is cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a graceful end.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Asks for an immediate end.
    pub fn kill(&self) {
        self.kill.cancel();
        self.stop.cancel();
    }

    /// The strongest cancellation seen so far.
    pub fn kind(&self) -> Option<CancelKind> {
        if self.kill.is_cancelled() {
            Some(CancelKind::Kill)
        } else if self.stop.is_cancelled() {
            Some(CancelKind::Stop)
        } else {
            None
        }
    }

    /// Waits until the request is stopped or killed. Cancel safe.
    pub async fn cancelled(&self) -> CancelKind {
        tokio::select! {
            biased;
            () = self.kill.cancelled() => CancelKind::Kill,
            () = self.stop.cancelled() => if self.kill.is_cancelled() { CancelKind::Kill } else { CancelKind::Stop },
        }
    }

    /// Waits until the request is killed. Cancel safe.
    pub async fn killed(&self) {
        self.kill.cancelled().await;
    }
}
