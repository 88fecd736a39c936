//! How many requests may be in progress, and which are refused before any work is done for them.

use std::sync::Arc;

use roost_router::Pin;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;
use crate::models::Model;

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

/// Why a request for a model would be refused whatever its prompt; counted as refused then. `pins` are those of the leg
/// that answers and of the prefill leg. Prefill comes first: without it there is nothing to decode.
pub(crate) fn refuse(model: &Model, session: Option<&str>, pins: [Pin; 2]) -> Option<Failure> {
    let prefill = model.prefill.load();
    let [pin, prefill_pin] = pins;
    let legs = [(prefill.as_ref(), prefill_pin, true), (Some(&model.pool), pin, false)];
    legs.into_iter().find_map(|(pool, pin, in_prefill)| {
        let pool = pool?;
        let pin = Pin { worker: pin.worker.map(|worker| pool.engine_of(worker)), ..pin };
        let rejection = pool.router.full_for(session, pin)?;
        pool.router.turned_away(rejection);
        let failure = Failure::rejected(&rejection);
        Some(if in_prefill { failure.in_prefill() } else { failure })
    })
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
