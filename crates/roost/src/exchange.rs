//! One HTTP exchange with a frontend of ours, whose answers of known length need no more than this.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Asks for `path` at `authority`, a host with a port. Returns status and body; a body that is not JSON as a text.
pub(crate) async fn get(authority: &str, path: &str) -> Result<(u16, Value)> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    exchange(authority, head).await
}

/// Sends a whole request to a socket in the file system and reads the whole answer.
pub(crate) async fn exchange_at_socket(socket: &Path, request: String) -> Result<(u16, Value)> {
    let name = socket.display();
    let stream = UnixStream::connect(socket).await.with_context(|| format!("cannot connect to {name}"))?;
    over(stream, request).await
}

/// Sends a whole request and reads the whole answer.
pub(crate) async fn exchange(authority: &str, request: String) -> Result<(u16, Value)> {
    over(connect(authority).await?, request).await
}

/// The same over TLS; the certificate must name the host.
pub(crate) async fn exchange_over_tls(
    authority: &str,
    request: String,
    tls: Arc<ClientConfig>,
) -> Result<(u16, Value)> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
        .with_context(|| format!("{host} can be in no certificate"))?;
    let stream = connect(authority).await?;
    let stream = TlsConnector::from(tls).connect(name, stream).await;
    over(stream.with_context(|| format!("no TLS with {authority}"))?, request).await
}

async fn connect(authority: &str) -> Result<TcpStream> {
    TcpStream::connect(authority).await.with_context(|| format!("cannot connect to {authority}"))
}

async fn over(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: String) -> Result<(u16, Value)> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer).await {
        // A server may close TLS without saying so; the length of the answer is checked by its JSON.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        result => _ = result?,
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    Ok((status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()))))
}
