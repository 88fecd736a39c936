//! The answers to the prompts of one request, as one sequence of items.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::try_join_all;
use roost_kv::WorkerRank;
use roost_router::AffinityOutcome;
use roost_wire::message::EngineOutput;

use super::active::Active;
use super::{Dispatching, start};
use crate::failure::Failure;
use crate::prepare::Prepared;
use crate::shared::Shared;

/// Begun answers, one for each prompt. Dropping it stops every worker and gives the bookings back.
#[derive(Debug)]
pub(crate) struct Answers {
    /// `None` once an answer is over.
    list: Vec<Option<Active>>,
    /// Whose turn it is to be asked first.
    next: usize,
    /// Whose item came last.
    last: usize,
    seats: Vec<Seated>,
}

/// What is told of one answer, also after its end.
#[derive(Debug, Clone, Copy)]
struct Seated {
    rank: WorkerRank,
    prefill_rank: WorkerRank,
    attempts: usize,
}

/// What happens to the answer of a prompt.
#[derive(Debug)]
pub(crate) struct Item {
    /// Number of the prompt.
    pub(crate) prompt: usize,
    /// `None`: the worker's stream ended normally.
    pub(crate) output: Option<EngineOutput>,
}

/// Places all prompts and calls workers until each has given its first item, or one has failed for good.
pub(crate) fn start_all(shared: Arc<Shared>, prompts: Vec<Arc<Prepared>>) -> Dispatching {
    Box::pin(async move {
        let starting = prompts.into_iter().map(|prepared| start(Arc::clone(&shared), prepared));
        let list = try_join_all(starting).await?;
        let seats = list.iter().map(Seated::of).collect();
        Ok(Answers { list: list.into_iter().map(Some).collect(), next: 0, last: 0, seats })
    })
}

impl Answers {
    /// The next item, of whichever prompt it is; `None` when all answers are over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Item, Failure>>> {
        let count = self.list.len();
        for offset in 0..count {
            let at = (self.next + offset) % count;
            let Some(active) = &mut self.list[at] else { continue };
            let Poll::Ready(item) = active.poll_next(cx) else { continue };
            self.seats[at] = Seated::of(active);
            (self.last, self.next) = (at, at + 1);
            return Poll::Ready(Some(item.transpose().map(|output| Item { prompt: at, output })));
        }
        if self.is_over() { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Whether more of any answer has come already.
    pub(crate) fn has_received(&self) -> bool {
        self.list.iter().flatten().any(Active::has_received)
    }

    /// The item that began the first answer; once.
    pub(crate) fn take_first(&mut self) -> Option<Item> {
        let output = self.list.first_mut()?.as_mut()?.take_first()?;
        Some(Item { prompt: 0, output: Some(output) })
    }

    /// An answer is whole: its worker is told to stop if it still generates.
    pub(crate) fn end(&mut self, prompt: usize) {
        if let Some(active) = self.list[prompt].take() {
            active.succeeded();
        }
    }

    /// Every answer is whole.
    pub(crate) fn is_over(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    /// Tells the books about tokens of the last item.
    pub(crate) fn tokens(&mut self, count: u32) {
        if let Some(active) = &mut self.list[self.last] {
            active.tokens(count);
        }
    }

    /// All answers are whole.
    pub(crate) fn succeeded(mut self) {
        (0..self.list.len()).for_each(|prompt| self.end(prompt));
    }

    /// The answer of the last item broke for a reason that [`poll_next`](Self::poll_next) has not told. The others are
    /// given up with it.
    pub(crate) fn failed(mut self, failure: &Failure) {
        if let Some(active) = self.list[self.last].take() {
            active.failed(failure);
        }
    }

    /// Where the last item came from.
    pub(crate) fn rank(&self) -> WorkerRank {
        self.seats[self.last].rank
    }

    /// Where its prompt was computed.
    pub(crate) fn prefill_rank(&self) -> WorkerRank {
        self.seats[self.last].prefill_rank
    }

    /// Workers called so far.
    pub(crate) fn attempts(&self) -> usize {
        self.seats.iter().map(|seat| seat.attempts).sum()
    }

    /// Prompt tokens that the router expected in the workers' caches.
    pub(crate) fn expected_cached_tokens(&self) -> u32 {
        self.list.iter().flatten().map(|active| active.expected_cached_tokens).sum()
    }

    /// How the session took part.
    pub(crate) fn affinity(&self) -> AffinityOutcome {
        self.list.iter().flatten().next().map_or(AffinityOutcome::None, |active| active.affinity)
    }
}

impl Seated {
    fn of(active: &Active) -> Self {
        Seated { rank: active.rank, prefill_rank: active.prefill_rank, attempts: active.attempts() }
    }
}
