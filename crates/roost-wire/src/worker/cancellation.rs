use tokio_util::sync::CancellationToken;

/// Tells a handler that the frontend does not want the answer any more.
#[derive(Debug, Clone, Default)]
pub struct Cancellation {
    stop: CancellationToken,
    kill: CancellationToken,
}

impl Cancellation {
    /// Whether the answer should end, after the current step or at once.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Whether the answer has ended: nothing of it is sent any more.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.kill.is_cancelled()
    }

    /// Waits until the answer should end. Cancel safe.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Waits until the answer has been cut off; for ever when it ends by itself. Cancel safe.
    pub async fn killed(&self) {
        self.kill.cancelled().await;
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn kill(&self) {
        // In this order whoever sees the stop of a kill also sees that it is one.
        self.kill.cancel();
        self.stop.cancel();
    }
}
