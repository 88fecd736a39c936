//! Which names can be served, by which worker sets, and what the others wait for.

use std::sync::Arc;

use roost_cluster::Role;
use roost_cluster::record::WorkerType;

use super::pairs::{Side, partners};
use super::{Feed, Set, pages};
use crate::models::{Model, Registry, Versions, Waiting};

impl Feed {
    /// Lists each model of which a loaded worker set can serve. Sets of several cards serve side by side.
    pub(super) fn publish(&self) {
        let mut registry = Registry { synced: self.synced, ..Registry::default() };
        let own = self.shared.config.models.name.as_deref();
        for (name, sets) in &self.sets {
            let pairs = pairs(sets);
            let can_serve =
                |(set, partner): &(&Set, Option<&Set>)| partner.is_some() || !self.needs_prefill(set);
            let able: Vec<(&Set, Option<&Set>)> = pairs.iter().copied().filter(can_serve).collect();
            let serving: Vec<(&Set, Option<&Set>, &Arc<Model>)> = able
                .iter()
                .filter_map(|(set, partner)| Some((*set, *partner, set.model.as_ref()?)))
                .collect();
            let mismatched = pages::mismatched(&pairs, &self.shared.config.route);
            for (.., model) in &serving {
                model.metrics.mismatched_pages(mismatched);
            }
            let aliases = sets.iter().flat_map(|set| &set.first.card.aliases).map(String::as_str);
            let names = || std::iter::once(name.as_str()).chain(aliases.clone()).chain(own);
            let models = serving.iter().map(|(.., model)| Arc::clone(model)).collect();
            let (reason, passes) = match Versions::new(models) {
                Some(_) if self.seen < self.shared.config.route.min_initial_workers => {
                    ("waiting for the initial number of workers", true)
                }
                Some(versions) => {
                    for (set, partner, model) in serving {
                        model.prefill.store(partner.map(|set| Arc::clone(&set.pool)));
                        model.metrics.ready(true);
                        for alias in set.first.card.aliases.iter().map(String::as_str).chain(own) {
                            registry.ready.insert(alias.into(), versions.clone());
                        }
                        registry.list_pool(name, set);
                        if let Some(partner) = partner {
                            registry.list_pool(name, partner);
                        }
                    }
                    registry.ready.insert(name.as_str().into(), versions);
                    continue;
                }
                None if able.iter().any(|(set, _)| !set.failed) => ("its files are being loaded", true),
                None if !able.is_empty() => ("its files cannot be loaded", false),
                None if pairs.is_empty() => ("it has no worker that answers, only prefill workers", false),
                None => ("it has decode workers but no prefill worker for them", false),
            };
            // What is missing may be on its way still.
            let waiting = Waiting { reason, passes: passes || !self.synced };
            registry.waiting.extend(names().map(|name| (name.into(), waiting)));
        }
        for gone in self.shared.models.snapshot().ready.values() {
            let gone = gone.oldest();
            if !registry.ready.contains_key(&gone.name) {
                gone.metrics.ready(false);
                gone.metrics.mismatched_pages(0);
            }
        }
        self.shared.published(&registry);
        self.shared.models.publish(registry);
    }

    /// Whether the workers of a set cannot serve without prefill workers.
    fn needs_prefill(&self, set: &Set) -> bool {
        let needs = &set.first.card.needs;
        let asked = needs.iter().flatten().any(|needed| *needed == WorkerType::Prefill);
        asked && !self.shared.config.route.decode_without_prefill
    }
}

/// The sets that answer, the oldest first, each with the one that computes its prompts if it is split.
fn pairs(sets: &[Set]) -> Vec<(&Set, Option<&Set>)> {
    let sides = |sets: &[&Set]| sets.iter().map(|set| set.side()).collect::<Vec<_>>();
    let prefill: Vec<&Set> = sets.iter().filter(|set| set.role == Role::Prefill).collect();
    let split: Vec<&Set> = sets.iter().filter(|set| set.answers() && set.splits()).collect();
    let mut found = partners(&sides(&prefill), &sides(&split)).into_iter();
    let answering = sets.iter().filter(|set| set.answers());
    answering
        .map(|set| {
            let partner = if set.splits() { found.next().flatten() } else { None };
            (set, partner.map(|at| prefill[at]))
        })
        .collect()
}

impl Set {
    fn side(&self) -> Side {
        Side { namespace: self.first.endpoint.namespace.clone(), version: self.first.card.version_sum() }
    }
}

impl Registry {
    fn list_pool(&mut self, name: &str, set: &Set) {
        if self.pools.iter().any(|(_, _, pool)| Arc::ptr_eq(pool, &set.pool)) {
            return;
        }
        let version = match &set.key.namespace {
            Some(namespace) => format!("{}@{namespace}", set.key.mdcsum),
            None => set.key.mdcsum.clone(),
        };
        self.pools.push((name.into(), version.into(), Arc::clone(&set.pool)));
    }
}
