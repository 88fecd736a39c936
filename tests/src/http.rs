//! A plain HTTP/1.1 client over one connection per request: what a test sees is what was on the wire.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for anything a test asks for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A request under construction.
#[derive(Debug, Clone)]
pub struct Request {
    address: SocketAddr,
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body without its transfer coding.
    pub body: Vec<u8>,
}

/// A streamed answer whose events are read one by one. Dropping it closes the connection.
#[derive(Debug)]
pub struct Events {
    /// HTTP status.
    pub status: u16,
    stream: TcpStream,
    raw: Vec<u8>,
    body: Vec<u8>,
    ended: bool,
}

impl Request {
    /// A request with a JSON body.
    pub fn post(address: SocketAddr, path: &str, body: &Value) -> Self {
        Request {
            address,
            method: "POST",
            path: path.into(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.to_string().into_bytes(),
        }
    }

    /// A request without a body.
    pub fn get(address: SocketAddr, path: &str) -> Self {
        Request { address, method: "GET", path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Changes the method.
    #[must_use]
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    /// Puts other bytes in the place of the body.
    #[must_use]
    pub fn raw_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Names the session of the request.
    #[must_use]
    pub fn session(self, id: &str) -> Self {
        self.header("x-dynamo-session-id", id)
    }

    /// Sends and reads the whole answer.
    pub async fn send(&self) -> Result<Reply> {
        tokio::time::timeout(PATIENCE, async {
            let mut stream = self.open().await?;
            let mut raw = Vec::new();
            let head = read_head(&mut stream, &mut raw).await?;
            // `connection: close` was asked for: the answer ends with the connection.
            stream.read_to_end(&mut raw).await?;
            let (body, ended) = head.body(&raw)?;
            ensure!(ended, "the answer was cut: {}", String::from_utf8_lossy(&body));
            Ok(Reply { status: head.status, headers: head.headers, body })
        })
        .await
        .context("no answer in time")?
    }

    /// Sends and reads the head of an answer that has no body; returns its status.
    pub async fn send_head(&self) -> Result<u16> {
        tokio::time::timeout(PATIENCE, async {
            let mut stream = self.open().await?;
            Ok(read_head(&mut stream, &mut Vec::new()).await?.status)
        })
        .await
        .context("no answer in time")?
    }

    /// Sends and reads the head of the answer.
    pub async fn stream(&self) -> Result<Events> {
        tokio::time::timeout(PATIENCE, async {
            let mut stream = self.open().await?;
            let mut raw = Vec::new();
            let head = read_head(&mut stream, &mut raw).await?;
            Ok(Events { status: head.status, stream, raw, body: Vec::new(), ended: false })
        })
        .await
        .context("no answer in time")?
    }

    async fn open(&self) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n",
            self.method,
            self.path,
            self.address,
            self.body.len()
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        // A server may answer before it has read a body that it refuses.
        if let Err(error) = stream.write_all(&bytes).await
            && bytes.len() < 1 << 16
        {
            return Err(error.into());
        }
        Ok(stream)
    }
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The data of every server-sent event; the end mark is the string `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        text.split_terminator("\n\n").filter_map(event_data).collect()
    }
}

impl Events {
    /// The data of the next event; `None` at the end of the answer.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        tokio::time::timeout(PATIENCE, async {
            loop {
                self.dechunk()?;
                let end = self.body.windows(2).position(|w| w == b"\n\n");
                if let Some(end) = end {
                    let event: Vec<u8> = self.body.drain(..end + 2).collect();
                    if let Some(data) = event_data(&String::from_utf8_lossy(&event)) {
                        return Ok(Some(data));
                    }
                    continue;
                }
                if self.ended {
                    return Ok(None);
                }
                if self.stream.read_buf(&mut self.raw).await? == 0 {
                    bail!("the stream was cut");
                }
            }
        })
        .await
        .context("no event in time")?
    }

    fn dechunk(&mut self) -> Result<()> {
        while !self.ended {
            let Some((chunk, rest)) = next_chunk(&self.raw)? else { return Ok(()) };
            self.ended = chunk.is_empty();
            self.body.extend_from_slice(chunk);
            let used = self.raw.len() - rest.len();
            self.raw.drain(..used);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body and whether it was complete.
    fn body(&self, raw: &[u8]) -> Result<(Vec<u8>, bool)> {
        if self.get("transfer-encoding") == Some("chunked") {
            let (mut rest, mut body) = (raw, Vec::new());
            while let Some((chunk, after)) = next_chunk(rest)? {
                if chunk.is_empty() {
                    return Ok((body, true));
                }
                body.extend_from_slice(chunk);
                rest = after;
            }
            return Ok((body, false));
        }
        let length = self.get("content-length").and_then(|v| v.parse().ok()).unwrap_or(raw.len());
        Ok((raw.to_vec(), raw.len() >= length))
    }
}

async fn read_head(stream: &mut TcpStream, raw: &mut Vec<u8>) -> Result<Head> {
    let end = loop {
        if let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(raw).await? == 0 {
            bail!("connection closed before an answer");
        }
    };
    let text = String::from_utf8(raw[..end].to_vec())?;
    raw.drain(..end + 4);
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|l| l.split(' ').nth(1)).context("status line")?.parse()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Ok(Head { status, headers })
}

/// The next chunk of a chunked body and what follows it, when it is complete.
fn next_chunk(raw: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
    let Some(line) = raw.windows(2).position(|w| w == b"\r\n") else { return Ok(None) };
    let size = usize::from_str_radix(std::str::from_utf8(&raw[..line])?.trim(), 16)?;
    let start = line + 2;
    if raw.len() < start + size + 2 {
        return Ok(None);
    }
    Ok(Some((&raw[start..start + size], &raw[start + size + 2..])))
}

/// The data of one event; comments and empty events give nothing.
fn event_data(event: &str) -> Option<Value> {
    let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
    Some(serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.into())))
}
