//! Which records count: those of processes that are ready. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::objects::{Readiness, Records};
use crate::record::RecordKey;

/// Both sides of the join, by the name of the object that says so.
#[derive(Debug, Default)]
pub(super) struct Join {
    records: Option<BTreeMap<String, Records>>,
    ready: Option<BTreeMap<String, Readiness>>,
}

impl Join {
    /// Both sides have been listed once.
    pub(super) fn synced(&self) -> bool {
        self.records.is_some() && self.ready.is_some()
    }

    /// Takes a complete listing of records.
    pub(super) fn records_listed(&mut self, listing: Vec<Records>) {
        let mut before = self.records.take().unwrap_or_default();
        let repaired = listing.into_iter().map(|now| {
            let old = before.remove(&now.name);
            (now.name.clone(), repaired(old, now))
        });
        self.records = Some(repaired.collect());
    }

    /// Takes one resource with records, new or changed.
    pub(super) fn records_changed(&mut self, now: Records) {
        let held = self.records.get_or_insert_default();
        let old = held.remove(&now.name);
        held.insert(now.name.clone(), repaired(old, now));
    }

    /// A resource with records is gone.
    pub(super) fn records_deleted(&mut self, name: &str) {
        self.records.get_or_insert_default().remove(name);
    }

    /// Takes a complete listing of what says who is ready.
    pub(super) fn readiness_listed(&mut self, listing: Vec<Readiness>) {
        self.ready = Some(listing.into_iter().map(|now| (now.name.clone(), now)).collect());
    }

    /// Takes one object that says who is ready, new or changed.
    pub(super) fn readiness_changed(&mut self, now: Readiness) {
        self.ready.get_or_insert_default().insert(now.name.clone(), now);
    }

    /// An object that says who is ready is gone.
    pub(super) fn readiness_deleted(&mut self, name: &str) {
        self.ready.get_or_insert_default().remove(name);
    }

    /// The records of a resource as stored, whether its process is ready or not.
    pub(super) fn stored(&self, name: &str) -> Option<&Records> {
        self.records.as_ref()?.get(name)
    }

    /// The records that count.
    ///
    /// A resource's records count while its pod is ready and is the pod that wrote them: a pod of the same name that
    /// comes later has another uid. Two objects may speak of one pod, as happens while slices are split; two that
    /// speak of different pods under one name contradict each other, and then neither counts.
    pub(super) fn effective(&self) -> BTreeMap<RecordKey, Bytes> {
        let mut ready: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for (resource, pod_uid) in self.ready.iter().flatten().flat_map(|(_, object)| &object.ready) {
            let pod = ready.entry(resource).or_insert(Some(pod_uid));
            if *pod != Some(pod_uid) {
                *pod = None;
            }
        }
        let mut effective = BTreeMap::new();
        for (name, held) in self.records.iter().flatten() {
            let pod = ready.get(name.as_str()).copied().flatten();
            if pod.is_some() && pod == held.pod_uid.as_deref() {
                let records = held.records.iter().flatten();
                effective.extend(records.map(|(key, value)| (key.clone(), value.clone())));
            }
        }
        effective
    }
}

/// A resource that holds nothing readable, as some writers leave it for a moment, keeps what it held before.
fn repaired(before: Option<Records>, mut now: Records) -> Records {
    if now.records.is_none()
        && let Some(before) = before
        && before.uid == now.uid
        && before.pod_uid == now.pod_uid
    {
        now.records = before.records;
    }
    now
}
