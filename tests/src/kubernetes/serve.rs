//! HTTP/1.1 on a socket: lists, watches, apply, delete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{Asked, Shared, State};
use crate::Certificates;

pub(super) fn acceptor(certificates: &Certificates) -> Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(certificates.certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes())?;
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain?, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(super) async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            // A client that goes away ends its connection only.
            let _ended = match tls {
                None => connection(stream, &shared).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => connection(stream, &shared).await,
                    Err(_) => Ok(()),
                },
            };
        });
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(stream: S, shared: &Shared) -> Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream).await? {
        shared.state.lock().asked.push(asked.clone());
        let target = Target::read(&asked.target)?;
        if let Some((status, reason)) = refusal(shared, &asked, &target) {
            let message = format!("scripted: {reason}");
            answer(&mut stream, status, &failure(status, reason, &message)).await?;
        } else if asked.method == "GET" && target.flag("watch") {
            return watch(&mut stream, shared, &target).await;
        } else {
            let (status, body) = exchange(shared, &asked, &target)?;
            answer(&mut stream, status, &body).await?;
        }
    }
    Ok(())
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>) -> Result<Option<Asked>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) =
        (words.next().context("method")?.to_owned(), words.next().context("target")?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(Ok(0), |length| length.parse())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(Asked { method, target, headers, body: String::from_utf8(body)? }))
}

/// A request's target, taken apart.
struct Target {
    collection: String,
    name: Option<String>,
    query: BTreeMap<String, String>,
}

impl Target {
    fn read(text: &str) -> Result<Self> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let (_, rest) = path.split_once("/namespaces/serving/").context("the namespace is another one")?;
        let (collection, name) = match rest.split_once('/') {
            Some((collection, name)) => (collection, Some(name.to_owned())),
            None => (rest, None),
        };
        let query = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| {
                (key.to_owned(), value.replace("%2F", "/").replace("%3D", "=").replace("%7C", "|"))
            })
            .collect();
        Ok(Self { collection: collection.to_owned(), name, query })
    }

    fn flag(&self, name: &str) -> bool {
        self.query.get(name).is_some_and(|value| value == "true")
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.query.get(name)?.parse().ok()
    }

    fn selects(&self, object: &Value) -> bool {
        self.query.get("labelSelector").is_none_or(|selector| {
            selector.split(',').all(|one| {
                one.split_once('=').is_some_and(|(key, value)| object["metadata"]["labels"][key] == value)
            })
        })
    }
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message})
}

fn refusal(shared: &Shared, asked: &Asked, target: &Target) -> Option<(u16, &'static str)> {
    let mut state = shared.state.lock();
    if let Some(token) = &state.token
        && asked.headers.get("authorization") != Some(&format!("Bearer {token}"))
    {
        return Some((401, "Unauthorized"));
    }
    let method = if target.flag("watch") { "WATCH" } else { asked.method.as_str() };
    let fault = state
        .faults
        .iter_mut()
        .find(|fault| fault.method == method && fault.collection == target.collection && fault.times > 0)?;
    fault.times -= 1;
    Some((fault.status, fault.reason))
}

fn exchange(shared: &Shared, asked: &Asked, target: &Target) -> Result<(u16, Value)> {
    let missing = || (404, failure(404, "NotFound", "there is no such object"));
    let answer = match (asked.method.as_str(), &target.name) {
        ("GET", None) => list(&shared.state.lock(), target),
        ("DELETE", Some(name)) => {
            let mut removed = None;
            shared.change(|state| removed = state.remove(&target.collection, name));
            removed.map_or_else(missing, |object| (200, object))
        }
        ("PATCH", Some(name)) => {
            // Without a field manager or with another kind of patch a real server does not apply either.
            anyhow::ensure!(target.query.contains_key("fieldManager") && target.flag("force"));
            let kind = asked.headers.get("content-type").context("content type")?;
            anyhow::ensure!(kind == "application/apply-patch+yaml", "{kind}");
            let object: Value = serde_json::from_str(&asked.body)?;
            anyhow::ensure!(object["metadata"]["name"] == **name && object["apiVersion"].is_string());
            let mut stored = Value::Null;
            shared.change(|state| stored = state.put(&target.collection, name, object));
            (200, stored)
        }
        _ => (405, failure(405, "MethodNotAllowed", "not scripted")),
    };
    Ok(answer)
}

