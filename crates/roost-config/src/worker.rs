//! What `roost worker` needs to know.

use std::{path::PathBuf, time::Duration};

use crate::{
    effective::Effective,
    problem::{Problem, Problems},
    serve::{self, LogOptions},
    values::Values,
    worker_plane::WorkerPlane,
};

/// Options of `roost worker`: a plain SGLang server behind the worker plane.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Address of the server.
    pub engine: String,
    /// Bearer token for it.
    pub api_key: Option<String>,
    /// Name under which the model is served. `None`: the server's.
    pub model_name: Option<String>,
    /// Folder with tokenizer, template and configuration. `None`: the server's, if it can be read here.
    pub model_path: Option<PathBuf>,
    /// Host of a prefill server's bootstrap server. `None`: the server's own.
    pub bootstrap_host: Option<String>,
    /// Its port. `None`: as the server says.
    pub bootstrap_port: Option<u16>,
    /// Follow and publish the server's KV events.
    pub kv_events: bool,
    /// Pause between two looks at the server.
    pub probe_interval: Duration,
    /// How frontends reach the worker.
    pub plane: WorkerPlane,
    /// Log output.
    pub log: LogOptions,
    /// Every option with its value and where it came from.
    pub effective: Effective,
    /// Things to tell the operator once at start.
    pub notices: Vec<String>,
}

pub(crate) fn build(values: &Values, effective: Effective, notices: Vec<String>) -> Result<Worker, Problems> {
    let worker = Worker {
        engine: values.text("engine").unwrap_or_default(),
        api_key: values.text("engine-api-key"),
        model_name: values.text("model-name"),
        model_path: values.path("model-path"),
        bootstrap_host: values.text("bootstrap-host"),
        bootstrap_port: values.optional_port("bootstrap-port"),
        kv_events: values.switch("kv-events"),
        probe_interval: values.duration("probe-interval-ms"),
        plane: WorkerPlane::of(values),
        log: serve::log(values),
        effective,
        notices,
    };
    if worker.engine.is_empty() {
        let problem =
            Problem::new("--engine", "is needed: the address of an SGLang server, http://HOST:PORT");
        return Err(Problems::new(vec![problem], Some("worker")));
    }
    Ok(worker)
}
