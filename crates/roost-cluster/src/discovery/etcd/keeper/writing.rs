//! Own records: written on the lease, which is kept alive, and taken back at the end.

use std::time::{Duration, Instant};

use super::{Closed, Keeper, RESTORE_AFTER};
use crate::discovery::DiscoveryError;
use crate::discovery::etcd::channel::{Connection, Failure};
use crate::discovery::etcd::lease::{self, Written};
use crate::discovery::orders::Command;
use crate::record::RecordKey;

/// Longest wait for the store at the end.
const FAREWELL: Duration = Duration::from_secs(2);

impl Keeper {
    /// Keeps the lease alive; one that is gone is asked for again under its old id.
    pub(super) async fn renew(&mut self, connection: &Connection) -> Result<(), Failure> {
        if !lease::renew(connection, self.lease).await? {
            tracing::warn!(lease = %format_args!("{:x}", self.lease), "the lease in etcd was lost; registering again");
            self.own.all_lost();
            lease::grant(connection, self.lease, self.config.lease_ttl).await?;
        }
        self.renew_at = Some(Instant::now() + self.config.lease_ttl / 3);
        Ok(())
    }

    /// Writes every own record that the store does not have.
    pub(super) async fn restore(&mut self, connection: &Connection) -> Result<(), Failure> {
        self.restore_at = None;
        for key in self.own.unstored() {
            self.store(connection, &key).await?;
        }
        Ok(())
    }

    async fn store(&mut self, connection: &Connection, key: &RecordKey) -> Result<(), Failure> {
        if self.renew_at.is_none() {
            lease::grant(connection, self.lease, self.config.lease_ttl).await?;
            self.renew_at = Some(Instant::now() + self.config.lease_ttl / 3);
        }
        let Some(record) = self.own.get(key) else { return Ok(()) };
        let (value, created) = (record.value.clone(), record.created);
        let written = if created {
            lease::put(connection, key, &value, self.lease).await
        } else {
            lease::create(connection, key, &value, self.lease).await
        };
        match written {
            Ok(Written::Yes) => self.own.is_stored(key),
            Ok(Written::Exists) => {
                self.own.is_refused(key, DiscoveryError::Exists { key: key.clone() });
            }
            Ok(Written::NoLease) => {
                // The next alarm writes everything again.
                self.own.all_lost();
                lease::grant(connection, self.lease, self.config.lease_ttl).await?;
                self.restore_at = Some(Instant::now() + RESTORE_AFTER);
            }
            Err(failure) if failure.is_of_connection() => return Err(failure),
            Err(failure) => {
                let reason = failure.to_string();
                self.own.is_refused(key, DiscoveryError::Refused { key: key.clone(), reason });
                self.restore_at = Some(Instant::now() + RESTORE_AFTER * 5);
            }
        }
        Ok(())
    }

    pub(super) async fn obey(
        &mut self,
        connection: &Connection,
        command: Option<Command>,
    ) -> Result<Result<(), Closed>, Failure> {
        match command {
            None => return Ok(Err(Closed(None))),
            Some(Command::Close { reply }) => return Ok(Err(Closed(Some(reply)))),
            Some(Command::Put { key, value, reply }) => {
                self.own.promise(key.clone(), value, reply);
                self.store(connection, &key).await?;
            }
            Some(Command::Abandon { key }) => self.abandon(&key),
            Some(Command::Delete { key, reply }) => {
                let created = self.own.withdraw(&key).is_some_and(|record| record.created);
                let deleted = if created { lease::delete(connection, &key).await } else { Ok(()) };
                let reason = deleted.as_ref().err().map(ToString::to_string);
                let told = match reason {
                    None => Ok(()),
                    Some(reason) => {
                        self.own.doom(key.clone());
                        Err(DiscoveryError::Refused { key, reason })
                    }
                };
                let _ = reply.send(told);
                if let Err(failure) = deleted
                    && failure.is_of_connection()
                {
                    return Err(failure);
                }
            }
        }
        Ok(Ok(()))
    }

    /// Takes the records back.
    pub(super) async fn farewell(&mut self, connection: &Connection) {
        let last = async {
            if self.own.abandoned {
                for key in self.own.keys() {
                    lease::delete(connection, key).await?;
                }
                Ok(())
            } else if self.renew_at.is_some() {
                lease::revoke(connection, self.lease).await
            } else {
                Ok(())
            }
        };
        let done = tokio::time::timeout(FAREWELL, last).await;
        if let Err(error) = done.unwrap_or(Err(Failure::Timeout(FAREWELL))) {
            tracing::warn!(%error, "own discovery records not deleted; they expire with their lease");
        }
    }
}
