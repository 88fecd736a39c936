//! Calls that write: the lease, and records under it.

use std::time::Duration;

use bytes::Bytes;

use super::channel::{Connection, Failure};
use super::messages::{
    Compare, DeleteRequest, Done, GrantRequest, KeepAliveResponse, LeaseRequest, Op, PutRequest,
    RangeRequest, RequestOp, TxnRequest, TxnResponse, method,
};
use crate::record::RecordKey;

/// What became of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    Yes,
    /// Somebody else holds the key.
    Exists,
    /// The lease is gone.
    NoLease,
}

/// The key in the store: bucket and key as they are.
pub(super) fn store_key(key: &RecordKey) -> Bytes {
    format!("{key}").into()
}

/// Asks for the lease under the id that it had before.
pub(super) async fn grant(connection: &Connection, id: i64, ttl: Duration) -> Result<(), Failure> {
    let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
    match connection.unary::<_, Done>(method::GRANT, &GrantRequest { ttl, id }).await {
        // It is ours: an earlier grant whose answer was lost, or a member that says so late.
        Err(failure) if failure.has_code(Failure::FAILED_PRECONDITION) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Renews the lease; false when there is none.
pub(super) async fn renew(connection: &Connection, id: i64) -> Result<bool, Failure> {
    let answer: KeepAliveResponse = connection.unary(method::KEEP_ALIVE, &LeaseRequest { id }).await?;
    Ok(answer.ttl > 0)
}

/// Gives the lease back, and with it all its records.
pub(super) async fn revoke(connection: &Connection, id: i64) -> Result<(), Failure> {
    match connection.unary::<_, Done>(method::REVOKE, &LeaseRequest { id }).await {
        Err(failure) if failure.has_code(Failure::NOT_FOUND) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Writes a record that must not exist, or is ours already.
pub(super) async fn create(
    connection: &Connection,
    key: &RecordKey,
    value: &Bytes,
    lease: i64,
) -> Result<Written, Failure> {
    let (key, value) = (store_key(key), value.clone());
    let range = RangeRequest { key: key.clone(), ..RangeRequest::default() };
    let request = TxnRequest {
        compare: vec![Compare { key: key.clone(), version: Some(0), ..Compare::default() }],
        success: vec![RequestOp { op: Some(Op::Put(PutRequest { key, value: value.clone(), lease })) }],
        failure: vec![RequestOp { op: Some(Op::Range(range)) }],
    };
    let answer: TxnResponse = match connection.unary(method::TXN, &request).await {
        Err(failure) if failure.has_code(Failure::NOT_FOUND) => return Ok(Written::NoLease),
        other => other?,
    };
    let found =
        answer.responses.into_iter().filter_map(|response| response.range).flat_map(|range| range.kvs);
    // With our lease and value it is an earlier attempt of ours, whose answer was lost.
    let ours = answer.succeeded || found.into_iter().any(|kv| kv.lease == lease && kv.value == value);
    Ok(if ours { Written::Yes } else { Written::Exists })
}

/// Writes a record whatever is there.
pub(super) async fn put(
    connection: &Connection,
    key: &RecordKey,
    value: &Bytes,
    lease: i64,
) -> Result<Written, Failure> {
    let request = PutRequest { key: store_key(key), value: value.clone(), lease };
    match connection.unary::<_, Done>(method::PUT, &request).await {
        Err(failure) if failure.has_code(Failure::NOT_FOUND) => Ok(Written::NoLease),
        other => other.map(|_| Written::Yes),
    }
}

/// Deletes a record.
pub(super) async fn delete(connection: &Connection, key: &RecordKey) -> Result<(), Failure> {
    let request = DeleteRequest { key: store_key(key) };
    connection.unary::<_, Done>(method::DELETE, &request).await.map(|_| ())
}
