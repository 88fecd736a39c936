//! A scripted Kubernetes API server: three collections, spoken as a real one speaks (pages, watches with resource
//! versions and bookmarks, expired history, server-side apply), with a log of what it was asked and faults on demand.

mod objects;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use roost_cluster::{KubernetesConfig, KubernetesMode, PodIdentity, TlsIdentity};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::Certificates;

/// The namespace that tests use.
pub const NAMESPACE: &str = "serving";

/// The server; ends when dropped.
#[derive(Debug)]
pub struct KubeApi {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: String,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes of the state.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    /// History before this revision is gone.
    oldest: u64,
    objects: BTreeMap<(String, String), Value>,
    history: Vec<Change>,
    asked: Vec<Asked>,
    /// What is answered to a method on a collection instead of the truth, as often as it is here.
    faults: Vec<Fault>,
    token: Option<String>,
    /// Watches of an older generation end.
    generation: u64,
    bookmarks: u64,
    largest_page: Option<usize>,
}

#[derive(Debug, Clone)]
struct Change {
    revision: u64,
    collection: String,
    kind: &'static str,
    object: Value,
}

#[derive(Debug)]
struct Fault {
    method: &'static str,
    collection: &'static str,
    status: u16,
    reason: &'static str,
    times: usize,
}

impl KubeApi {
    /// Starts a server without TLS.
    pub async fn start() -> Result<Self> {
        Self::serve("http", None).await
    }

    /// Starts a server with TLS that asks for this token.
    pub async fn start_tls(certificates: &Certificates, token: &str) -> Result<Self> {
        let api = Self::serve("https", Some(serve::acceptor(certificates)?)).await?;
        api.ask_for(token);
        Ok(api)
    }

    async fn serve(scheme: &'static str, tls: Option<TlsAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = State { revision: 100, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(0) });
        let task = tokio::spawn(serve::accept(listener, tls, shared.clone()));
        Ok(Self { address, scheme, shared, _task: AbortOnDropHandle::new(task) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Settings of a participant that looks only, or that is in a pod.
    pub fn config(&self, pod: Option<(&str, &str)>) -> KubernetesConfig {
        KubernetesConfig {
            server: self.url(),
            namespace: NAMESPACE.to_owned(),
            token: None,
            tls: TlsIdentity::default(),
            mode: KubernetesMode::Pod,
            pod: pod.map(|(name, uid)| PodIdentity {
                name: name.to_owned(),
                uid: uid.to_owned(),
                container: None,
            }),
        }
    }

    /// From now on only who shows this token is served.
    pub fn ask_for(&self, token: &str) {
        self.shared.state.lock().token = Some(token.to_owned());
    }

    /// Writes an object as a controller would.
    pub fn write(&self, collection: &str, name: &str, object: Value) {
        self.shared.change(|state| {
            state.put(collection, name, object);
        });
    }

    /// Deletes an object as a controller would.
    pub fn delete(&self, collection: &str, name: &str) {
        self.shared.change(|state| {
            state.remove(collection, name);
        });
    }

    /// Writes the EndpointSlice of a service: pods with their uid and whether they are ready.
    pub fn slice(&self, name: &str, pods: &[(&str, &str, bool)]) {
        self.write("endpointslices", name, objects::slice(name, pods));
    }

    /// Writes a pod with its containers and whether they are ready.
    pub fn pod(&self, name: &str, uid: &str, containers: &[(&str, bool)]) {
        self.write("pods", name, objects::pod(name, uid, containers));
    }

    /// The records of a resource as stored.
    pub fn stored(&self, name: &str) -> Option<Value> {
        let key = ("dynamoworkermetadatas".to_owned(), name.to_owned());
        self.shared.state.lock().objects.get(&key).cloned()
    }

    /// Ends all watches.
    pub fn cut(&self) {
        self.shared.change(|state| state.generation += 1);
    }

    /// Forgets the history up to now.
    pub fn compact(&self) {
        let mut state = self.shared.state.lock();
        // A change of something else, so that no watcher is up to date.
        state.revision += 1;
        state.oldest = state.revision;
        state.history.clear();
    }

    /// Changes something that nobody looks at, and tells watchers how far they are.
    pub fn bookmark(&self) {
        self.shared.change(|state| {
            state.revision += 1;
            state.bookmarks += 1;
        });
    }

    /// Answers the next `times` requests of this kind with a refusal.
    pub fn refuse(
        &self,
        method: &'static str,
        collection: &'static str,
        status: u16,
        reason: &'static str,
        times: usize,
    ) {
        let fault = Fault { method, collection, status, reason, times };
        self.shared.state.lock().faults.push(fault);
    }

    /// Lets pages be no larger than this, whatever is asked for.
    pub fn limit_pages(&self, objects: usize) {
        self.shared.state.lock().largest_page = Some(objects);
    }

    /// What it was asked since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.state.lock().asked)
    }

    /// Names of all resources with records.
    pub fn resources(&self) -> BTreeSet<String> {
        let state = self.shared.state.lock();
        let all = state.objects.keys().filter(|(collection, _)| collection == "dynamoworkermetadatas");
        all.map(|(_, name)| name.clone()).collect()
    }

    /// Writes a configuration file for clients that read one.
    pub fn kubeconfig(&self, path: PathBuf) -> Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url()}}],
            "users": [{"name": "test", "user": {"token": "any"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": NAMESPACE}}],
        });
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.send_modify(|count| *count += 1);
    }
}

impl State {
    fn put(&mut self, collection: &str, name: &str, mut object: Value) -> Value {
        let key = (collection.to_owned(), name.to_owned());
        self.revision += 1;
        let before = self.objects.get(&key);
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = match before {
                Some(before) => before["metadata"]["uid"].clone(),
                None => json!(format!("object-{}", self.revision)),
            };
        }
        metadata["namespace"] = json!(NAMESPACE);
        metadata["resourceVersion"] = json!(self.revision.to_string());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.record(collection, kind, &object);
        self.objects.insert(key, object.clone());
        object
    }

    fn remove(&mut self, collection: &str, name: &str) -> Option<Value> {
        let mut object = self.objects.remove(&(collection.to_owned(), name.to_owned()))?;
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.record(collection, "DELETED", &object);
        Some(object)
    }

    fn record(&mut self, collection: &str, kind: &'static str, object: &Value) {
        self.history.push(Change {
            revision: self.revision,
            collection: collection.to_owned(),
            kind,
            object: object.clone(),
        });
    }
}
