//! Who a process is in a Kubernetes cluster.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What one resource stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KubernetesMode {
    /// A pod. Whether it is ready says its service's EndpointSlice.
    #[default]
    Pod,
    /// A container of a pod, several of which serve. Whether it is ready says the pod's status.
    Container,
}

/// The pod, and in [`KubernetesMode::Container`] the container, that a process runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// Name of the pod.
    pub name: String,
    /// Its unique id, which another pod of the same name does not have.
    pub uid: String,
    /// Name of the container; needed in [`KubernetesMode::Container`] only.
    pub container: Option<String>,
}

impl PodIdentity {
    /// The name of the resource that this process writes.
    pub(super) fn resource(&self, mode: KubernetesMode) -> String {
        match (mode, &self.container) {
            (KubernetesMode::Container, Some(container)) => resource_of_container(&self.name, container),
            _ => self.name.clone(),
        }
    }
}

/// The container `main` stands for its pod, so that both kinds of participants understand each other.
pub(super) fn resource_of_container(pod: &str, container: &str) -> String {
    if container == "main" { pod.to_owned() } else { format!("{pod}-{container}") }
}

/// The instance id that belongs to a resource: SipHash-1-3 without a key, 53 bits of it, since numbers in resources
/// pass through programs that hold them as doubles.
pub(super) fn instance_id(resource: &str) -> u64 {
    // The standard library does not promise to keep this function; a test holds it to what peers compute.
    let mut hasher = DefaultHasher::new();
    resource.hash(&mut hasher);
    hasher.finish() & ((1 << 53) - 1)
}
