//! `roost check`: would `serve` serve? What it needs is tried, one thing after the other, and the same frontend is started on
//! a port of its own, so that what is found is what `serve` would find.

mod findings;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use roost_config::{Check, Serve};
use roost_wire::{ListenerConfig, ResponseListener};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use self::findings::Findings;
use crate::access::Access;
use crate::store::Store;
use crate::{descriptors, exchange, listeners, output, serve, settings};

/// Open files below which a frontend is soon full: a stream takes two.
const FEW_FILES: u64 = 4096;
/// Longest wait for a connection to a worker.
const REACH: Duration = Duration::from_secs(2);
/// Workers that are connected to.
const REACHED: usize = 64;

/// Checks and prints; fails if something would keep it from serving.
pub(crate) fn run(options: Check) -> Result<ExitCode> {
    // What goes wrong underneath is said in its own words.
    roost_telemetry::logging::init("warn", settings::log_format(&options.serve.log))?;
    let findings = serve::runtime(&options.serve.process)?.block_on(examine(&options));
    output::result(&if options.json { findings.json() } else { findings.text() });
    Ok(if findings.is_fit() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn examine(options: &Check) -> Findings {
    let mut found = Findings::default();
    found.ok("configuration", "every option, variable and file is read and right");
    found.notices(&options.serve.notices);
    files(&options.serve, &mut found);
    let can_listen = listening(&options.serve, &mut found);
    let Some(store) = store(options, &mut found).await else { return found };
    if can_listen {
        fleet(options, store, &mut found).await;
    }
    found
}

/// The limit of open files.
fn files(options: &Serve, found: &mut Findings) {
    if let Some(target) = options.process.fd_limit_target {
        descriptors::raise(target);
    }
    match descriptors::limit() {
        Some(limit) if limit < FEW_FILES => found.warn(
            "open files",
            format!("at most {limit}: a stream takes two"),
            "raise it with `ulimit -n` or LimitNOFILE=",
        ),
        limit => {
            found.ok("open files", limit.map_or("no limit".to_owned(), |limit| format!("at most {limit}")))
        }
    }
}

/// Ports and certificates. False if nothing further can be tried.
fn listening(options: &Serve, found: &mut Findings) -> bool {
    let access = match Access::open(&options.door) {
        Ok(access) => access,
        Err(error) => {
            found.fail("access", format!("{error:#}"), "see docs/edge.md on keys and certificates");
            return false;
        }
    };
    match listeners::tcp(&options.http, access.tls) {
        Ok((address, _)) => found.ok("HTTP", format!("{address} is free")),
        Err(error) => {
            found.fail("HTTP", format!("{error:#}"), "stop what listens there, or choose another port")
        }
    }
    let home = match settings::response_address(&options.plane) {
        Ok(home) => home,
        Err(error) => {
            found.fail(
                "calls of workers",
                format!("{error:#}"),
                "name an address of this machine: DYN_TCP_RPC_HOST",
            );
            return false;
        }
    };
    let config = ListenerConfig { bind: home, ..ListenerConfig::default() };
    match ResponseListener::bind(config) {
        Ok(listener) if is_only_here(listener.address().ip()) => found.warn(
            "calls of workers",
            format!("{} is an address of this machine alone", listener.address()),
            "workers elsewhere need one that they reach: DYN_TCP_RPC_HOST or DYN_HOST_IP",
        ),
        Ok(listener) => found.ok("calls of workers", format!("{} can be bound", listener.address())),
        Err(error) => {
            found.fail(
                "calls of workers",
                format!("{home}: {error}"),
                "name an address of this machine: DYN_TCP_RPC_HOST",
            );
            return false;
        }
    }
    true
}

fn is_only_here(address: IpAddr) -> bool {
    address.is_loopback()
}

/// The discovery store.
async fn store(
    options: &Check,
    found: &mut Findings,
) -> Option<std::sync::Arc<dyn roost_cluster::Discovery>> {
    let discovery = &options.serve.discovery;
    let opened = async {
        let store = Store::new(&discovery.backend, Some(discovery.poll_interval))?;
        anyhow::Ok(store.participant(&CancellationToken::new()).await?)
    };
    let advice = "see that it runs and that this machine reaches it; other backends: --discovery-backend";
    match tokio::time::timeout(options.wait, opened).await {
        Ok(Ok(store)) => {
            let mut watched = store.watch();
            let synced = tokio::time::timeout(options.wait, watched.wait_for(|state| state.synced)).await;
            match synced {
                Ok(Ok(_)) => found.ok("store", "reached and read"),
                _ => found.fail("store", format!("not read within {:?}", options.wait), advice),
            }
            Some(store)
        }
        Ok(Err(error)) => {
            found.fail("store", format!("{error:#}"), advice);
            None
        }
        Err(_) => {
            found.fail("store", format!("no answer within {:?}", options.wait), advice);
            None
        }
    }
}

/// Starts the frontend on a port of its own and asks it what it found.
async fn fleet(options: &Check, store: std::sync::Arc<dyn roost_cluster::Discovery>, found: &mut Findings) {
    let stop = CancellationToken::new();
    let started = serve::start(&as_a_trial(&options.serve), store, stop.clone()).await;
    let (address, running) = match started {
        Ok((address, running)) => (address, tokio::spawn(running)),
        Err(error) => return found.fail("start", format!("{error:#}"), "see the option that is named"),
    };
    let seen = watch(address, options.wait).await;
    workers(&seen.workers, found).await;
    models(&seen, options, found);
    stop.cancel();
    // Its answers are known; how it ends is of no interest.
    let _ended = tokio::time::timeout(REACH, running).await;
}

/// The same frontend, but found by nobody: it listens on a port of its own and tells no other frontend.
fn as_a_trial(options: &Serve) -> Serve {
    let mut trial = options.clone();
    trial.http.host = Ipv4Addr::LOCALHOST.into();
    trial.http.port = 0;
    let none = roost_config::KeyOptions { key: None, file: None };
    trial.door.api_keys = none.clone();
    trial.door.admin_keys = none;
    trial.door.tls_cert = None;
    trial.door.tls_key = None;
    trial.door.tls_client_ca = None;
    trial.door.unix_socket = None;
    trial.events.replica_sync = false;
    trial.router.affinity.decode_ttl = None;
    trial.router.affinity.prefill_ttl = None;
    trial.router.affinity.file = None;
    trial.trace = None;
    trial.spans = None;
    trial.metrics.federation.servers.clear();
    trial
}

/// What the frontend knows.
#[derive(Debug, Default)]
struct Seen {
    workers: Vec<Value>,
    ready: Vec<String>,
}

/// Asks until every model of a known worker is served, or for so long.
async fn watch(address: SocketAddr, patience: Duration) -> Seen {
    let begun = Instant::now();
    let authority = address.to_string();
    loop {
        let ask = async |path: &str| {
            exchange::get(&authority, path).await.map(|(_, body)| body).unwrap_or_default()
        };
        let (workers, models) = (ask("/workers").await, ask("/v1/models").await);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let seen = Seen {
            workers: list(&workers["workers"]),
            ready: list(&models["data"]).iter().filter_map(|m| Some(m["id"].as_str()?.to_owned())).collect(),
        };
        let is_served = |worker: &Value| seen.ready.iter().any(|model| worker["model_id"] == **model);
        let is_done = !seen.workers.is_empty() && seen.workers.iter().all(is_served);
        if is_done || begun.elapsed() >= patience {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether the workers can be connected to.
async fn workers(workers: &[Value], found: &mut Findings) {
    if workers.is_empty() {
        let advice = "start one with the same store and namespace, or wait longer: --wait";
        return found.fail("workers", "none is registered", advice);
    }
    let mut dead = Vec::new();
    for worker in workers.iter().take(REACHED) {
        let address = worker["url"].as_str().unwrap_or_default();
        let reached = tokio::time::timeout(REACH, TcpStream::connect(address)).await;
        if !matches!(reached, Ok(Ok(_))) {
            dead.push(address.to_owned());
        }
    }
    let count = |kind: &str| workers.iter().filter(|worker| worker["worker_type"] == kind).count();
    let kinds =
        format!("{} aggregated, {} prefill, {} decode", count("regular"), count("prefill"), count("decode"));
    match dead.is_empty() {
        true => found.ok("workers", format!("{kinds}; all that were tried are reached")),
        false => found.fail(
            "workers",
            format!("{kinds}; not reached: {}", dead.join(", ")),
            "see that they run and that no firewall is in between; a dead one's record expires by itself",
        ),
    }
}

/// Whether each model could be served.
fn models(seen: &Seen, options: &Check, found: &mut Findings) {
    let mut names: Vec<&str> = seen.workers.iter().filter_map(|worker| worker["model_id"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let kinds: Vec<&str> = seen
            .workers
            .iter()
            .filter(|worker| worker["model_id"] == name)
            .filter_map(|worker| worker["worker_type"].as_str())
            .collect();
        let what = format!("model {name}");
        if seen.ready.iter().any(|ready| ready == name) {
            found.ok(&what, "tokenizer and template are loaded, it can be served");
        } else if kinds.contains(&"prefill") != kinds.contains(&"decode") {
            let missing = if kinds.contains(&"prefill") { "decode" } else { "prefill" };
            found.fail(&what, format!("it has no {missing} worker"), "start one");
        } else {
            found.fail(
                &what,
                format!("not ready within {:?}; warnings above say why", options.wait),
                "make its files readable here, or name a copy: --model-path",
            );
        }
    }
}
