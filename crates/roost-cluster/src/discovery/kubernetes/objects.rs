//! The resources that are read and written, as far as they matter here.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::identity::{PodIdentity, resource_of_container};
use crate::record::{Bucket, RecordKey};

/// API group and version of the resources that hold records.
const RECORDS_API: &str = "nvidia.com/v1alpha1";
/// Pods and slices of other applications do not carry it. Dynamo 1.6.1 asks for this label alone.
const SELECTOR: &str = "nvidia.com%2Fdynamo-discovery-enabled%3Dtrue";

/// A resource as the API server shows it.
pub(super) trait Object: DeserializeOwned + Send + 'static {
    /// What becomes of it.
    type Seen: Send + 'static;
    fn metadata(&self) -> &Metadata;
    fn seen(self) -> Self::Seen;
}

/// Path and selection of a collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collection {
    prefix: &'static str,
    plural: &'static str,
    selector: Option<&'static str>,
}

impl Collection {
    pub(super) const RECORDS: Self =
        Self { prefix: "/apis/nvidia.com/v1alpha1", plural: "dynamoworkermetadatas", selector: None };
    pub(super) const SLICES: Self =
        Self { prefix: "/apis/discovery.k8s.io/v1", plural: "endpointslices", selector: Some(SELECTOR) };
    pub(super) const PODS: Self = Self { prefix: "/api/v1", plural: "pods", selector: Some(SELECTOR) };

    pub(super) fn plural(self) -> &'static str {
        self.plural
    }

    /// Path of the collection, or of one of its members, in a namespace.
    pub(super) fn path(self, namespace: &str, name: Option<&str>) -> String {
        let Self { prefix, plural, .. } = self;
        match name {
            None => format!("{prefix}/namespaces/{namespace}/{plural}"),
            Some(name) => format!("{prefix}/namespaces/{namespace}/{plural}/{name}"),
        }
    }

    /// Path and query of a listing or watch.
    pub(super) fn query(self, namespace: &str, parameters: &str) -> String {
        let selector = self.selector.map(|selector| format!("labelSelector={selector}&")).unwrap_or_default();
        format!("{}?{selector}{parameters}", self.path(namespace, None))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    uid: Option<String>,
    pub(super) resource_version: Option<String>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    kind: String,
    uid: String,
}

/// One page of a listing.
#[derive(Debug, Deserialize)]
pub(super) struct List<T> {
    pub(super) metadata: ListMetadata,
    pub(super) items: Option<Vec<T>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMetadata {
    pub(super) resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The object of a bookmark: where the watch has got to.
#[derive(Debug, Deserialize)]
pub(super) struct Bookmark {
    pub(super) metadata: Metadata,
}

/// How the API server says no.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
}

/// A `DynamoWorkerMetadata`.
#[derive(Debug, Deserialize)]
pub(super) struct RecordsObject {
    metadata: Metadata,
    spec: Option<RecordsSpec>,
}

#[derive(Debug, Deserialize)]
struct RecordsSpec {
    data: Option<Box<RawValue>>,
}

/// Everything in it is a map from the record's key to the record. An empty map may come back as null.
#[derive(Debug, Deserialize)]
struct Data {
    endpoints: Option<BTreeMap<String, Box<RawValue>>>,
    model_cards: Option<BTreeMap<String, Box<RawValue>>>,
    event_channels: Option<BTreeMap<String, Box<RawValue>>>,
    event_sources: Option<BTreeMap<String, Box<RawValue>>>,
}

/// The records of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Records {
    /// Name of the resource.
    pub(super) name: String,
    pub(super) uid: Option<String>,
    /// The pod that it belongs to and is deleted with.
    pub(super) pod_uid: Option<String>,
    /// `None` when the resource holds none that can be read.
    pub(super) records: Option<BTreeMap<RecordKey, Bytes>>,
}

impl Object for RecordsObject {
    type Seen = Records;

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn seen(self) -> Records {
        let Metadata { name, uid, owner_references, .. } = self.metadata;
        let mut owners = owner_references.into_iter().flatten();
        let pod_uid = owners.find(|owner| owner.kind == "Pod").map(|owner| owner.uid);
        let records = self.spec.and_then(|spec| spec.data).and_then(|data| {
            let read = serde_json::from_str::<Data>(data.get());
            if let Err(error) = &read {
                tracing::warn!(resource = name, %error, "the records of a worker cannot be read");
            }
            read.ok().map(records)
        });
        Records { name, uid, pod_uid, records }
    }
}

fn records(data: Data) -> BTreeMap<RecordKey, Bytes> {
    let buckets = [
        (Bucket::Instances, data.endpoints),
        (Bucket::Cards, data.model_cards),
        (Bucket::EventChannels, data.event_channels),
        (Bucket::EventSources, data.event_sources),
    ];
    let mut records = BTreeMap::new();
    for (bucket, held) in buckets {
        records.extend(held.into_iter().flatten().map(|(key, value)| {
            (RecordKey { bucket, key }, Bytes::from(Box::<str>::from(value).into_string()))
        }));
    }
    records
}

