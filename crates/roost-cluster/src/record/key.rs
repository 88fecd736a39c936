//! Where a record lives: bucket and key.

use std::fmt;

use super::endpoint::EndpointId;

/// One of the four record kinds of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bucket {
    /// Endpoint instances.
    Instances,
    /// Model cards.
    Cards,
    /// Event publishers and their sockets.
    EventChannels,
    /// KV-event sources and whom they speak for.
    EventSources,
}

impl Bucket {
    /// All buckets, in the order in which a worker fills them.
    pub const ALL: [Bucket; 4] =
        [Bucket::Instances, Bucket::Cards, Bucket::EventChannels, Bucket::EventSources];

    /// The bucket's path, relative to the store's root.
    pub const fn path(self) -> &'static str {
        match self {
            Bucket::Instances => "v1/instances",
            Bucket::Cards => "v1/mdc",
            Bucket::EventChannels => "v1/event_channels",
            Bucket::EventSources => "v1/event_sources",
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

/// Bucket and key of one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// The bucket.
    pub bucket: Bucket,
    /// The key inside the bucket, not escaped for any backend.
    pub key: String,
}

impl RecordKey {
    /// Key of an endpoint instance.
    pub fn instance(endpoint: &EndpointId, instance_id: u64) -> Self {
        Self { bucket: Bucket::Instances, key: format!("{}/{instance_id:x}", endpoint.joined('/')) }
    }

    /// Key of a model card: the same as that of the instance it describes, in its own bucket.
    pub fn card(endpoint: &EndpointId, instance_id: u64) -> Self {
        Self { bucket: Bucket::Cards, ..Self::instance(endpoint, instance_id) }
    }

    /// Key of an event channel.
    pub fn event_channel(scope: &EndpointId, topic: &str, publisher_id: u64) -> Self {
        let segments = [
            ("namespace", scope.namespace.as_str()),
            ("component", &scope.component),
            ("endpoint", &scope.name),
            ("topic", topic),
        ];
        let mut key = String::new();
        for (label, value) in segments {
            key.push_str(label);
            key.push('/');
            percent_encode_into(&mut key, value, |b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            key.push('/');
        }
        key.push_str(&format!("{publisher_id:x}"));
        Self { bucket: Bucket::EventChannels, key }
    }

    /// Key of an event source: the same as that of its channel, in its own bucket.
    pub fn event_source(scope: &EndpointId, topic: &str, publisher_id: u64) -> Self {
        Self { bucket: Bucket::EventSources, ..Self::event_channel(scope, topic, publisher_id) }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.key)
    }
}

/// Appends `text` with every byte that `keep` refuses as `%XX` in upper hex.
pub(crate) fn percent_encode_into(out: &mut String, text: &str, keep: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text.as_bytes() {
        if keep(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Undoes [`percent_encode_into`]; `None` when an escape is cut, not hex, or the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push(u8::try_from(high * 16 + low).expect("two hex digits make one byte"));
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}
