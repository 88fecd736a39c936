//! The model's files over HTTP, for frontends on other machines.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use roost_cluster::record::EndpointId;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::model_card::{ReadFile, slug};
use super::{StartError, SystemConfig, url_host};

/// Connections served at once; more wait in the backlog.
const MAX_CONNECTIONS: usize = 256;
/// Time that a client has to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the listening socket failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The system port, bound.
#[derive(Debug)]
pub(super) struct MetadataServer {
    listener: TcpListener,
    /// `http://HOST:PORT`.
    base: String,
}

/// Where the files of a model are on the system port.
pub(super) fn prefix(endpoint: &EndpointId, model_name: &str) -> String {
    let segments = [&endpoint.namespace, &endpoint.component, &endpoint.name, &slug(model_name)];
    let path: Vec<String> = segments.into_iter().map(|segment| escape(segment)).collect();
    format!("/v1/metadata/{}/_base", path.join("/"))
}

impl MetadataServer {
    /// Binds the port. `fallback` is the address to advertise when all interfaces are bound.
    pub(super) fn bind(config: &SystemConfig, fallback: IpAddr) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { what: "model files", source };
        let socket = std::net::TcpListener::bind(config.bind).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(socket).map_err(failed)?;
        let bound: SocketAddr = listener.local_addr().map_err(failed)?;
        let ip = if bound.ip().is_unspecified() { fallback } else { bound.ip() };
        let host = config.advertise_host.clone().unwrap_or_else(|| url_host(ip));
        Ok(Self { listener, base: format!("http://{host}:{}", bound.port()) })
    }

    /// The URL of a file.
    pub(super) fn url(&self, prefix: &str, name: &str) -> String {
        format!("{}{prefix}/{}", self.base, escape(name))
    }

    /// Serves the files, and nothing else, until the worker stops.
    pub(super) fn serve(
        self,
        prefix: &str,
        files: &[ReadFile],
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + use<> {
        let file = |file: &ReadFile| (format!("{prefix}/{}", escape(&file.name)), file.content.clone());
        let files: Arc<HashMap<String, Bytes>> = Arc::new(files.iter().map(file).collect());
        async move {
            let connections = TaskTracker::new();
            stop.run_until_cancelled(accept(self.listener, files, connections.clone(), stop.clone())).await;
            connections.close();
            connections.wait().await;
        }
    }
}

async fn accept(
    listener: TcpListener,
    files: Arc<HashMap<String, Bytes>>,
    connections: TaskTracker,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "system port could not accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let files = files.clone();
        let service = service_fn(move |request| {
            let response = respond(&files, &request);
            async move { Ok::<_, Infallible>(response) }
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(socket), service);
        let stop = stop.clone();
        connections.spawn(async move {
            if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
                tracing::debug!(%error, "connection to the system port failed");
            }
            drop(permit);
        });
    }
}

fn respond(files: &HashMap<String, Bytes>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), files.get(request.uri().path())) {
        (&Method::GET | &Method::HEAD, Some(content)) => (StatusCode::OK, content.clone()),
        (_, Some(_)) => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        (_, None) => (StatusCode::NOT_FOUND, Bytes::from_static(b"no such file\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Escapes what is not unreserved in a URL's path.
fn escape(segment: &str) -> String {
    let mut escaped = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
