use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;
use crate::record::EndpointId;

fn key(id: u64) -> RecordKey {
    RecordKey::instance(&EndpointId::new("n", "c", "e"), id)
}

fn listing(ids: &[u64]) -> BTreeMap<RecordKey, Bytes> {
    ids.iter().map(|id| (key(*id), Bytes::from_static(b"{}"))).collect()
}

fn ids(view: &View) -> Vec<RecordKey> {
    view.records().keys().cloned().collect()
}

#[test]
fn deletions_count_at_once_while_the_store_is_there() {
    let mut view = View::default();
    view.listed(listing(&[1, 2, 3]));
    view.delete(key(1));
    view.put(key(4), Bytes::new());
    assert_eq!(ids(&view), [key(2), key(3), key(4)]);
    view.listed(listing(&[3, 4]));
    assert_eq!(ids(&view), [key(3), key(4)], "a listing after a compaction is the truth");
    assert_eq!(view.hold_until(), None);
}

#[test]
fn after_an_outage_records_are_kept_until_their_owners_had_time_to_return() {
    let now = Instant::now();
    let end = now + Duration::from_secs(10);
    let mut view = View::default();
    view.listed(listing(&[1, 2, 3]));
    view.hold(end);
    // The store lost 1 and 2, and then the lease of 3 runs out.
    view.listed(listing(&[3]));
    view.delete(key(3));
    assert_eq!(ids(&view), [key(1), key(2), key(3)]);
    assert_eq!(view.stored(&key(1)), None, "held is not stored");
    // 1 and 3 come back, 4 is new, a record that was never there is deleted.
    view.put(key(1), Bytes::from_static(b"{}"));
    view.put(key(3), Bytes::from_static(b"{}"));
    view.put(key(4), Bytes::new());
    view.delete(key(5));
    assert!(!view.expire(end - Duration::from_millis(1)));
    assert!(view.expire(end));
    assert_eq!(ids(&view), [key(1), key(3), key(4)]);
    assert!(!view.expire(end), "once");
    view.delete(key(1));
    assert_eq!(ids(&view), [key(3), key(4)], "and everything is as before");
}

#[test]
fn a_second_outage_prolongs_the_time() {
    let now = Instant::now();
    let mut view = View::default();
    view.listed(listing(&[1]));
    view.hold(now + Duration::from_secs(10));
    view.delete(key(1));
    view.hold(now + Duration::from_secs(15));
    view.listed(listing(&[]));
    assert!(!view.expire(now + Duration::from_secs(10)));
    assert_eq!(ids(&view), [key(1)]);
    assert!(view.expire(now + Duration::from_secs(15)));
    assert!(ids(&view).is_empty());
}
