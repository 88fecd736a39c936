//! A request on one worker that does all of it.

use std::time::Instant;

use super::active::Running;
use super::retries::Retries;
use super::seat::Tried;
use super::{Failed, Request};
use crate::failure::Failure;

impl Request<'_> {
    /// Places, calls and waits for the first output. The worker is told `annotation`.
    pub(super) async fn whole(
        &self,
        annotation: Option<&str>,
        tried: &mut Tried,
        retries: &mut Retries<'_>,
    ) -> Result<Running, Failed> {
        let prepared = self.prepared;
        let pool = &prepared.model.pool;
        let routing = self.routing();
        let overlap = || pool.overlap(&prepared.blocks.sequence);
        let seat = self.seat(pool, overlap, self.wish(), tried).await.map_err(Failed::unplaced)?;
        drop(routing);
        retries.placed();
        let mut message = self.progress.whole(&prepared.engine, seat.placement.rank.dp_rank);
        message.annotations.extend(annotation.map(str::to_owned));
        let limit = self.shared.config.route.first_token;
        let began = tokio::time::Instant::now();
        let mut leg = self.call(seat, &message, tried).await?;
        let first = match limit {
            None => leg.first_output().await,
            Some(limit) => {
                let first = tokio::time::timeout_at(began + limit, leg.first_output()).await;
                first.unwrap_or_else(|_| Err(Failure::no_first_token()))
            }
        };
        match first {
            Ok(first) => {
                // Only now is the session's place certain: a turn that never began leaves no trace.
                leg.booking.lease.committed();
                if !pool.has_events(leg.booking.info()) {
                    let rank = leg.placement.rank;
                    pool.approximate.record(Instant::now(), rank, &prepared.blocks.sequence);
                }
                Ok(Running::whole(leg, first))
            }
            Err(failure) => Err(leg.failed(failure, tried).into()),
        }
    }
}
