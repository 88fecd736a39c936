//! Requests whose model is not ready yet wait for it: a bounded number of them, each for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use roost_openai::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::models::{Lookup, Models, Waiting};
use crate::shared::Shared;

/// Owner of the places.
#[derive(Debug)]
pub(crate) struct Hold {
    places: Arc<Semaphore>,
    capacity: usize,
    limit: Duration,
}

/// The place of one request. Dropping it makes room.
#[derive(Debug)]
pub(crate) struct Place {
    until: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Hold {
    /// Room for `capacity` requests, each for at most `limit`; either 0 is none.
    pub(crate) fn new(capacity: usize, limit: Duration) -> Self {
        let capacity = if limit.is_zero() { 0 } else { capacity.min(Semaphore::MAX_PERMITS) };
        Hold { places: Arc::new(Semaphore::new(capacity)), capacity, limit }
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.capacity.saturating_sub(self.places.available_permits())
    }

    /// Waits until there is another answer than to wait for the model of that name. The request keeps its place, which
    /// it takes with the first call, and its time from call to call. Cancel safe.
    ///
    /// # Errors
    /// There is no place, its time is over, or what runs is being cut.
    pub(crate) async fn until_ready(
        &self,
        shared: &Shared,
        name: &str,
        place: &mut Option<Place>,
    ) -> Result<(), ApiError> {
        if place.is_none() {
            *place = self.enter();
        }
        match (place, shared.models.lookup(name)) {
            (Some(place), _) => place.until_ready(&shared.models, &shared.cut, name).await,
            (None, Lookup::Waiting(waiting)) => Err(not_ready(name, waiting)),
            (None, _) => Ok(()),
        }
    }

    fn enter(&self) -> Option<Place> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Place { until: Instant::now() + self.limit, _permit: permit })
    }
}

impl Place {
    async fn until_ready(
        &self,
        models: &Models,
        cut: &CancellationToken,
        name: &str,
    ) -> Result<(), ApiError> {
        loop {
            let mut changed = std::pin::pin!(models.changed());
            // From here on no change is missed.
            changed.as_mut().enable();
            let Lookup::Waiting(waiting @ Waiting { passes: true, .. }) = models.lookup(name) else {
                return Ok(());
            };
            tokio::select! {
                biased;
                () = cut.cancelled() => {
                    return Err(ApiError::new(503, "The service is shutting down. Please retry."));
                }
                () = changed => {}
                () = tokio::time::sleep_until(self.until) => return Err(not_ready(name, waiting)),
            }
        }
    }
}

/// 503 for a model that is announced and cannot be served.
pub(crate) fn not_ready(name: &str, waiting: Waiting) -> ApiError {
    let shown: String = name.chars().take(128).collect();
    ApiError::new(
        503,
        format!(
            "Model `{shown}` is not ready to serve requests yet: {}. Please retry shortly.",
            waiting.reason
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Registry;

    const LIMIT: Duration = Duration::from_secs(10);

    fn registry(passes: bool) -> Registry {
        let mut registry = Registry { synced: true, ..Registry::default() };
        registry.waiting.insert("m".into(), Waiting { reason: "its files are being loaded", passes });
        registry
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_a_change_and_no_longer_than_it_may() {
        let (models, hold, cut) = (Models::default(), Hold::new(2, LIMIT), CancellationToken::new());
        let place = hold.enter().unwrap();
        let began = Instant::now();
        // Nothing is known at the start: whatever the name, it may come.
        let error = place.until_ready(&models, &cut, "m").await.unwrap_err();
        assert_eq!((error.status(), began.elapsed()), (503, LIMIT));

        models.publish(registry(true));
        let place = hold.enter().unwrap();
        let mut wait = Box::pin(place.until_ready(&models, &cut, "m"));
        tokio::select! { biased; _ = &mut wait => panic!("it is not ready"), () = tokio::time::sleep(LIMIT / 2) => {} }
        models.publish(registry(true));
        tokio::select! { biased; _ = &mut wait => panic!("not ready still"), () = tokio::time::sleep(LIMIT / 4) => {} }
        models.publish(registry(false));
        assert!(wait.await.is_ok(), "nothing to wait for any more");
        assert!(hold.enter().is_none() && hold.waiting() == 2, "both places are taken");
        drop(place);
        assert!(hold.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_drain_ends_the_wait() {
        let (models, hold, cut) = (Models::default(), Hold::new(1, LIMIT), CancellationToken::new());
        let place = hold.enter().unwrap();
        cut.cancel();
        assert_eq!(place.until_ready(&models, &cut, "m").await.unwrap_err().status(), 503);
    }

    #[test]
    fn no_time_is_no_place() {
        assert!(Hold::new(10, Duration::ZERO).enter().is_none());
        assert!(Hold::new(0, LIMIT).enter().is_none());
    }
}
