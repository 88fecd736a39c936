//! The versions of one model that serve side by side while its workers are replaced.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use roost_kv::WorkerId;

use super::Model;
use crate::session::Session;

/// One model per card that can serve, the oldest first. Never empty. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Versions(Arc<[Arc<Model>]>);

impl Versions {
    /// `None` when there is no model.
    pub(crate) fn new(models: Vec<Arc<Model>>) -> Option<Self> {
        (!models.is_empty()).then(|| Versions(models.into()))
    }

    /// The version that speaks for all of them where one is asked for.
    pub(crate) fn oldest(&self) -> &Arc<Model> {
        &self.0[0]
    }

    /// Every version.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.0.iter()
    }

    /// The version that a request goes to: that of the worker it is pinned to; that where its session, or the session
    /// that started it, is at home; else every version by the share of its engines. Requests of one session agree even
    /// before the first has been placed.
    pub(crate) fn choose(&self, session: &Session, random: impl FnOnce() -> u64) -> &Arc<Model> {
        if let [only] = &*self.0 {
            return only;
        }
        let pinned = session.worker.map(WorkerId);
        let of_pin = |model: &&Arc<Model>| pinned.is_some_and(|pin| model.has_instance(pin));
        let home = |id: &str| self.iter().find(|model| model.is_home_of(id));
        let homes = [&session.id, &session.parent];
        let known = self.iter().find(of_pin);
        if let Some(known) = known.or_else(|| homes.into_iter().flatten().find_map(|id| home(id))) {
            return known;
        }
        let key = match &session.id {
            Some(id) => score(id.as_bytes(), 0),
            None => random(),
        };
        let engines: Vec<Vec<WorkerId>> =
            self.iter().map(|model| model.pool.engines().ids().collect()).collect();
        &self.0[heaviest(key, &engines).unwrap_or(0)]
    }
}

/// The group with the engine that scores highest for `key`: each engine is as likely as any other, and one that comes
/// or goes moves only the keys that it wins.
fn heaviest(key: u64, groups: &[Vec<WorkerId>]) -> Option<usize> {
    let engines = groups.iter().enumerate().flat_map(|(group, ids)| ids.iter().map(move |id| (group, id)));
    engines.max_by_key(|(_, id)| score(&key.to_le_bytes(), id.0)).map(|(group, _)| group)
}

fn score(key: &[u8], engine: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, engine).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_its_share_and_moves_only_what_it_wins() {
        let old: Vec<WorkerId> = (1..=3).map(WorkerId).collect();
        let new = vec![WorkerId(9)];
        let before = vec![old.clone(), Vec::new()];
        let during = vec![old, new];
        let mut moved = 0;
        for key in 0..4000 {
            assert_eq!(heaviest(key, &before), Some(0));
            moved += usize::from(heaviest(key, &during) == Some(1));
        }
        assert!((900..1100).contains(&moved), "a quarter of 4000, within chance: {moved}");
        assert_eq!(heaviest(1, &[Vec::new(), Vec::new()]), None);
    }
}
