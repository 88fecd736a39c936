//! What needs no etcd. The behaviour against a real one is in the end-to-end suite.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;

use super::messages::{Compare, Event, KeyValue, WatchResponse};
use super::*;
use crate::record::{EndpointId, RecordKey};

fn key(id: u64) -> RecordKey {
    RecordKey::instance(&EndpointId::new("n", "c", "e"), id)
}

#[test]
fn addresses_as_operators_write_them() {
    let read = |text: &str| Endpoint::parse(text, "etcd", PORT, false).map(|endpoint| endpoint.origin());
    for (text, origin) in [
        ("http://localhost:2379", "http://localhost:2379"),
        ("http://etcd.infra.svc:12379/", "http://etcd.infra.svc:12379"),
        ("https://10.0.0.1", "https://10.0.0.1:2379"),
        ("10.0.0.1:2379", "http://10.0.0.1:2379"),
        ("etcd", "http://etcd:2379"),
        ("http://[::1]:4000", "http://[::1]:4000"),
        ("[::1]", "http://[::1]:2379"),
    ] {
        assert_eq!(read(text).as_deref(), Ok(origin), "{text}");
    }
    assert_eq!(Endpoint::parse("etcd:1", "etcd", PORT, true).map(|endpoint| endpoint.tls), Ok(true));
    for text in
        ["", "http://", "ftp://a:1", "http://a:70000", "http://a:b", "http://u@a:1", "http://a:1/v3", ":2379"]
    {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn messages_are_those_of_the_protocol() {
    // Bytes as etcd writes and reads them: field 1 is 0x0a and so on, zero versions are written.
    let compare = Compare { key: Bytes::from_static(b"k"), version: Some(0), ..Compare::default() };
    assert_eq!(compare.encode_to_vec(), [0x1a, 1, b'k', 0x20, 0]);
    let kv = KeyValue { key: Bytes::from_static(b"k"), ..KeyValue::default() };
    let deletion = Event { kind: 1, kv: Some(kv) };
    // A header with an unknown member id (field 2), then one event (field 11).
    let bytes = [
        0x0a, 6, 0x08, 7, 0x10, 9, 0x18, 5, // header: cluster 7, member 9, revision 5
        0x5a, 7, 0x08, 1, 0x12, 3, 0x0a, 1, b'k', // event: DELETE of k
    ];
    let response = WatchResponse::decode(&bytes[..]).unwrap();
    assert_eq!(response.header.as_ref().map(|header| (header.cluster_id, header.revision)), Some((7, 5)));
    assert_eq!(response.events, [deletion]);
}

#[tokio::test]
async fn a_wrong_address_or_certificate_is_told_at_once() {
    let refused = EtcdDiscovery::open(EtcdConfig::new(vec!["ftp://x".to_owned()])).unwrap_err();
    assert!(refused.to_string().contains("neither http nor https"), "{refused}");
    let mut config = EtcdConfig::new(vec!["https://x:1".to_owned()]);
    config.tls.ca = Some(super::super::Pem::File("/nonexistent/ca.pem".into()));
    let refused = EtcdDiscovery::open(config).unwrap_err().to_string();
    assert!(refused.contains("/nonexistent/ca.pem"), "{refused}");
}

#[tokio::test]
async fn an_absent_store_is_unreachable_not_empty() {
    // A port of our own that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let discovery = EtcdDiscovery::open(EtcdConfig::new(vec![format!("127.0.0.1:{port}")])).unwrap();
    let mut snapshot = discovery.watch();
    let away = snapshot.wait_for(|snapshot| snapshot.unreachable_since.is_some()).await.unwrap();
    assert!(!away.synced && away.records.is_empty());
    drop(away);
    let failed = discovery.ready(Duration::from_millis(1)).await.unwrap_err();
    assert!(failed.to_string().contains(&format!("127.0.0.1:{port}")), "{failed}");
    // Orders are taken all the same: a deletion does not wait, and the end is not kept up.
    discovery.delete(key(1)).await.unwrap();
    discovery.close().await;
    assert!(matches!(discovery.put(key(1), Bytes::new()).await, Err(DiscoveryError::Closed)));
}
