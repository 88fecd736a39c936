//! Engines and the instances that lead to them: usually one each, but some engines have several gateways.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use roost_cluster::WorkerInfo;
use roost_kv::WorkerId;
use tokio_util::sync::CancellationToken;

/// Engine facts by which instances of one engine are told (`DYN_SGL_GATEWAY_WORKERS`).
const GATEWAY_ENGINE: &str = "dynamo.sglang.gateway_engine";
/// How long a failed instance is passed over while its engine has others.
const AVOID: Duration = Duration::from_secs(5);

/// The engines of one pool. A snapshot: `feed` makes a new one for each change.
#[derive(Debug, Default, Clone)]
pub(crate) struct Engines {
    by_id: HashMap<WorkerId, Arc<Engine>>,
    of_instance: HashMap<WorkerId, WorkerId>,
}

/// What the router knows as one worker: one cache, one load, one or more ways in.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The router's name of it: the instance that was seen first.
    pub(crate) id: WorkerId,
    key: Option<Box<str>>,
    instances: Vec<Arc<Instance>>,
    turn: AtomicUsize,
}

/// One way into an engine.
#[derive(Debug)]
pub(crate) struct Instance {
    /// What it announces.
    pub(crate) info: Arc<WorkerInfo>,
    /// Cancelled when it leaves discovery.
    pub(crate) gone: CancellationToken,
    avoid_until: Mutex<Option<Instant>>,
}

impl Engines {
    /// An engine by the router's name.
    pub(crate) fn get(&self, id: WorkerId) -> Option<&Arc<Engine>> {
        self.by_id.get(&id)
    }

    /// Every engine's name.
    pub(crate) fn ids(&self) -> impl Iterator<Item = WorkerId> {
        self.by_id.keys().copied()
    }

    /// The engine behind an instance.
    pub(crate) fn of_instance(&self, instance: WorkerId) -> Option<WorkerId> {
        self.of_instance.get(&instance).copied()
    }

    /// Every instance of every engine.
    pub(crate) fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.by_id.values().flat_map(|engine| &engine.instances)
    }

    /// Adds an instance; returns its engine if that is new.
    pub(super) fn add(&mut self, info: &Arc<WorkerInfo>) -> Option<WorkerId> {
        let key = info.card.runtime_config.runtime_data.get(GATEWAY_ENGINE);
        let key = key.and_then(|key| key.as_str());
        let known = key.and_then(|key| self.by_id.values().find(|engine| engine.key.as_deref() == Some(key)));
        let instance = Arc::new(Instance {
            info: Arc::clone(info),
            gone: CancellationToken::new(),
            avoid_until: Mutex::default(),
        });
        let (engine, is_new) = match known {
            Some(engine) => {
                let mut instances = engine.instances.clone();
                instances.push(instance);
                (engine.with(instances), false)
            }
            None => {
                let engine = Engine {
                    id: info.worker,
                    key: key.map(Into::into),
                    instances: vec![instance],
                    turn: AtomicUsize::new(0),
                };
                (engine, true)
            }
        };
        let id = engine.id;
        self.of_instance.insert(info.worker, id);
        self.by_id.insert(id, Arc::new(engine));
        is_new.then_some(id)
    }

    /// Removes an instance and tells those who wait for it; returns its engine if that is gone with it.
    pub(super) fn remove(&mut self, instance: WorkerId) -> Option<WorkerId> {
        let id = self.of_instance.remove(&instance)?;
        let engine = self.by_id.remove(&id)?;
        let (left, stay): (Vec<_>, Vec<_>) =
            engine.instances.iter().cloned().partition(|i| i.info.worker == instance);
        for instance in left {
            instance.gone.cancel();
        }
        if stay.is_empty() {
            return Some(id);
        }
        self.by_id.insert(id, Arc::new(engine.with(stay)));
        None
    }
}

impl Engine {
    /// The ways in, at least one, the oldest first.
    pub(crate) fn instances(&self) -> &[Arc<Instance>] {
        &self.instances
    }

    fn with(&self, instances: Vec<Arc<Instance>>) -> Self {
        let turn = AtomicUsize::new(self.turn.load(Ordering::Relaxed));
        Engine { id: self.id, key: self.key.clone(), instances, turn }
    }

    /// The next instance in turn that is not in `tried`; those that failed lately come last. A `pin` takes that
    /// instance only.
    pub(crate) fn pick(
        &self,
        now: Instant,
        pin: Option<WorkerId>,
        tried: &[WorkerId],
    ) -> Option<Arc<Instance>> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.instances.len();
        let in_turn = (0..count).map(|offset| &self.instances[first.wrapping_add(offset) % count]);
        in_turn
            .filter(|i| pin.is_none_or(|pin| pin == i.info.worker) && !tried.contains(&i.info.worker))
            .min_by_key(|i| i.is_avoided(now))
            .cloned()
    }

    /// Whether every instance is in `tried`.
    pub(crate) fn is_exhausted(&self, tried: &[WorkerId]) -> bool {
        self.instances.iter().all(|i| tried.contains(&i.info.worker))
    }

    /// Whether other instances lead to the engine than a failed one, so that the engine is not to blame.
    pub(crate) fn has_other_ways(&self, now: Instant, failed: WorkerId) -> bool {
        self.instances.iter().any(|i| i.info.worker != failed && !i.is_avoided(now))
    }
}

impl Instance {
    /// Passes the instance over for a while.
    pub(crate) fn avoid(&self, now: Instant) {
        *self.avoid_until.lock() = Some(now + AVOID);
    }

    fn is_avoided(&self, now: Instant) -> bool {
        self.avoid_until.lock().is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
