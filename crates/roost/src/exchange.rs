//! One HTTP exchange with a frontend of ours, whose answers of known length need no more than this.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Asks for `path` at `authority`, a host with a port. Returns status and body; a body that is not JSON as a text.
pub(crate) async fn get(authority: &str, path: &str) -> Result<(u16, Value)> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    exchange(authority, head).await
}

/// Asks for `path` at a socket in the file system.
pub(crate) async fn get_at_socket(socket: &Path, path: &str) -> Result<(u16, Value)> {
    let name = socket.display();
    let stream = UnixStream::connect(socket).await.with_context(|| format!("cannot connect to {name}"))?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    over(stream, head).await
}

/// Sends a whole request and reads the whole answer.
pub(crate) async fn exchange(authority: &str, request: String) -> Result<(u16, Value)> {
    let stream =
        TcpStream::connect(authority).await.with_context(|| format!("cannot connect to {authority}"))?;
    over(stream, request).await
}

async fn over(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: String) -> Result<(u16, Value)> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    Ok((status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()))))
}
