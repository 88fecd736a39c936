//! How many requests may be in progress.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Owner of the in-flight limit.
#[derive(Debug, Clone)]
pub(crate) struct Admission(Option<Arc<Semaphore>>);

/// One admitted request; dropping it makes room.
#[derive(Debug)]
pub(crate) struct Permit(#[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

impl Admission {
    /// At most `limit` requests at a time; `None` is no limit.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Admission(limit.map(|n| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS)))))
    }

    /// Whether a request would be refused now: it is not worth reading then.
    pub(crate) fn is_full(&self) -> bool {
        self.0.as_ref().is_some_and(|semaphore| semaphore.available_permits() == 0)
    }

    /// A permit, or `None` when the limit is reached.
    pub(crate) fn admit(&self) -> Option<Permit> {
        match &self.0 {
            None => Some(Permit(None)),
            Some(semaphore) => {
                Arc::clone(semaphore).try_acquire_owned().ok().map(|permit| Permit(Some(permit)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_makes_room() {
        let admission = Admission::new(Some(1));
        let first = admission.admit();
        assert!(first.is_some() && admission.admit().is_none() && admission.is_full());
        drop(first);
        assert!(!admission.is_full() && admission.admit().is_some());
        let free = Admission::new(None);
        assert!(!free.is_full() && free.admit().is_some());
    }
}
