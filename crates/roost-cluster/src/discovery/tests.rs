use bytes::Bytes;

use super::*;
use crate::record::{Bucket, EndpointId};

fn key(bucket: Bucket, id: u64) -> RecordKey {
    RecordKey { bucket, ..RecordKey::instance(&EndpointId::new("n", "c", "e"), id) }
}

#[tokio::test]
async fn memory_shares_records_between_participants() {
    let one = MemoryDiscovery::new();
    let two = one.participant();
    let mut seen = two.watch();
    assert!(seen.borrow_and_update().synced);

    one.put(key(Bucket::Instances, 1), Bytes::from_static(b"1")).await.unwrap();
    assert!(seen.has_changed().unwrap());
    assert_eq!(seen.borrow_and_update().records.len(), 1);

    let taken = two.put(key(Bucket::Instances, 1), Bytes::new()).await;
    assert!(matches!(taken, Err(DiscoveryError::Exists { .. })));
    two.delete(key(Bucket::Instances, 1)).await.unwrap();
    assert_eq!(seen.borrow().records.len(), 1, "only the owner deletes");

    one.put(key(Bucket::Instances, 2), Bytes::new()).await.unwrap();
    one.release(key(Bucket::Instances, 2));
    one.abandon(key(Bucket::Instances, 1));
    one.delete(key(Bucket::Instances, 1)).await.unwrap();
    assert_eq!(seen.borrow().records.len(), 1, "an abandoned record waits for its end");
    two.expire();
    assert!(seen.borrow().records.is_empty());

    one.put(key(Bucket::Cards, 1), Bytes::new()).await.unwrap();
    drop(one);
    assert!(seen.borrow().records.is_empty(), "records go with their owner");
}

#[test]
fn snapshots_are_compared_deletions_first_then_in_bucket_order() {
    let with = |records: &[(Bucket, u64, &'static str)]| Snapshot {
        records: records.iter().map(|(b, id, v)| (key(*b, *id), Bytes::from_static(v.as_bytes()))).collect(),
        synced: true,
        unreachable_since: None,
    };
    let before =
        with(&[(Bucket::Instances, 1, "a"), (Bucket::Cards, 1, "a"), (Bucket::EventSources, 9, "z")]);
    let after = with(&[
        (Bucket::Cards, 2, "b"),
        (Bucket::Cards, 1, "b"),
        (Bucket::EventSources, 9, "z"),
        (Bucket::Instances, 2, "b"),
    ]);
    let put = |bucket, id| Change::Put(key(bucket, id), Bytes::from_static(b"b"));
    let expected = [
        Change::Delete(key(Bucket::Instances, 1)),
        put(Bucket::Instances, 2),
        put(Bucket::Cards, 1),
        put(Bucket::Cards, 2),
    ];
    assert_eq!(after.diff(&before), expected);
    assert!(after.diff(&after).is_empty());
}