/// One page; `continue` is the revision of the first page and the last name of the one before.
fn list(state: &State, target: &Target) -> (u16, Value) {
    let after = target.query.get("continue").and_then(|token| token.split_once('|'));
    let revision = after.map_or(state.revision, |(revision, _)| revision.parse().unwrap_or_default());
    if revision < state.oldest {
        return (410, failure(410, "Expired", "the continue token is too old"));
    }
    let limit =
        target.number("limit").map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let limit = limit.min(state.largest_page.unwrap_or(usize::MAX));
    let mut all = state
        .objects
        .iter()
        .filter(|((collection, _), object)| *collection == target.collection && target.selects(object))
        .filter(|((_, name), _)| after.is_none_or(|(_, last)| name.as_str() > last));
    let items: Vec<&Value> = all.by_ref().take(limit).map(|(_, object)| object).collect();
    let last = items.last().map(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let (Some(last), Some(_)) = (last, all.next()) {
        metadata["continue"] = json!(format!("{revision}|{last}"));
    }
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
}

async fn answer<S: AsyncWrite + Unpin>(stream: &mut S, status: u16, body: &Value) -> Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(stream.flush().await?)
}

async fn watch<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    shared: &Shared,
    target: &Target,
) -> Result<()> {
    let mut changed = shared.changed.subscribe();
    let (generation, mut bookmarks, oldest) = {
        let state = shared.state.lock();
        (state.generation, state.bookmarks, state.oldest)
    };
    let mut position = target.number("resourceVersion").context("a watch from somewhere")?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    if position < oldest {
        let status = failure(410, "Expired", "too old resource version");
        line(stream, &json!({"type": "ERROR", "object": status})).await?;
        return Ok(stream.write_all(b"0\r\n\r\n").await?);
    }
    let seconds = target.number("timeoutSeconds").context("a watch that ends")?;
    let end = tokio::time::sleep(Duration::from_secs(seconds));
    tokio::pin!(end);
    loop {
        let (lines, over) = {
            let state = shared.state.lock();
            let news = state
                .history
                .iter()
                .filter(|change| change.revision > position && change.collection == target.collection)
                .filter(|change| target.selects(&change.object));
            let mut lines: Vec<Value> =
                news.map(|change| json!({"type": change.kind, "object": change.object})).collect();
            position = position.max(state.revision);
            if state.bookmarks > bookmarks && target.flag("allowWatchBookmarks") {
                bookmarks = state.bookmarks;
                let metadata = json!({"resourceVersion": position.to_string(), "creationTimestamp": null});
                lines.push(json!({"type": "BOOKMARK", "object": {"kind": "Any", "metadata": metadata}}));
            }
            (lines, state.generation > generation)
        };
        for one in &lines {
            line(stream, one).await?;
        }
        if over {
            return Ok(stream.write_all(b"0\r\n\r\n").await?);
        }
        tokio::select! {
            woken = changed.changed() => woken?,
            () = &mut end => return Ok(stream.write_all(b"0\r\n\r\n").await?),
        }
    }
}

/// One line, in two chunks: a reader must not take chunks for lines.
async fn line<S: AsyncWrite + Unpin>(stream: &mut S, value: &Value) -> Result<()> {
    let text = format!("{value}\n");
    let (one, other) = text.as_bytes().split_at(text.len() / 2);
    for part in [one, other] {
        stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await?;
        stream.write_all(part).await?;
        stream.write_all(b"\r\n").await?;
        stream.flush().await?;
    }
    Ok(())
}
