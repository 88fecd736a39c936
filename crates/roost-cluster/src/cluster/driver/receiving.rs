//! What becomes of messages and answers: a feed for each rank puts its events in order, and asks for what is missing.

use roost_kv::KvEvent;
use tokio::time::sleep;

use super::following::Running;
use super::{Driver, Unread};
use crate::cluster::handle::Shared;
use crate::cluster::recovery::Recovery;
use crate::cluster::state::Content;
use crate::events::{Feed, KvAnswer, Load, Need, Received, Signal};
use crate::update::Update;

/// Events of a dump that go into one update.
const DUMP_BATCH: usize = 1024;

/// The end of something that a feed asked for.
pub(super) enum Done {
    Answered(KvAnswer),
    GivenUp,
    Rested,
}

impl Driver {
    pub(super) async fn received(&mut self, received: Received) -> Result<(), Unread> {
        let Some(running) = self.subscriptions.get_mut(&received.id) else {
            // Sent before its worker or source went away.
            self.shared.stats.lock().late_messages += 1;
            return Ok(());
        };
        let needs = match received.signal {
            Signal::Load(load) => return self.load(received.id, &load).await,
            Signal::Sequences(events) => {
                let Content::Shared { scope, .. } = &running.plan.content else { return Ok(()) };
                let (scope, publisher) = (scope.clone(), running.plan.publisher_id);
                return self.emit(Update::Sequences { scope, publisher, events }).await;
            }
            Signal::Binding(event) => {
                let Content::Shared { scope, .. } = &running.plan.content else { return Ok(()) };
                let scope = scope.clone();
                return self.emit(Update::Binding { scope, event }).await;
            }
            Signal::Connected => {
                running.connected = true;
                let needs = running.act(&self.shared, Feed::connected);
                self.count_subscriptions();
                needs
            }
            Signal::Disconnected => {
                running.connected = false;
                self.count_subscriptions();
                Vec::new()
            }
            Signal::Kv(events) => running.act(&self.shared, |feed| feed.received(events)),
        };
        self.satisfy(received.id, needs).await
    }

    pub(super) async fn done(&mut self, id: u64, done: Done) -> Result<(), Unread> {
        let Some(running) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        running.pending = running.pending.take().filter(|pending| !pending.is_finished());
        let needs = running.act(&self.shared, |feed| match done {
            Done::Answered(answer) => feed.answered(answer),
            Done::GivenUp => feed.failed(),
            Done::Rested => feed.rested(),
        });
        let holes = self.subscriptions.values().filter_map(|running| running.feed.as_ref());
        self.shared.stats.lock().ranks_with_holes = holes.filter(|feed| feed.has_holes()).count() as u64;
        self.satisfy(id, needs).await
    }

    /// Does what a feed asks for.
    async fn satisfy(&mut self, id: u64, needs: Vec<Need>) -> Result<(), Unread> {
        let Some(Running { plan, .. }) = self.subscriptions.get(&id) else { return Ok(()) };
        let Content::Kv { rank, epoch, recovery } = plan.content.clone() else { return Ok(()) };
        for need in needs {
            match need {
                Need::Reset => self.emit(Update::KvReset { rank, epoch }).await?,
                Need::Apply(events) => {
                    for events in in_batches(events) {
                        self.emit(Update::Kv { rank, epoch, events }).await?;
                    }
                }
                Need::Rest { before } => {
                    let rest = self.config.recovery_rest;
                    let pause = rest.saturating_mul(1 << before.min(4)).min(rest.saturating_mul(10));
                    self.begin(id, async move {
                        sleep(pause).await;
                        Done::Rested
                    });
                }
                Need::Ask { from } => {
                    let target = recovery.clone().expect("a feed without a recovery target never asks");
                    let recovery = Recovery {
                        source: self.recovery.clone(),
                        permits: self.permits.clone(),
                        timeout: self.config.recovery_timeout,
                        attempts: self.config.recovery_attempts,
                        target,
                        rank,
                        from,
                    };
                    self.begin(id, async move { recovery.run().await.map_or(Done::GivenUp, Done::Answered) });
                }
            }
        }
        Ok(())
    }

    /// Starts what a feed asked for, in place of what it asked for before.
    fn begin(&mut self, id: u64, work: impl Future<Output = Done> + Send + 'static) {
        let Some(running) = self.subscriptions.get_mut(&id) else { return };
        let pending = self.queries.spawn(async move { (id, work.await) });
        if let Some(before) = running.pending.replace(pending) {
            before.abort();
        }
    }

    async fn load(&mut self, id: u64, load: &Load) -> Result<(), Unread> {
        let rank = load.rank();
        let scope = match self.subscriptions.get(&id).map(|running| &running.plan.content) {
            Some(Content::Shared { scope, .. }) => scope,
            _ => return Ok(()),
        };
        let of_scope = |endpoint: &crate::record::EndpointId| {
            (&endpoint.namespace, &endpoint.component) == (&scope.namespace, &scope.component)
        };
        match self.state.worker(rank.worker) {
            Some(info) if info.ranks.contains(&rank.dp_rank) && of_scope(&info.endpoint) => {
                let update = Update::Load {
                    rank,
                    epoch: info.epoch,
                    active_decode_blocks: load.active_decode_blocks,
                    active_prefill_tokens: load.active_prefill_tokens,
                    kv_used_blocks: load.kv_used_blocks,
                };
                self.emit(update).await
            }
            _ => {
                self.shared.stats.lock().late_messages += 1;
                Ok(())
            }
        }
    }
}

impl Running {
    fn act(&mut self, shared: &Shared, act: impl FnOnce(&mut Feed) -> Vec<Need>) -> Vec<Need> {
        let Some(feed) = &mut self.feed else { return Vec::new() };
        let before = feed.stats;
        let needs = act(feed);
        shared.stats.lock().add(before, feed.stats);
        needs
    }
}

fn in_batches(mut events: Vec<KvEvent>) -> impl Iterator<Item = Vec<KvEvent>> {
    std::iter::from_fn(move || {
        if events.is_empty() {
            return None;
        }
        let rest = if events.len() > DUMP_BATCH { events.split_off(DUMP_BATCH) } else { Vec::new() };
        Some(std::mem::replace(&mut events, rest))
    })
}