/// Which resources' processes are ready, as one object says: name of the resource and uid of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readiness {
    /// Name of the object that says so.
    pub(super) name: String,
    pub(super) ready: Vec<(String, String)>,
}

/// An `EndpointSlice`.
#[derive(Debug, Deserialize)]
pub(super) struct SliceObject {
    metadata: Metadata,
    endpoints: Option<Vec<SliceEndpoint>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceEndpoint {
    conditions: Option<Conditions>,
    target_ref: Option<TargetRef>,
}

#[derive(Debug, Deserialize)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct TargetRef {
    name: Option<String>,
    uid: Option<String>,
}

impl Object for SliceObject {
    type Seen = Readiness;

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn seen(self) -> Readiness {
        let endpoints = self.endpoints.into_iter().flatten();
        let ready = endpoints
            .filter(|endpoint| endpoint.conditions.as_ref().and_then(|now| now.ready) == Some(true))
            .filter_map(|endpoint| endpoint.target_ref)
            // Without a uid a new pod could be taken for an old one of its name.
            .filter_map(|pod| pod.name.zip(pod.uid))
            .filter(|(name, uid)| !name.is_empty() && !uid.is_empty());
        Readiness { name: self.metadata.name, ready: ready.collect() }
    }
}

/// A `Pod`.
#[derive(Debug, Deserialize)]
pub(super) struct PodObject {
    metadata: Metadata,
    status: Option<PodStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Deserialize)]
struct ContainerStatus {
    name: String,
    ready: bool,
}

impl Object for PodObject {
    type Seen = Readiness;

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn seen(self) -> Readiness {
        let Metadata { name, uid, .. } = self.metadata;
        let containers = self.status.and_then(|status| status.container_statuses);
        let ready = match uid.filter(|uid| !uid.is_empty()) {
            None => Vec::new(),
            Some(uid) => containers
                .into_iter()
                .flatten()
                .filter(|container| container.ready)
                .map(|container| (resource_of_container(&name, &container.name), uid.clone()))
                .collect(),
        };
        Readiness { name, ready }
    }
}

/// What is sent to write all records of a process at once.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Application<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ApplicationMetadata<'a>,
    spec: ApplicationSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApplicationMetadata<'a> {
    name: &'a str,
    owner_references: [ApplicationOwner<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApplicationOwner<'a> {
    api_version: &'static str,
    block_owner_deletion: bool,
    controller: bool,
    kind: &'static str,
    name: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
struct ApplicationSpec<'a> {
    data: ApplicationData<'a>,
}

#[derive(Default, Serialize)]
struct ApplicationData<'a> {
    endpoints: BTreeMap<&'a str, serde_json::Value>,
    model_cards: BTreeMap<&'a str, serde_json::Value>,
    event_channels: BTreeMap<&'a str, serde_json::Value>,
    event_sources: BTreeMap<&'a str, serde_json::Value>,
}

/// The body of a server-side apply of `records` to `resource`, which belongs to `pod`.
///
/// # Errors
/// A record is not JSON.
pub(super) fn application(
    resource: &str,
    pod: &PodIdentity,
    records: &BTreeMap<RecordKey, Bytes>,
) -> serde_json::Result<Vec<u8>> {
    let mut data = ApplicationData::default();
    for (RecordKey { bucket, key }, value) in records {
        let mut record: serde_json::Value = serde_json::from_slice(value)?;
        let held = match bucket {
            Bucket::Instances => &mut data.endpoints,
            Bucket::Cards => &mut data.model_cards,
            Bucket::EventChannels => {
                name_scope(&mut record);
                &mut data.event_channels
            }
            Bucket::EventSources => &mut data.event_sources,
        };
        held.insert(key, record);
    }
    // Of several resources of one pod only one may call the pod its controller.
    let controller = resource == pod.name;
    let owner = ApplicationOwner {
        api_version: "v1",
        block_owner_deletion: false,
        controller,
        kind: "Pod",
        name: &pod.name,
        uid: &pod.uid,
    };
    serde_json::to_vec(&Application {
        api_version: RECORDS_API,
        kind: "DynamoWorkerMetadata",
        metadata: ApplicationMetadata { name: resource, owner_references: [owner] },
        spec: ApplicationSpec { data },
    })
}

/// Adds the two keys in which readers of old find an event channel's place.
fn name_scope(channel: &mut serde_json::Value) {
    for part in ["namespace", "component"] {
        let value = channel["scope"]["endpoint"][part].clone();
        if let (Some(channel), true) = (channel.as_object_mut(), value.is_string()) {
            channel.insert(part.to_owned(), value);
        }
    }
}
