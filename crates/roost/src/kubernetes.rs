//! What a process in a pod knows of its cluster and of itself.

use std::path::Path;

use anyhow::{Context, Result};
use roost_cluster::{KubernetesConfig, KubernetesMode, Pem, PodIdentity, TlsIdentity};
use roost_config::KubernetesOptions;

/// The store's settings. Files of the pod's folder win over the options, as in Dynamo.
///
/// # Errors
/// There is no API server to ask.
pub(crate) fn config(options: &KubernetesOptions) -> Result<KubernetesConfig> {
    let server = options.server.clone().context(
        "no Kubernetes API server: outside of a pod give --kube-api-server (KUBERNETES_SERVICE_HOST is not set)",
    )?;
    let known = |file: &str, option: &Option<String>| {
        let text = std::fs::read_to_string(options.podinfo_dir.join(file)).unwrap_or_default();
        Some(text.trim().to_owned()).filter(|text| !text.is_empty()).or_else(|| option.clone())
    };
    let pod = known("pod_name", &options.pod_name).zip(known("pod_uid", &options.pod_uid));
    let secure = !server.starts_with("http://");
    let ca = secure && Path::new(&options.ca_file).is_file();
    Ok(KubernetesConfig {
        namespace: known("pod_namespace", &options.namespace).unwrap_or_else(|| "default".to_owned()),
        // A token is not for everybody who can listen.
        token: secure.then(|| options.token_file.clone()),
        tls: TlsIdentity { ca: ca.then(|| Pem::File(options.ca_file.clone())), client: None },
        mode: if options.containers { KubernetesMode::Container } else { KubernetesMode::Pod },
        pod: pod.map(|(name, uid)| PodIdentity { name, uid, container: options.container_name.clone() }),
        server,
    })
}
