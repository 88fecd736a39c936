//! Waiting for a turn: a ticket as a guard and a future.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::{Lease, Router};
use crate::{Core, Placement, Rejection, Request, Submitted, TicketId};

/// What came of a request.
#[derive(Debug)]
pub enum Submission {
    /// It was placed.
    Placed(Placement, Lease),
    /// It waits for room.
    Waits(Waiting),
}

/// A request's place in the queue. Dropping it leaves the queue.
#[must_use = "dropping it leaves the queue"]
#[derive(Debug)]
pub struct Waiting {
    router: Router,
    ticket: TicketId,
}

/// Who is to be told, by ticket. At most one each, and only while the ticket is held.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    by_ticket: HashMap<TicketId, Waker, foldhash::fast::FixedState>,
    /// Scratch space.
    called: Vec<TicketId>,
}

impl Router {
    /// Places a request, or lets it wait for room; see [`Core::submit`].
    ///
    /// `waiting` is what an earlier call for the same request returned, once [`Waiting::turn`] has come. The
    /// request need not be the same in its overlap: it should be looked up again after a wait.
    pub fn submit(&self, request: &Request<'_>, waiting: Option<Waiting>) -> Result<Submission, Rejection> {
        let ticket = waiting.as_ref().map(|waiting| waiting.ticket);
        let submitted = self.decide(|core, now| core.submit(now, request, ticket))?;
        Ok(match submitted {
            Submitted::Placed(placement) => {
                let (booking, rank) = (placement.booking, placement.rank);
                Submission::Placed(placement, Lease { router: self.clone(), booking, rank, open: true })
            }
            Submitted::Waits(ticket) => {
                Submission::Waits(waiting.unwrap_or_else(|| Waiting { router: self.clone(), ticket }))
            }
        })
    }
}

impl Waiting {
    /// Resolves when the request should be submitted again, to be placed or refused. Cancel safe: the place
    /// in the queue stays until `self` is dropped.
    pub async fn turn(&self) {
        poll_fn(|cx| {
            let state = &mut *self.router.shared.state.lock();
            if state.core.is_called(self.ticket) {
                return Poll::Ready(());
            }
            state.wakers.by_ticket.insert(self.ticket, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.router.shared.state.lock().wakers.by_ticket.remove(&self.ticket);
        self.router.with(|core, now| core.leave(now, self.ticket));
    }
}

impl Wakers {
    /// Returns whom to wake after a step of the core.
    pub(super) fn take_called(&mut self, core: &mut Core) -> SmallVec<[Waker; 2]> {
        core.take_called(&mut self.called);
        self.called.drain(..).filter_map(|ticket| self.by_ticket.remove(&ticket)).collect()
    }
}
