//! Fetching one file from a worker by HTTP.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::CardFilesConfig;
use super::cache::Cache;
use super::source::Checksum;
use super::target;

/// Downloads into the cache. The content is verified before it gets its name; redirects are not followed.
pub(super) async fn download(
    uri: &Uri,
    checksum: &Checksum,
    limit: u64,
    cache: &Cache,
    config: &CardFilesConfig,
) -> Result<PathBuf, String> {
    let whole = fetch(uri, checksum, limit, cache, config.idle_timeout);
    let done = timeout(config.total_timeout, whole).await;
    done.unwrap_or_else(|_| Err(format!("not complete within {:?}", config.total_timeout)))
}

async fn fetch(
    uri: &Uri,
    checksum: &Checksum,
    limit: u64,
    cache: &Cache,
    idle: Duration,
) -> Result<PathBuf, String> {
    let host = uri.host().ok_or("no host in the URL")?;
    // An IPv6 host keeps its brackets in a URI, but not in an address.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = within(idle, target::resolve(name, uri.port_u16().unwrap_or(80))).await?;
    let stream = within(idle, TcpStream::connect(&*addresses)).await?;
    let (mut sender, connection) = within(idle, http1::handshake(TokioIo::new(stream))).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection for a model file ended");
        }
    }));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let request = Request::get(path).header(header::HOST, authority).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let response = within(idle, sender.send_request(request)).await?;
    if response.status() != hyper::StatusCode::OK {
        return Err(format!("the server answered {}", response.status()));
    }
    let mut body = response.into_body();
    if let Some(announced) = hyper::body::Body::size_hint(&body).exact().filter(|&size| size > limit) {
        return Err(format!("{announced} bytes instead of at most {limit}"));
    }
    let (mut file, unfinished) = cache.begin().await.map_err(|error| error.to_string())?;
    let mut hasher = blake3::Hasher::new();
    let mut received: u64 = 0;
    while let Some(frame) = timeout(idle, body.frame()).await.map_err(|_| format!("silent for {idle:?}"))? {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        received += data.len() as u64;
        if received > limit {
            return Err(format!("more than {limit} bytes"));
        }
        hasher.update(&data);
        file.write_all(&data).await.map_err(|error| error.to_string())?;
    }
    checksum.check(&hasher.finalize())?;
    file.flush().await.map_err(|error| error.to_string())?;
    drop(file);
    cache.finish(unfinished, checksum).await.map_err(|error| error.to_string())
}

async fn within<T, E: std::fmt::Display>(
    limit: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(limit, step).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}
