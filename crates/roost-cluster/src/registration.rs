//! A worker's records in discovery: put in the order of joining, removed in the opposite one.

use std::sync::Arc;

use bytes::Bytes;

use crate::discovery::{Discovery, DiscoveryError};
use crate::record::{CardRecord, EventChannelRecord, EventSourceRecord, InstanceRecord, RecordKey};

/// Everything that a worker registers.
#[derive(Clone, Debug)]
pub struct WorkerRecords {
    /// Endpoints that are not for model requests, such as the query endpoint of each rank.
    pub side_endpoints: Vec<InstanceRecord>,
    /// Publishers.
    pub channels: Vec<EventChannelRecord>,
    /// For whom the KV-event publishers speak.
    pub sources: Vec<EventSourceRecord>,
    /// The endpoint that takes model requests.
    pub generate: InstanceRecord,
    /// The model card of that endpoint.
    pub card: CardRecord,
}

/// Keeps a worker registered.
///
/// Dropping it asks for the removal of all records without waiting; [`Registration::shutdown`] waits.
#[derive(Debug)]
pub struct Registration {
    discovery: Arc<dyn Discovery>,
    /// In the order in which they were put.
    keys: Vec<RecordKey>,
}

impl Registration {
    /// Registers a worker. Everything that the records promise must be in service already: a frontend may call as soon
    /// as the last record, the card, is there.
    ///
    /// Cancel safe: dropping the future removes what was put.
    ///
    /// # Errors
    /// The first record that the store refused; those before it are removed again.
    pub async fn register(
        discovery: Arc<dyn Discovery>,
        records: &WorkerRecords,
    ) -> Result<Self, DiscoveryError> {
        let side = records.side_endpoints.iter().map(|r| (r.key(), r.encode()));
        let channels = records.channels.iter().map(|r| (r.key(), r.encode()));
        let sources = records.sources.iter().map(|r| (r.key(), r.encode()));
        let generate = std::iter::once((records.generate.key(), records.generate.encode()));
        let card = std::iter::once((records.card.key(), records.card.encode()));
        let mut registration = Self { discovery, keys: Vec::new() };
        for (key, value) in side.chain(channels).chain(sources).chain(generate).chain(card) {
            let discovery = registration.discovery.clone();
            // Noted first: a put that is dropped half-way may still write.
            registration.keys.push(key.clone());
            if let Err(error) = discovery.put(key, Bytes::from(value)).await {
                registration.keys.pop();
                return Err(error);
            }
        }
        Ok(registration)
    }

    /// Writes another card over the one registered; the endpoint must be the same.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn replace_card(&self, card: &CardRecord) -> Result<(), DiscoveryError> {
        self.discovery.put(card.key(), Bytes::from(card.encode())).await
    }

    /// Removes all records, the card first.
    ///
    /// # Errors
    /// The first failure of the store; the other records are removed all the same.
    pub async fn shutdown(mut self) -> Result<(), DiscoveryError> {
        let mut result = Ok(());
        while let Some(key) = self.keys.pop() {
            let removed = self.discovery.delete(key).await;
            result = result.and(removed);
        }
        result
    }

    /// Leaves the records behind without keeping them alive, as a crash would.
    pub fn abandon(mut self) {
        for key in self.keys.drain(..) {
            self.discovery.abandon(key);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        while let Some(key) = self.keys.pop() {
            self.discovery.release(key);
        }
    }
}

#[cfg(test)]
mod tests;
